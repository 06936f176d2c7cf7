"""What the runner says about installing itself and its extras."""

import importlib.metadata
import shlex
import tomllib
from pathlib import Path

import pytest

from runner.core import installation

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
TAKEN = ("experiment-runner", "runner")  # by other projects on PyPI


def test_the_distribution_has_a_name_that_no_other_project_has():
    assert PROJECT["name"] == installation.DISTRIBUTION
    assert installation.DISTRIBUTION not in TAKEN
    assert PROJECT["scripts"]["runner"]


@pytest.mark.parametrize("extra", ["s3", "gcs", "onnx", "mlflow", "wandb", "ray"])
def test_in_a_clone_an_extra_is_installed_from_the_clone(extra):
    *command, what = shlex.split(installation.command_for(extra))
    assert command == ["pip", "install", "-e"]
    folder, _, name = what.rstrip("]").rpartition("[")
    assert Path(folder) == ROOT
    assert name in EXTRAS


def test_elsewhere_an_extra_is_installed_as_the_packages_that_it_consists_of(monkeypatch, tmp_path):
    declared = ["numpy<3", *(f'{each}; extra == "onnx"' for each in EXTRAS["onnx"])]
    monkeypatch.setattr(installation, "_SOURCE", tmp_path)
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: declared)
    assert shlex.split(installation.command_for("onnx")) == ["pip", "install", *EXTRAS["onnx"]]


def test_no_text_has_pip_look_for_the_runner_by_name():
    files = [ROOT / "README.md", ROOT / "Dockerfile", *(ROOT / "docs").rglob("*.md")]
    files += [*(ROOT / "runner").rglob("*.py"), *(ROOT / "tasks").rglob("*.py")]
    for file in files:
        text = file.read_text()
        for name in (*TAKEN, installation.DISTRIBUTION):
            assert f"pip install {name}" not in text, file
            assert f"pip install '{name}" not in text, file


def test_the_version_is_shown_even_where_the_runner_is_not_installed(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert "runner (not installed)" in installation.versions()
