"""A logger is added by one file, and then exists for `--mode=log`, its help and RunConfig."""

import json
from pathlib import Path

import finished
import pytest
import toy

from runner import main
from runner.run_directory import loggers as package
from runner.run_directory.loggers import feed

# Its library is named `colorsys`, which Python has.
MODULE = """
from pathlib import Path

def target():
    return "memo.txt"

class Logger:
    def __init__(self, facts, ledger):
        self._ledger = ledger
        self.place = "memo"

    def describe(self, facts):
        self._ledger.put([facts.entry])

    def log(self, found):
        with Path("memo.txt").open("a") as file:
            file.writelines(f"{row.values}\\n" for row in found)
        self._ledger.put([row.entry for row in found])

    def keep(self, path, digest):
        self._ledger.put([("artifact", path.name, digest)])

    def close(self):
        pass
"""


@pytest.fixture
def colorsys(tmp_path, monkeypatch):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "to_colorsys.py").write_text(MODULE)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path / "more")])


def test_a_logger_of_a_new_file_gets_every_row_once(colorsys, capsys):
    finished.run(toy.experiment(), Path("run"))
    capsys.readouterr()
    assert "colorsys" in feed.names()
    counts = []
    for _ in range(2):
        assert main.main(["--mode=log", "--model_dir=run", "--to=colorsys"]) == 0
        counts.append(json.loads(capsys.readouterr().out)["logged"]["colorsys"]["rows"])
    assert counts[0] == len(Path("memo.txt").read_text().splitlines()) > 4
    assert counts[1] == 0
