"""Restores checkpoints, and explains why one is damaged or does not match the model."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from runner.checkpoints import (
    checkpoint_files,
    compatibility,
    extra_state,
    integrity,
)
from runner.errors import ConfigError, RunnerError
from runner.internals import checkpoint_keys
from runner.internals import tensorflow as tf_internals


class DamagedError(RunnerError):
    """A checkpoint is damaged or gone. `reason` is the message without its path."""

    def __init__(self, path: Path, why: str) -> None:
        self.reason = f"is damaged: {why}"
        super().__init__(f"{path} {self.reason}")


def restore(checkpoint: tf.train.Checkpoint, path: Path, *, partly: bool = False) -> None:
    """Reads `path` into `checkpoint`.

    Args:
        checkpoint: The object to restore. The file must have all its variables.
        path: The checkpoint, without `.index`.
        partly: Whether the file may contain more, such as an optimizer that an evaluator ignores.

    Raises:
        DamagedError: the file is damaged or gone.
        ConfigError: the file was written for another model. The message lists the differences.
    """
    try:
        with _without_unsaved(checkpoint, path):
            report = compatibility.compare(checkpoint, path)
            complaint = "" if report.different else _read(checkpoint, path, partly=partly)
    except integrity.READ_ERRORS as error:
        why = integrity.damage(path) or checkpoint_files.reason(error)
        raise DamagedError(path, why) from error
    if report.different or complaint:
        differences = report.render(unexpected=not partly) or f"  {complaint}"
        written, advice = _misfit(report, partly=partly)
        raise ConfigError(f"{path} was written {written}:\n{differences}\n{advice}")


@contextlib.contextmanager
def _without_unsaved(checkpoint: tf.train.Checkpoint, path: Path) -> Iterator[None]:
    """A context in which `checkpoint` lacks the parts that the writer of `path` does not save.

    These parts are reset, because their values are unknown.
    """
    parts = {
        name: getattr(checkpoint, name)
        for name in extra_state.missing_in(path)
        if hasattr(checkpoint, name)
    }
    for name in parts:
        delattr(checkpoint, name)
    try:
        yield
    finally:
        for name, part in parts.items():
            setattr(checkpoint, name, part)
    for metric in parts.get("train_metrics", ()):
        metric.reset_state()
    for name in {"inputs", "replicas"} & parts.keys():
        parts[name].assign(b"")


def _misfit(report: compatibility.Report, *, partly: bool) -> tuple[str, str]:
    """Describes the model that a misfitting checkpoint was written for, and what to do."""
    if partly:
        advice = "Evaluate with the run's own configuration, the config.gin in its directory"
        return "for another model", advice
    advice = "Its task's init_checkpoint can be this checkpoint"
    names = [*report.missing, *report.unexpected, *report.different]
    if names and all(name.startswith("train_metrics/") for name in names):
        return "with other training metrics", (
            "A run cannot change its training metrics (from the task's build_metrics and "
            "RunConfig.log_gradient_norm). To use other metrics, start a new run in another "
            f"model_dir. {advice}"
        )
    if names and all(name.startswith("optimizer") for name in names):
        return "for an optimizer with other variables", (
            "A run cannot change its optimizer or its frozen variables "
            "(VariableGroupConfig.trainable). To change them, start a new run in another "
            f"model_dir. {advice}"
        )
    changed = "To train a changed model, start a new run in another model_dir"
    return "for another model", f"{changed}. {advice}"


def _read(checkpoint: tf.train.Checkpoint, path: Path, *, partly: bool) -> str:
    """Reads the matching values, and returns TensorFlow's complaint about the rest, if any."""
    name = checkpoint_files.as_read(path)
    status = checkpoint.read(name) if partly else checkpoint.restore(name)
    try:
        if not partly:
            status.assert_consumed()
        status.assert_existing_objects_matched()
    except AssertionError as error:
        return str(error).strip().partition("\n")[0]
    finally:
        status.expect_partial()  # otherwise it logs the same complaint when it is deleted
        tf_internals.forget_unmatched(checkpoint)  # otherwise each restore takes more memory
    return ""


def step_of(path: Path) -> int:
    """Returns the training step in a checkpoint's name, else in its contents, else 0."""
    step = checkpoint_files.step_in(path.name)
    if step is not None:
        return step
    reader = checkpoint_files.open_reader(path)
    key = f"global_step{checkpoint_keys.VALUE}"
    return int(reader.get_tensor(key)) if reader.has_tensor(key) else 0
