"""The rows of a run's log: evaluations and decisions. No TensorFlow.

A row's `time` is when it was made, in seconds since the epoch.
"""

import dataclasses
import itertools
import math
import numbers
from collections.abc import Mapping
from typing import Any, ClassVar

from runner.core import typed

PACE = ("steps_per_second", "mfu", "input_wait", "seconds", "epoch_seconds")
"""The values in a training row in addition to metrics. They differ from run to run."""


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A row of any kind.

    Attributes:
        step: The training step that it belongs to.
    """

    kind: ClassVar[str]

    step: int

    def as_dict(self) -> dict[str, Any]:
        """Returns the row for JSON. Metrics that are not finite become their names."""
        names = (field.name for field in dataclasses.fields(self))
        row = {"kind": self.kind, **{name: getattr(self, name) for name in names}}
        if not row.get("limited", True):
            del row["limited"]
        return {**row, "metrics": plain(row["metrics"])} if "metrics" in row else row


@dataclasses.dataclass(frozen=True, slots=True)
class Evaluation(Record):
    """One evaluation.

    Attributes:
        step: The training step whose weights were evaluated.
        metrics: Name to value. Values may be NaN or infinite.
        seconds: How long the evaluation took.
        checkpoint: The checkpoint's name, `ckpt-<step>` or a path.
        limited: The number of batches of each set used (`RunConfig.limit_evaluation`), or 0 for
            all. It is stored in a row only if it is not 0.
    """

    kind = "evaluation"

    metrics: Mapping[str, float]
    seconds: float
    time: float
    checkpoint: str
    limited: int = 0

    @property
    def is_own(self) -> bool:
        """Whether the checkpoint belongs to this run, and not to another one evaluated here."""
        return "/" not in self.checkpoint


@dataclasses.dataclass(frozen=True, slots=True)
class Rollback(Record):
    """A decision: training broke, returns to a checkpoint and skips the batches that broke it.

    Attributes:
        step: The checkpoint's step, from which the decision applies.
        found: The step after the broken step.
        skipped: The batches left out: the first, and the one after the last.
        rate: The factor on the learning rate from `step` on.
        reason: Why training broke.
    """

    kind = "rollback"

    found: int
    skipped: tuple[int, int]
    rate: float
    reason: str
    time: float


@dataclasses.dataclass(frozen=True, slots=True)
class FreshShuffle(Record):
    """A resume that continued with newly shuffled data, so the run is not bit-exact.

    Attributes:
        step: The step at which it resumed.
        batch: The number of the batch after it, with which the new data begin.
        seed: The seed of the new data.
    """

    kind = "fresh_shuffle"

    batch: int
    seed: int
    time: float


@dataclasses.dataclass(frozen=True, slots=True)
class Corruption(Record):
    """A repeated training step gave other bits (`RunConfig.recheck_every`).

    Attributes:
        step: The step of the checkpoint before it.
        found: The step.
        reason: The variables that differ, and their devices.
    """

    kind = "corruption"

    found: int
    reason: str
    time: float


@dataclasses.dataclass(frozen=True, slots=True)
class Stop(Record):
    """A decision based on an evaluator's evaluations, or of a Keras callback: the run stops.

    Attributes:
        step: The step at which it stopped and saved a checkpoint.
        source: The evaluator's name, or empty for a callback.
        reason: Why it stopped.
        end: The configured last step, after which a longer run continues. 0 for an evaluator.
    """

    kind = "stop"

    source: str
    reason: str
    time: float
    end: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Drop(Record):
    """A decision based on an evaluator's evaluations: the learning rate drops.

    Attributes:
        step: The step at which it was made, with a checkpoint, and from which it applies.
        source: The evaluator's name.
        scale: The factor of this drop and all before it on the schedule.
    """

    kind = "drop"

    source: str
    scale: float
    time: float


@dataclasses.dataclass(frozen=True, slots=True)
class RateChange(Record):
    """A constant learning rate that other code, such as a callback, has set.

    Attributes:
        step: The step from which it applies.
        rate: The learning rate.
        configured: The configured learning rate that it replaces.
        scale: The factor of the drops until then, which `rate` includes.
    """

    kind = "rate_change"

    rate: float
    configured: float
    time: float
    scale: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class LeftOut(Record):
    """A checkpoint that an evaluator could not evaluate, and does not retry by itself.

    Attributes:
        step: The checkpoint's step.
        checkpoint: Its name, `ckpt-<step>` or a path.
        reason: The error.
    """

    checkpoint: str
    reason: str
    time: float


@dataclasses.dataclass(frozen=True, slots=True)
class Damaged(LeftOut):
    """The checkpoint is damaged or missing."""

    kind = "damaged"


@dataclasses.dataclass(frozen=True, slots=True)
class Failed(LeftOut):
    """Its evaluation raised an exception, or an action after it did."""

    kind = "failed"


@dataclasses.dataclass(frozen=True, slots=True)
class Test(Record):
    """A test of some weights at the end of a run.

    Attributes:
        step: The last step of the run.
        weights: `best` or `last`.
        tested: The step whose weights were tested.
        metrics: Name to value. Values may be NaN or infinite.
        seconds: How long it took.
        checkpoint: The checkpoint's name.
        limited: As in `Evaluation`.
        data: A digest of the test data's configuration and files, or empty in older files.
    """

    kind = "test"

    weights: str
    tested: int
    metrics: Mapping[str, float]
    seconds: float
    time: float
    checkpoint: str
    limited: int = 0
    data: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Mean(Record):
    """An evaluation of the mean of several checkpoints' weights, after the end of a run.

    Attributes:
        step: The last step of the run.
        steps: The steps of the checkpoints.
        metrics: Name to value. Values may be NaN or infinite.
        seconds: How long it took.
        checkpoint: The mean, relative to the run's directory.
        limited: As in `Evaluation`.
    """

    kind = "mean"

    steps: tuple[int, ...]
    metrics: Mapping[str, float]
    seconds: float
    time: float
    checkpoint: str
    limited: int = 0


KINDS: Mapping[str, type[Record]] = {
    row.kind: row
    for row in (
        *(Evaluation, Rollback, FreshShuffle, Corruption, Stop, Drop, RateChange),
        *(Damaged, Failed, Test, Mean),
    )
}

_TUPLES = {Rollback.kind: ("skipped",), Mean.kind: ("steps",)}  # JSON has lists


def parse(row: dict[str, Any]) -> Record:
    """Parses the record in a row of JSON.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: the row is not a record.
    """
    fields = dict(row)
    kind = fields.pop("kind")
    if kind == "unreadable":  # the name of damaged checkpoints until version 0.1
        kind = Damaged.kind
    if "metrics" in fields:
        fields["metrics"] = {name: float(value) for name, value in fields["metrics"].items()}
    for name in _TUPLES.get(kind, ()):
        fields[name] = tuple(fields[name])
    record = KINDS[kind](**fields)
    typed.check(record)
    return record


def nested(metrics: Mapping[str, float]) -> dict[str, Any]:
    """Returns metrics with compound names (`part/accuracy`) as nested dictionaries."""
    found: dict[str, Any] = {}
    for name, value in plain(metrics).items():
        *above, leaf = name.split("/")
        if above and not any(whole in metrics for whole in itertools.accumulate(above, _joined)):
            section = found
            for part in above:
                section = section.setdefault(part, {})
            section.setdefault(leaf, value)
    return found


def _joined(above: str, part: str) -> str:
    return f"{above}/{part}"


def plain(value: Any) -> Any:
    """Converts a value for JSON, which has no NaN or infinity: they become "nan", "inf", "-inf"."""
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    is_finite = not isinstance(value, numbers.Real) or math.isfinite(value)
    return value if is_finite else str(float(value))
