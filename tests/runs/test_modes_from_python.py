"""Each mode, called from Python: it does what the command does, or names what is missing."""

import subprocess
import sys
import types
from pathlib import Path

import finished
import pytest
import toy
import warm

import runner
from runner.command import table
from runner.errors import ConfigError
from runner.run_directory.verification import child_run

WITH = {  # what a mode needs besides an experiment and a folder
    "compare": {"runs": ("run", "other")},
    "replay": {"steps": (39, 40)},
    "init": {"like": "images"},
    "log": {"to": "csv"},
    "import": {"logs": "run"},
}
COMMANDS = {"study": {"seeds": 2, "jobs": 1}, "verify_resume": {}}  # they start processes
OF_FILES = ("ensemble", "decide")  # of several runs or files; their own tests call them


@pytest.fixture
def run():
    for name in ("run", "other"):
        finished.run(toy.experiment(), Path(name))
    return Path("run")


@pytest.mark.parametrize(
    "mode", [name for name in table.modes() if name not in (*COMMANDS, *OF_FILES)]
)
def test_a_mode_does_from_python_what_the_command_does(run, mode):
    row = table.modes()[mode]
    folder = "new" if mode in ("init", "import") else run
    dry_run = row.is_configured and mode not in ("train", "eval")  # others are tested one by one
    results = runner.run(
        toy.experiment() if row.is_configured else None,
        folder if row.directory else None,
        mode,
        dry_run=dry_run,
        **WITH.get(mode, {}),
    )
    assert isinstance(results, dict)
    assert results


@pytest.mark.parametrize("mode", COMMANDS)
def test_a_mode_that_starts_processes_works_from_python(mode, monkeypatch):
    monkeypatch.setattr(child_run, "Child", warm.Fork)  # faster, and otherwise the same
    short = [
        "TrainerConfig.train_steps = 4",
        "TrainerConfig.validation_interval = 2",
        "TrainerConfig.checkpoint_interval = 2",
        "CosineLrConfig.decay_steps = 4",
    ]
    results = runner.run(runner.load("digits.gin", short), "new", mode, **COMMANDS[mode])
    assert results["status"] == "done"


@pytest.mark.parametrize("mode", COMMANDS)
def test_a_configuration_made_in_python_has_no_files_for_processes(mode):
    with pytest.raises(ConfigError, match=r"runner\.load"):
        runner.run(toy.experiment(), "new", mode, **COMMANDS[mode])
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("mode", "missing"),
    [("compare", "runs"), ("replay", "steps"), ("init", "like"), ("log", "to"), ("import", "logs")],
)
@pytest.mark.parametrize("configured", [True, False])
def test_an_argument_that_is_missing_is_named_in_one_line(run, mode, missing, configured):
    with pytest.raises(ConfigError) as error:
        runner.run(toy.experiment() if configured else None, run, mode)
    (line,) = str(error.value).splitlines()
    assert f"{missing} is missing" in line
    assert f"--{missing}" not in line


@pytest.mark.parametrize("mode", [name for name, row in table.modes().items() if row.is_configured])
def test_a_missing_experiment_is_named(mode):
    with pytest.raises(ConfigError, match="configuration"):
        runner.run(None, "new", mode)


@pytest.mark.parametrize("mode", [name for name, row in table.modes().items() if row.directory])
@pytest.mark.parametrize("folder", [None, ""])
def test_a_missing_folder_is_named(mode, folder):
    with pytest.raises(ConfigError, match="model_dir is missing"):
        runner.run(toy.experiment(), folder, mode)


@pytest.mark.parametrize(
    "argument",
    [{"like": "images"}, {"to": "csv"}, {"steps": (1, 2)}, {"runs": ["run"]}, {"dry_run": True}],
)
def test_an_argument_of_another_mode_is_refused(run, argument):
    with pytest.raises(ConfigError, match=next(iter(argument))):
        runner.run(None, run, "status", **argument)


def test_steps_that_are_no_range_are_refused(run):
    with pytest.raises(ConfigError, match="steps"):
        runner.run(None, run, "replay", steps=(5, 3))


def test_the_package_shows_what_is_public_and_nothing_else():
    code = (
        "import runner, sys\n"
        "print(*dir(runner), runner.errors.__name__, 'tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *names, errors, loads_tensorflow = done.stdout.split()
    assert names == sorted(runner.__all__)
    assert "errors" in names
    assert (errors, loads_tensorflow) == ("runner.errors", "False")
    assert isinstance(runner.errors, types.ModuleType)
