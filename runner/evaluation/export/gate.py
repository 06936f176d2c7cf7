"""Export validation: an exported file must match the scores of its checkpoint."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from official.core import base_task

from runner.configuration import limits
from runner.core import text
from runner.core.spelling import did_you_mean
from runner.data import pipeline
from runner.data.determinism import Determinism
from runner.errors import ConfigError
from runner.evaluation import evaluator
from runner.evaluation.export import fresh_process, signatures
from runner.evaluation.export.stand_in import StandIn
from runner.reporting import scalars, table
from runner.run_config import ExportConfig

CHECKPOINT = "checkpoint"


@dataclasses.dataclass(frozen=True)
class Scored:
    """The scores and the costs of a checkpoint or an exported file.

    Attributes:
        name: `checkpoint`, or the format, with the inputs of the score if they are not the model's.
        metrics: The metrics on the validation data, by name.
        bytes: The size.
        milliseconds: The median of one example, or None if it failed.
        reason: Why it is rejected, or empty if it is accepted.
    """

    name: str
    metrics: Mapping[str, float]
    bytes: int
    milliseconds: float | None
    reason: str = ""


class Gate:
    """Scores exported files on the validation data, with the task's own metrics.

    Args:
        checkpoint: Evaluates the weights that were exported.
        own: The model's signature.
        check: Called before each evaluation. It raises if a signal has arrived.
    """

    def __init__(
        self,
        checkpoint: evaluator.Evaluator,
        own: signatures.ModelSignature,
        check: Callable[[], None],
    ) -> None:
        self._task = checkpoint.task
        self._data = pipeline.whole(checkpoint.config.task.validation_data)
        self._batches = tf.constant(limits.validation_batches(checkpoint.config))
        self._check = check
        self.stand_in = StandIn(checkpoint.model, own)
        self._evaluator = evaluator.Evaluator(
            checkpoint.config,
            self._task,
            self.stand_in,
            None,
            validation_dataset=checkpoint.eval_dataset,
            evaluated=Determinism.of_evaluations(),
            check=check,
        )

    def score(self, name: str, process: fresh_process.FreshProcess, size: int) -> Scored:
        """Scores a file from the model's inputs.

        Args:
            name: The format.
            process: Has loaded it.
            size: Its bytes.

        Raises:
            LoadError: the file cannot be loaded, or fails.
            ConfigError: the task's steps call the model in a way that no file supports.
        """
        stand_in = self.stand_in
        stand_in.run = lambda inputs: process.call(signatures.MODEL, inputs)
        stand_in.examples, stand_in.error = 0, None
        try:
            found = scalars.scalars(self._evaluator.evaluate(self._batches))
        except Exception:
            if isinstance(stand_in.error, fresh_process.LoadError):
                raise stand_in.error from None
            raise
        if not stand_in.examples:
            raise ConfigError(
                f"{type(self._task).__name__}.validation_step does not call the model it is given, "
                "so an exported model cannot be scored: let it call inference_step"
            )
        milliseconds = process.milliseconds(signatures.MODEL, stand_in.one)
        return Scored(name, found, size, milliseconds)

    def score_serving(self, process: fresh_process.FreshProcess) -> dict[str, float]:
        """Returns the metrics from raw inputs, or empty if the task cannot score them."""
        score = getattr(self._task, "score_served", None)
        if score is None or self._batches >= 0:
            return {}

        def serve(**inputs: Any) -> dict[str, np.ndarray]:
            self._check()
            given = {name: _array(value) for name, value in inputs.items()}
            return process.call(signatures.SERVING, given)

        return scalars.scalars(score(serve, self._data))


def inputs_of(
    task: base_task.Task, batches: Iterable[Any], stand_in: StandIn, function: Any, count: int
) -> list[dict[str, np.ndarray]]:
    """Returns the model's inputs for the first `count` examples, one at a time."""
    kept: list[dict[str, np.ndarray]] = []

    def run(inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        rows = len(next(iter(inputs.values())))
        kept.extend({k: v[n : n + 1].copy() for k, v in inputs.items()} for n in range(rows))
        return {k: v.numpy() for k, v in function(**_constants(inputs)).items()}

    stand_in.run = run
    for batch in batches:
        task.inference_step(batch[0] if isinstance(batch, tuple) else batch, stand_in)
        if len(kept) >= count:
            break
    return kept[:count]


def _array(value: Any) -> np.ndarray:
    """Returns an array unchanged, and strings or bytes as objects, which keep their lengths."""
    return value if isinstance(value, np.ndarray) else np.array(value, object)


def _constants(inputs: Mapping[str, np.ndarray]) -> dict[str, tf.Tensor]:
    return {name: tf.constant(array) for name, array in inputs.items()}


def too_far(one: float, other: float, tolerance: float) -> bool:
    """Returns whether two values of a metric differ by more than the tolerance.

    The tolerance is relative to the first value if that is above 1.
    """
    if one == other or (math.isnan(one) and math.isnan(other)):  # also of infinities
        return False
    return not abs(one - other) <= tolerance * max(1.0, abs(one))


def check_names(reference: Mapping[str, float], options: ExportConfig) -> None:
    """Raises ConfigError if a metric to compare is not among those of the checkpoint."""
    if unknown := [name for name in options.metrics if name not in reference]:
        raise ConfigError(
            f"ExportConfig.metrics: no metric {unknown[0]!r}; there are "
            f"{', '.join(sorted(reference))}{did_you_mean(unknown[0], reference)}"
        )


def objection(
    reference: Mapping[str, float], found: Mapping[str, float], options: ExportConfig
) -> str:
    """Returns why a file with the scores `found` is rejected, or an empty text if accepted."""
    counted = options.metrics or tuple(reference)
    far = [
        f"{name} {found[name]:.6g} where the checkpoint has {reference[name]:.6g}"
        for name in sorted(counted)
        if name in found and too_far(reference[name], found[name], options.tolerance)
    ]
    return text.some(far)


def render(columns: Sequence[Scored], options: ExportConfig) -> str:
    """Renders a column for each of `columns` and a line for each metric. `!` marks deviations."""
    reference = columns[0].metrics
    lines = [["", *(each.name for each in columns)]]
    for name in sorted(reference):
        lines.append([name, *(_cell(name, each, reference, options) for each in columns)])
    lines.append(["size", *(text.size(each.bytes) for each in columns)])
    times = (each.milliseconds for each in columns)
    lines.append(["ms, one example", *("-" if t is None else f"{t:.3g}" for t in times)])
    return "\n".join(table.aligned(lines, left=1))


def _cell(name: str, each: Scored, reference: Mapping[str, float], options: ExportConfig) -> str:
    value = each.metrics.get(name)
    if value is None:
        return "-"
    counts = not options.metrics or name in options.metrics
    far = counts and too_far(reference[name], value, options.tolerance)
    return f"{'!' if far else ''}{value:.4g}"
