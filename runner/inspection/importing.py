"""The mode `import`: run directories from TensorBoard's event files of other programs.

    runner --mode=import logs --model_dir=runs/old

The directories `train` and `validation` of Keras's callback, and those of Model Garden and of other
programs with similar names, become the training rows and the evaluations of one run. The parent
directories separate runs. No TensorFlow.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from runner.core import console, files, layout, text
from runner.errors import ConfigError, RunnerError
from runner.history import records
from runner.run_directory import provenance, status
from runner.run_directory.run import has_begun
from runner.run_directory.state import State
from runner.runs.call import Results

_EVENTS = "events.out.tfevents.*"
_PART = re.compile(r"(?i)(?P<own>val(id(ation)?)?|eval(uation)?)|(?P<other>test|dev)|train(ing)?")
_EPOCH = "epoch_"  # Keras's prefix
_SKIPPED = ("batch_", "evaluation_")  # Keras's values of each batch

Rows = dict[int, dict[str, float]]
"""Values by name, by step."""


class _Found(NamedTuple):
    """The scalars of one run.

    Attributes:
        training: The rows of training.
        evaluations: The rows of evaluations.
        times: The time of the first and of the last event, in seconds since the epoch.
    """

    training: Rows
    evaluations: Rows
    times: list[float]


def import_runs(logs: Path, target: Path) -> Results:
    """Makes a run directory of each run whose event files are below a directory.

    Args:
        logs: The directory.
        target: The run's directory, or the parent of several.

    Raises:
        ConfigError: there are no event files with scalars, or a run is already there.
    """
    if wrong := layout.no_directory(logs):
        raise ConfigError(f"{{logs}} {wrong}", logs=str(logs))
    found: dict[str, _Found] = {}
    for path in sorted(logs.rglob(_EVENTS)):
        name, part = _run_of(path.parent.relative_to(logs))
        one = found.setdefault(name, _Found({}, {}, []))
        for step, tag, value, when in _scalars(path):
            rows = one.training if part is None else one.evaluations
            if shown := _name(tag, part):
                rows.setdefault(step, {})[shown] = value
            one.times.append(when)
    found = {name: one for name, one in found.items() if one.training or one.evaluations}
    if not found:
        raise ConfigError(f"{logs} has no event files ({_EVENTS}) with scalars")
    folders = {name: target if len(found) == 1 else target / name for name in found}
    for folder in folders.values():
        if has_begun(folder):
            raise ConfigError(f"{folder} already has a run; choose another --model_dir")
    for name, one in found.items():
        _write(folders[name], logs / name, one)
        console.say(
            f"{folders[name]}: {text.counted(len(one.training), 'training row')}, "
            f"{text.counted(len(one.evaluations), 'evaluation')}"
        )
    return {"status": "done", "runs": [str(each) for each in folders.values()]}


def _run_of(path: Path) -> tuple[str, str | None]:
    """Returns the run that a directory of event files belongs to, and the part of it.

    The part is None for training, empty for the validation data, and else the name of a set.
    """
    names = [each for each in path.parts if each != "."]
    for index in range(len(names) - 1, -1, -1):
        if found := _PART.fullmatch(names[index]):
            run = "/".join([*names[:index], *names[index + 1 :]])
            if found["other"]:
                return run, names[index]
            return run, "" if found["own"] else None
    return "/".join(names), None


def _name(tag: str, part: str | None) -> str:
    """Returns the name of a metric, or an empty string if the values are not imported."""
    if tag.startswith(_SKIPPED):
        return ""
    short = tag.removeprefix(_EPOCH)
    if short in ("loss", "total_loss"):
        short = "training_loss" if part is None else "validation_loss"
    return f"{part}/{short}" if part else short


def _scalars(path: Path) -> Iterator[tuple[int, str, float, float]]:
    """Yields step, tag, value and time of each scalar of an event file, as far as readable."""
    from tensorboard.backend.event_processing import event_file_loader
    from tensorboard.compat.proto import event_pb2
    from tensorboard.util import tensor_util

    try:
        for content in event_file_loader.RawEventFileLoader(str(path)).Load():
            event = event_pb2.Event.FromString(content)
            for value in event.summary.value:
                if value.WhichOneof("value") == "simple_value":
                    yield event.step, value.tag, value.simple_value, event.wall_time
                elif value.WhichOneof("value") == "tensor" and not value.tensor.tensor_shape.dim:
                    array = tensor_util.make_ndarray(value.tensor)
                    if array.dtype.kind in "fiu":
                        yield event.step, value.tag, float(array), event.wall_time
    except Exception as error:  # the file may be damaged in any way
        raise RunnerError(f"{path}: not an event file ({error})") from error


def _write(folder: Path, origin: Path, found: _Found) -> None:
    """Writes a run directory."""
    files.make_folder(folder)
    first, last = min(found.times), max(found.times)
    step = max([*found.training, *found.evaluations])
    command = provenance.Command("import", sys.argv, {"logs": str(origin)})
    record = provenance.RunRecord(folder, command)
    training = ({"step": at, **row} for at, row in sorted(found.training.items()))
    files.append_json_lines(folder / layout.TRAINING_ROWS, map(records.plain, training))
    evaluations = (
        records.Evaluation(at, row, 0.0, last, f"ckpt-{at}").as_dict()
        for at, row in sorted(found.evaluations.items())
    )
    files.append_json_lines(folder / layout.HISTORY, evaluations)
    files.flush_all(folder)
    with status.StatusFile(folder) as ended:
        ended.write(State.DONE, step, f"imported from {origin}")
    record.end(State.DONE, step)
    record.note(started=first, ended=last)
