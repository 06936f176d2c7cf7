import json

import pytest
import toy

from runner.core import signals
from runner.errors import ConfigError
from runner.run_directory import session, status
from runner.runs.call import Call


def start(folder, after_begin):
    call = Call(toy.experiment(), folder)
    command, stop = call.command(), signals.Stop()
    with session.Session(folder, call.config, command, stop=stop) as begun:
        begun.begin()
        assert (folder / "params.yaml").exists()
        after_begin()
        raise ConfigError("a mistake")


def refused(folder, *, after_begin=lambda: None):
    """A start in `folder` that finds a mistake in its configuration."""
    with pytest.raises(ConfigError, match="a mistake"):
        start(folder, after_begin)


def test_what_an_evaluator_keeps_in_a_refused_run_stays(tmp_path):
    folder = tmp_path / "run"
    refused(folder, after_begin=lambda: (folder / "eval-cpu").mkdir())
    assert [path.name for path in folder.iterdir()] == ["eval-cpu"]


def test_a_refused_start_that_has_lost_its_folder_removes_nothing(tmp_path):
    folder = tmp_path / "run"
    refused(folder, after_begin=lambda: (folder / "claim.json").unlink())
    assert {"params.yaml", "run.json"} <= {path.name for path in folder.iterdir()}


def test_a_run_that_has_started_before_keeps_its_record(tmp_path):
    refused(tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / "run.json").write_text('{"starts": []}')
    with status.StatusFile(tmp_path) as file:
        file.write("done", 40)
    before = status.read(tmp_path)
    refused(tmp_path)
    assert status.read(tmp_path) == before
    (row,) = json.loads((tmp_path / "run.json").read_text())["starts"]
    assert row["state"] == "failed"
