"""A crate describes its run, and the run can be repeated from it to the same bits."""

import hashlib
import json
import zipfile

import pytest
import toy

import runner
from runner import main
from runner.inspection import crate
from runner.run_directory.run import Run

rocrate = pytest.importorskip("rocrate.rocrate", reason="rocrate is not installed")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The directory of a run that has ended."""
    folder = tmp_path_factory.mktemp("crate") / "once"
    runner.run(toy.experiment(), folder, "train_and_eval")
    return folder


@pytest.fixture(scope="module")
def unpacked(run):
    """The directory of its crate."""
    folder = run.parent / "unpacked"
    found = crate.write(run, run.parent / "out" / "crate.zip")
    with zipfile.ZipFile(found["output"]) as archive:
        archive.extractall(folder)
    return folder


def entities(folder):
    graph = json.loads((folder / "ro-crate-metadata.json").read_text())["@graph"]
    return {each["@id"]: each for each in graph}


def test_every_file_has_its_checksum(unpacked):
    described = {name: each for name, each in entities(unpacked).items() if "sha256" in each}
    assert {"config.gin", "params.yaml", "history.jsonl", "README.md"} <= described.keys()
    for name, each in described.items():
        assert hashlib.sha256((unpacked / name).read_bytes()).hexdigest() == each["sha256"]


def test_the_action_has_the_metrics_and_the_workflow(unpacked, run):
    found = rocrate.ROCrate(str(unpacked))
    assert found.mainEntity.id == "config.gin"
    (action,) = (each for each in found.get_entities() if each.type == "CreateAction")
    assert action["instrument"] is found.mainEntity
    values = {
        each["name"]: each["value"] for each in action["result"] if each.type == "PropertyValue"
    }
    assert values["accuracy"] == Run(run).best.metrics["accuracy"]
    assert values["state"] == crate.state_digest(Run(run))


def test_the_digest_changes_with_a_bit(run, tmp_path):
    runner.run(toy.experiment({"run": {"seed": 1}}), tmp_path, "train_and_eval")
    assert crate.state_digest(Run(tmp_path)) != crate.state_digest(Run(run))


def test_a_run_is_repeated_from_its_crate_to_the_same_bits(unpacked, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = runner.load([str(unpacked / "config.gin")])
    runner.run(made, tmp_path / "again", "train_and_eval")
    assert crate.state_digest(Run(tmp_path / "again")) == crate.state_digest(Run(run))


def test_the_command_writes_it_into_the_directory(run, capsys):
    assert main.main(["--mode=report", f"--model_dir={run}", "--format=ro-crate"]) == 0
    results = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert results["state"] == crate.state_digest(Run(run))
    assert zipfile.is_zipfile(results["output"])


@pytest.mark.parametrize("flags", [["--output=page.html"], ["--runs=a,b"], ["--watch"]])
def test_options_of_pages_are_rejected(run, flags):
    assert main.main(["--mode=report", f"--model_dir={run}", "--format=ro-crate", *flags]) == 2
