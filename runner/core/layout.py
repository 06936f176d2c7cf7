"""The names of files and folders in a run's folder. Standard library only."""

import errno
from pathlib import Path

from runner.errors import RunnerError

PARAMS = "params.yaml"
RESOLVED = "resolved.yaml"  # the whole configuration, where params.yaml is Model Garden's
GIN = "config.gin"
RUN = "run.json"
STATUS = "status.json"
STEP = "step.txt"
CLAIM = "claim.json"
CHECKPOINT_NAME = "ckpt"  # before a step
CHECKPOINT = "checkpoint"  # TensorFlow's list of checkpoints
HISTORY = "history.jsonl"
TRAINING_ROWS = "train.jsonl"
SYSTEM_ROWS = "system.jsonl"
OVERVIEW = "overview.json"
INPUTS = "inputs.json"  # the shards of indexed training data
MODEL = "model.json"  # the layers of a model that runner.fit was given
TRACEBACK = "traceback.txt"
NOTIFY_LOG = "notify.log"
REPORT = "report.html"

TRAIN = "train"
VALIDATION = "validation"
TEST = "test"
SYSTEM = "system"
TEST_LAST = "test-last"
SETS = "sets"
EXPORT = "export"  # in it a folder for each format, in that one for each step
EXPORT_FACTS = "export.json"  # in a version's folder
MODEL_CARD = "model_card.md"
REJECTED = "rejected-"
UNFINISHED = ".unfinished"
BEST = "best"
AVERAGES = "ema_checkpoints"  # Model Garden's name: averaged weights of the newest evaluations
MEAN = "mean"  # the mean of several checkpoints' weights
INFO = "info.json"  # in a folder of best checkpoints
DAMAGED = "damaged"
PREDICTIONS = "predictions"
REPLAY = "replay"
LOGGERS = "loggers"  # what loggers were given, and what went wrong
LAUNCH = "launch"  # logs of the jobs that --launch has submitted
SUBMITTED = "submitted.jsonl"  # in that folder: these jobs
WORKERS = "workers"  # what other workers than the chief print, and what supervisors agree on
SUPERVISOR = "supervisor.json"  # in that folder
ENSEMBLE = "ensemble.json"
ENSEMBLE_PREDICTIONS = "ensemble"  # what each member predicts

TRIALS = "trials"  # in a study's folder, as are the next four; in it a run's folder for each trial
STUDY = "study.json"
TRIALS_TABLE = "trials.csv"
TRIALS_PARQUET = "trials.parquet"
PLOTS = "plots"
TRIAL = "trial.json"  # in a trial's folder, as are its attempts
ATTEMPTS = "attempts.jsonl"

EVALUATOR = "evaluator.json"  # in an evaluator's own folder, as is the queue
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


def params(folder: Path) -> Path:
    """The file with the whole configuration of a run.

    A program that calls Model Garden's `run_experiment` reads and writes params.yaml, which then
    has Model Garden's sections alone.
    """
    resolved = folder / RESOLVED
    return resolved if resolved.exists() else folder / PARAMS


def trials(study: Path) -> list[Path]:
    """The folders of a study's trials, by number."""
    return sorted((study / TRIALS).glob("[0-9]*-*"))


def evaluator(model_dir: Path, name: str) -> Path:
    """The folder of evaluator `name` in a run's folder."""
    return model_dir / f"{_EVALUATOR_FOLDER}{name}"


def evaluators(model_dir: Path) -> list[Path]:
    """The folders of the evaluators that have started, by name."""
    return sorted(model_dir.glob(f"{_EVALUATOR_FOLDER}*"))


def evaluator_name(folder: Path) -> str:
    """The name of the evaluator whose folder this is."""
    return folder.name.removeprefix(_EVALUATOR_FOLDER)


def is_evaluator(folder: str) -> bool:
    """Whether a folder of this name is an evaluator's."""
    return folder.startswith(_EVALUATOR_FOLDER)


def is_part(folder: str) -> bool:
    """Whether a folder of this name within a run's folder belongs to that run."""
    return folder in _PARTS or folder.startswith((_EVALUATOR_FOLDER, f"{BEST}-", REJECTED))


def is_of_run(name: str) -> bool:
    """Whether a file or folder of this name in a run's folder was written by the run."""
    if name.startswith((f"{CHECKPOINT_NAME}-", "events.out.tfevents.")):
        return True
    return name in (*_FILES, REPORT) or is_part(name)


def check(folder: Path) -> None:
    """Checks that `folder` is, or can become, a run's or evaluator's folder; changes nothing.

    Raises:
        RunnerError: there is a file where a folder is needed, or the other way round.
    """
    for path in (folder, *folder.absolute().parents):
        if path.is_symlink() and _is_loop(path):
            raise RunnerError(f"{path} is a link that leads back to itself: remove it")
        if path.is_symlink() and not path.exists():
            raise RunnerError(
                f"{path} is a link to {path.readlink()}, which does not exist: create that folder, "
                "or remove the link"
            )
        if path.exists() and not path.is_dir():
            raise RunnerError(f"{folder} cannot be a folder: {path} is a file")
    for name in _FILES:
        if (folder / name).is_dir():
            raise RunnerError(_in_the_way(folder / name, "folder", "file"))
    for name in _FOLDERS:
        if (folder / name).is_file():
            raise RunnerError(_in_the_way(folder / name, "file", "folder"))


def _is_loop(link: Path) -> bool:
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def _in_the_way(path: Path, found: str, wanted: str) -> str:
    return f"{path} is a {found}, but a run needs a {wanted} of that name: move it elsewhere"
