"""The names of files and directories in a run's directory. Standard library only."""

import contextlib
import errno
import os
from pathlib import Path

from runner.core import spelling
from runner.errors import RunnerError

PARAMS = "params.yaml"
RESOLVED = "resolved.yaml"  # the whole configuration, if params.yaml is Model Garden's
GIN = "config.gin"
RUN = "run.json"
STATUS = "status.json"
STEP = "step.txt"
CLAIM = "claim.json"
CHECKPOINT_NAME = "ckpt"  # the prefix of the step in a checkpoint's name
CHECKPOINT = "checkpoint"  # TensorFlow's list of checkpoints
HISTORY = "history.jsonl"
TRAINING_ROWS = "train.jsonl"
SYSTEM_ROWS = "system.jsonl"
OVERVIEW = "overview.json"
INPUTS = "inputs.json"  # the shards of indexed training data
MODEL = "model.json"  # the layers of the model passed to runner.fit
TRACEBACK = "traceback.txt"
NOTIFY_LOG = "notify.log"
REPORT = "report.html"
CRATE = "crate.zip"

TRAIN = "train"
VALIDATION = "validation"
TEST = "test"
SYSTEM = "system"
TEST_LAST = "test-last"
SETS = "sets"
EXPORT = "export"  # with a directory per format, and in it one per step
EXPORT_FACTS = "export.json"  # in a version's directory
MODEL_CARD = "model_card.md"
REJECTED = "rejected-"
UNFINISHED = ".unfinished"
BEST = "best"
AVERAGES = "ema_checkpoints"  # Model Garden's name: averaged weights of the newest evaluations
MEAN = "mean"  # the mean of several checkpoints' weights
INFO = "info.json"  # in a directory of best checkpoints
DAMAGED = "damaged"
PREDICTIONS = "predictions"
REPLAY = "replay"
LOGGERS = "loggers"  # the values sent to loggers, and their errors
LAUNCH = "launch"  # logs of the jobs that --launch has submitted
SUBMITTED = "submitted.jsonl"  # in that directory: these jobs
WORKERS = "workers"  # the output of workers other than the chief, and the supervisors' state
SUPERVISOR = "supervisor.json"  # in that directory
ENSEMBLE = "ensemble.json"
ENSEMBLE_PREDICTIONS = "ensemble"  # each member's predictions

TRIALS = "trials"  # in a study's directory, like the next five, with a run directory per trial
STUDY = "study.json"
DECISIONS = "decisions.json"
TRIALS_TABLE = "trials.csv"
TRIALS_PARQUET = "trials.parquet"
PLOTS = "plots"
TRIAL = "trial.json"  # in a trial's directory, like its attempts
ATTEMPTS = "attempts.jsonl"

EVALUATOR = "evaluator.json"  # in an evaluator's directory, like the queue
QUEUE = "queue"
_EVALUATOR_FOLDER = "eval-"

_FILES = (
    *(PARAMS, RESOLVED, GIN, RUN, STATUS, STEP, CLAIM, CHECKPOINT),
    *(HISTORY, TRAINING_ROWS, SYSTEM_ROWS, OVERVIEW, INPUTS, MODEL, TRACEBACK, NOTIFY_LOG),
)
_FOLDERS = (
    *(TRAIN, VALIDATION, SYSTEM, BEST, AVERAGES, MEAN, SETS, DAMAGED),
    *(EXPORT, PREDICTIONS, REPLAY, LOGGERS, LAUNCH, WORKERS),
)
_PARTS = {*_FOLDERS, TEST, TEST_LAST, ENSEMBLE_PREDICTIONS, PLOTS}


def has(folder: Path, name: str) -> bool:
    """Returns whether a directory has a file of this name. Three times as fast as `Path.exists`."""
    return os.path.exists(f"{folder}/{name}")  # noqa: PTH110


def no_directory(path: Path) -> str:
    """Returns `does not exist`, `is a file, not a directory`, or "" for a directory."""
    if path.is_dir():
        return ""
    if path.exists():
        return "is a file, not a directory"
    names: list[str] = []
    with contextlib.suppress(OSError):  # the directory above it is missing or cannot be read
        names = [each.name for each in path.parent.iterdir() if each.is_dir()]
    return f"does not exist{spelling.did_you_mean(path.name, names)}"


def params(folder: Path) -> Path:
    """Returns the file with the whole configuration of a run.

    A program that calls Model Garden's `run_experiment` reads and writes params.yaml, which then
    contains only Model Garden's fields.
    """
    return folder / (RESOLVED if has(folder, RESOLVED) else PARAMS)


def is_study(folder: Path) -> bool:
    """Returns whether a directory holds a study."""
    return (folder / TRIALS).is_dir()


def trials(study: Path) -> list[Path]:
    """Returns the directories of a study's trials, by number."""
    return sorted((study / TRIALS).glob("[0-9]*-*"))


def evaluator(model_dir: Path, name: str) -> Path:
    """Returns the directory of evaluator `name` in a run's directory."""
    return model_dir / f"{_EVALUATOR_FOLDER}{name}"


def evaluators(model_dir: Path) -> list[Path]:
    """Returns the directories of the evaluators that have started, by name."""
    return sorted(model_dir.glob(f"{_EVALUATOR_FOLDER}*"))


def evaluator_name(folder: Path) -> str:
    """Returns the name of the evaluator that this directory belongs to."""
    return folder.name.removeprefix(_EVALUATOR_FOLDER)


def is_evaluator(folder: str) -> bool:
    """Returns whether a directory of this name belongs to an evaluator."""
    return folder.startswith(_EVALUATOR_FOLDER)


def is_part(folder: str) -> bool:
    """Returns whether a directory of this name within a run's directory belongs to that run."""
    return folder in _PARTS or folder.startswith((_EVALUATOR_FOLDER, f"{BEST}-", REJECTED))


def is_of_run(name: str) -> bool:
    """Returns whether the run wrote a file or directory of this name in its directory."""
    if name.startswith((f"{CHECKPOINT_NAME}-", "events.out.tfevents.")):
        return True
    return name in (*_FILES, REPORT, CRATE) or is_part(name)


def check(folder: Path) -> None:
    """Checks that `folder` is, or can become, a directory of a run or evaluator, without changes.

    Raises:
        RunnerError: there is a file in place of a directory, or a directory in place of a file.
    """
    for path in (folder, *folder.absolute().parents):
        if path.is_symlink() and _is_loop(path):
            raise RunnerError(f"{path} is a link that leads back to itself: remove it")
        if path.is_symlink() and not path.exists():
            raise RunnerError(
                f"{path} is a link to {path.readlink()}, which does not exist: create that "
                "directory, or remove the link"
            )
        if path.exists() and not path.is_dir():
            raise RunnerError(f"{folder} cannot be a directory: {path} is a file")
    for name in _FILES:
        if (folder / name).is_dir():
            raise RunnerError(_in_the_way(folder / name, "directory", "file"))
    for name in _FOLDERS:
        if (folder / name).is_file():
            raise RunnerError(_in_the_way(folder / name, "file", "directory"))


def _is_loop(link: Path) -> bool:
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def _in_the_way(path: Path, found: str, wanted: str) -> str:
    return f"{path} is a {found}, but a run needs a {wanted} of that name: move it elsewhere"
