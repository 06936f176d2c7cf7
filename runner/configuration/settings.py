"""What is true of a field of a configuration, written at the field itself.

    patience: int = setting(5, "Evaluations in a row without a gain.", allowed=COUNT, resume=LENGTH)

What holds for official's fields, where nothing can be written, is in `fields`.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

import tf_keras

from runner.core import spelling

METADATA = "setting"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclasses.dataclass(frozen=True)
class Allowed:
    """What values a field may have.

    Attributes:
        needs: Said of a value that is not allowed: `must be 1 or more`.
        mistake: What to say of a value: `needs` or more; empty where it is allowed.
    """

    needs: str
    mistake: Callable[[Any], str]


@dataclasses.dataclass(frozen=True)
class Resume:
    """Why a resumed run stays the same experiment although a value has changed.

    Attributes:
        why: The reason.
        unless: When it does not hold, in words.
        fails: The same: called with the experiment and the path of the value.
    """

    why: str
    unless: str = ""
    fails: Callable[[Any, str], bool] = lambda *_: False


@dataclasses.dataclass(frozen=True)
class Setting:
    """A field.

    Attributes:
        help: What it means; empty for a field of official, whose class says it.
        allowed: Its range or choices; None for whatever its type allows.
        resume: Why it may change when a run is resumed, with all that is below it; None: it may
            not. A new field is thus safe until somebody has thought about it.
        read: Where a given value is read: in the first loop of a run that trains, only if it also
            evaluates, or elsewhere (other modes, later). It decides what may be called unused.
        better: Which values of the metrics that the field names are better.
        stands_for: The path of the field of steps that it replaces, for a field in epochs.
    """

    help: str = ""
    allowed: Allowed | None = None
    resume: Resume | None = None
    read: Literal["training", "evaluation", "elsewhere"] = "training"
    better: Literal["", "higher", "lower"] = ""
    stands_for: str = ""


def setting(default: Any, help: str, **facts: Any) -> Any:
    """A dataclass field with what is true of it.

    Args:
        default: Its default; a section's class for a new section of it.
        help: What it means.
        facts: The other attributes of `Setting`.
    """
    metadata = {METADATA: Setting(help, **facts)}
    if isinstance(default, type):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def number(
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    also: Mapping[Any, str] | None = None,
) -> Allowed:
    """A range of numbers.

    Args:
        at_least: The smallest.
        above: What all are greater than.
        at_most: The greatest.
        below: What all are smaller than.
        also: Further values, each with what it is for: `{0: "for no limit"}`.
    """
    also = also or {}
    bounds = {"{} or more": at_least, "above {}": above, "at most {}": at_most, "below {}": below}
    said = " and ".join(text.format(n) for text, n in bounds.items() if n is not None)
    needs = ", or ".join([f"must be {said}", *(f"{n} {what}" for n, what in also.items())])

    def fits(value: Any) -> bool:  # false for NaN
        return value is not None and (
            (at_least is None or value >= at_least)
            and (above is None or value > above)
            and (at_most is None or value <= at_most)
            and (below is None or value < below)
        )

    return Allowed(needs, lambda value: "" if value in also or fits(value) else needs)


def one_of(*choices: str) -> Allowed:
    """One of some words."""
    needs = f"must be {' or '.join(map(repr, choices))}"

    def mistake(value: Any) -> str:
        if value in choices:
            return ""
        return f"{needs}{spelling.did_you_mean(str(value), choices)}"

    return Allowed(needs, mistake)


def _name(value: str) -> str:
    return "" if _NAME.fullmatch(value) else _NAMED


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        return f"{_PATTERN}: {error}"
    return "" if value else "must be given"


def _initializer(value: str) -> str:
    try:
        kind = tf_keras.initializers.Initializer
        if not value or isinstance(tf_keras.initializers.get(value), kind):
            return ""
    except ValueError:
        pass
    return f"{_INITIALIZER}{spelling.did_you_mean(value, dir(tf_keras.initializers))}"


_NAMED = "must be made of letters, digits, '-', '_' and '.', a letter or a digit first"
_PATTERN = "must be a regular expression"
_INITIALIZER = "must name one of tf_keras.initializers"

COUNT = number(at_least=1)
SIZE = number(at_least=0)
NAME = Allowed(_NAMED, _name)
OPTIONAL_NAME = Allowed(f"{_NAMED}, or empty", lambda value: value and _name(value))
PATTERN = Allowed(_PATTERN, _pattern)
INITIALIZER = Allowed(f"{_INITIALIZER}, or be empty", _initializer)


def _rate_drops(experiment: Any, path: str) -> bool:
    """Whether the learning rate drops by the run's own evaluations."""
    del path
    plateau = experiment.run.plateau
    return bool((plateau.higher or plateau.lower) and not plateau.source)


def _batches_count(experiment: Any, path: str) -> bool:
    """Whether what is in a batch matters: in training, and where so many batches are evaluated."""
    return path.startswith("task.train_data.") or experiment.trainer.validation_steps != -1


# Why a value may change in a resume. What says which data are evaluated may not: decisions compare
# evaluations with each other.
LENGTH = Resume("a run may end earlier or later")
STEPS = Resume("the steps that follow from it are compared instead")
REPORTS = Resume("reports, commits and evaluations do not change weights")
EVALUATIONS = dataclasses.replace(
    REPORTS, unless="the run's own evaluations lower the learning rate", fails=_rate_drops
)
KEPT = Resume("what is kept, and where, does not change weights")
BEST = Resume("the best checkpoint is found again from the history")
ROLLBACKS = Resume("past rollbacks stay in the history")
DEVICES = Resume("the same batches, if not the same bits")
PACE = Resume("the same data at another pace")
BATCHES = Resume(
    "every example counts once, however they are batched",
    unless="it is of training data, or TrainerConfig.validation_steps limits evaluations",
    fails=_batches_count,
)
