"""Model Garden's own training programs, with the import of `train_lib` replaced."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = ["seg_resnetfpn_pascal", "bert/pretraining"]  # one of each program
RUN = f"""
import runpy
from scripts.model_garden import programs
programs.PROGRAMS = {{name: programs.PROGRAMS[name] for name in {NAMES}}}
runpy.run_module("scripts.model_garden", run_name="__main__")
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What the programs left with Model Garden's trainer and with the runner."""
    folder = tmp_path_factory.mktemp("programs")
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", RUN, "programs", f"--folder={folder}"]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return json.loads((folder / "programs.json").read_text())


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("scripts.model_garden.programs")


@pytest.mark.parametrize("name", NAMES)
def test_a_program_leaves_and_returns_all_that_it_does_with_model_garden(name, results, script):
    there, here = (results[name][side] for side in ("there", "here"))
    assert "error" not in there, there
    assert "error" not in here, here
    missing = script.missing(there["lines"], here["lines"])
    assert [line for line, reason in missing.items() if not reason] == []
    kinds = {line.partition(":")[0] for line in here["lines"]}
    assert kinds >= {"file", "tag", "log", "checkpoint"}
    assert ("image" in kinds) == (name in script.IMAGES)


def test_the_manual_shows_what_the_programs_left(results, script):
    page = (ROOT / "docs" / "developers" / "model_garden.md").read_text()
    lines = script.tables(results)
    assert all(any(f"| `{name}` |" in line for line in lines) for name in NAMES)
    assert [line for line in lines if line not in page.splitlines()] == []
