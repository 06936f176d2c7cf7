"""Model Garden's own training programs, with the import of `train_lib` replaced."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "model_garden.py"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What the programs left with Model Garden's trainer and with the runner."""
    folder = tmp_path_factory.mktemp("programs")
    page = folder / "page.md"
    page.write_text((ROOT / "docs" / "model_garden.md").read_text())
    command = [sys.executable, str(SCRIPT), "--programs", f"--folder={folder}", f"--write={page}"]
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return json.loads((folder / "programs.json").read_text()), page.read_text()


@pytest.mark.parametrize("name", ["mnv2_deeplabv3_pascal", "retinanet", "bert/pretraining"])
def test_a_program_leaves_and_returns_all_that_it_does_with_model_garden(
    name, results, monkeypatch
):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import model_garden_programs

    there, here = (results[0][name][side] for side in ("there", "here"))
    assert "error" not in there, there
    assert "error" not in here, here
    missing = model_garden_programs.missing(there["lines"], here["lines"])
    assert [line for line, reason in missing.items() if not reason] == []
    kinds = {line.partition(":")[0] for line in here["lines"]}
    assert kinds >= {"file", "tag", "log", "checkpoint"}
    assert ("image" in kinds) == (name in model_garden_programs.IMAGES)


def test_the_manual_shows_what_the_programs_left(results):
    assert results[1] == (ROOT / "docs" / "model_garden.md").read_text()
