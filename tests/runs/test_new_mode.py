"""A mode is added by one file, and then exists for the command, its help and Python."""

import json
import re
from pathlib import Path

import pytest

import runner
from runner import main
from runner.command import modes as package
from runner.command import table
from runner.errors import ConfigError

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def greet(tmp_path, monkeypatch):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "greet.py").write_text(EXAMPLE)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path / "more")])
    table.modes.cache_clear()
    yield
    table.modes.cache_clear()


def test_the_command_has_the_mode_of_a_new_file(greet, capsys):
    assert main.main(["--mode=greet", "--model_dir=run", "--word=good"]) == 0
    assert json.loads(capsys.readouterr().out)["said"] == "good run"
    with pytest.raises(SystemExit):
        main.main(["--mode=greet", "--help"])
    assert "--word" in capsys.readouterr().out
    assert main.main(["--mode=status", "--model_dir=run", "--word=good"]) == 2
    assert "greet" in capsys.readouterr().err


def test_python_has_the_mode_of_a_new_file(greet):
    assert runner.run(None, "run", "greet", word="good")["said"] == "good run"
    with pytest.raises(ConfigError, match="word"):
        runner.run(None, "run", "greet", wrod="good")
