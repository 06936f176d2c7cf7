"""Properties of a configuration's field, declared at the field itself.

    patience: int = setting(5, "Evaluations in a row without a gain.", allowed=COUNT, resume=LENGTH)

Model Garden's fields cannot be annotated. `fields` lists their properties.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import tf_keras

from runner.core import spelling, text

METADATA = "setting"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclasses.dataclass(frozen=True)
class Allowed:
    """The values that a field may have.

    Attributes:
        needs: The message for a value that is not allowed: `must be 1 or more`.
        mistake: Returns the message for a value: `needs` or a longer one, or "" if it is allowed.
    """

    needs: str
    mistake: Callable[[Any], str]


@dataclasses.dataclass(frozen=True)
class Resume:
    """Why a resumed run is still the same experiment although a value has changed.

    Attributes:
        why: The reason.
        unless: The condition, in words, under which the reason does not apply.
        fails: Returns whether that condition holds, given the experiment and the value's path.
    """

    why: str
    unless: str = ""
    fails: Callable[[Any, str], bool] = lambda *_: False


@dataclasses.dataclass(frozen=True)
class Setting:
    """The properties of a field.

    Attributes:
        help: Its meaning. Empty for Model Garden's fields, which their class documents.
        allowed: Its range or choices. None for all values of its type.
        resume: Why the field and everything below it may change when a run is resumed. None if they
            may not, so a new field is safe by default.
        read: The place where a given value is read: in the first loop of a run that trains, in it
            only if the run also evaluates, or `elsewhere` (other modes, later). Decides what may be
            reported as unused.
        better: Whether higher or lower values are better for the metrics that the field names.
        stands_for: For a field in epochs, the path of the step-based field that it replaces.
    """

    help: str = ""
    allowed: Allowed | None = None
    resume: Resume | None = None
    read: Literal["training", "evaluation", "elsewhere"] = "training"
    better: Literal["", "higher", "lower"] = ""
    stands_for: str = ""


def setting(default: Any, help: str, **facts: Any) -> Any:
    """Returns a dataclass field with its properties.

    Args:
        default: Its default, or the class of a nested config.
        help: Its meaning.
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
    """Allows a range of numbers.

    Args:
        at_least: The inclusive lower bound.
        above: The exclusive lower bound.
        at_most: The inclusive upper bound.
        below: The exclusive upper bound.
        also: Further values with their meanings: `{0: "for no limit"}`.
    """
    also = also or {}
    bounds = {"{} or more": at_least, "above {}": above, "at most {}": at_most, "below {}": below}
    said = " and ".join(text.format(n) for text, n in bounds.items() if n is not None)
    needs = ", or ".join([f"must be {said}", *(f"{n!r} {what}" for n, what in also.items())])

    def fits(value: Any) -> bool:  # false for NaN
        return isinstance(value, int | float) and (
            (at_least is None or value >= at_least)
            and (above is None or value > above)
            and (at_most is None or value <= at_most)
            and (below is None or value < below)
        )

    return Allowed(needs, lambda value: "" if value in also or fits(value) else needs)


def one_of(*choices: str) -> Allowed:
    """Allows one of several strings."""
    needs = f"must be {' or '.join(map(repr, choices))}"

    def mistake(value: Any) -> str:
        if value in choices:
            return ""
        return f"{needs}{spelling.did_you_mean(str(value), choices)}"

    return Allowed(needs, mistake)


def some_of(*choices: str, or_none: bool = False) -> Allowed:
    """Allows one or more of several strings, each once, and with `or_none` also none."""
    needs = f"must be a tuple of {', '.join(map(repr, choices))}, each at most once"

    def mistake(value: Any) -> str:
        unknown = [each for each in value if each not in choices]
        if unknown:
            return f"{needs}{spelling.did_you_mean(str(unknown[0]), choices)}"
        return "" if (value or or_none) and len(set(value)) == len(value) else needs

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


def _time(value: str) -> str:
    return "" if not value or text.seconds(value) else _TIMED


def _all(pattern: str, needs: str) -> "Allowed":
    """Allows strings that all match a pattern."""
    form = re.compile(pattern)

    def mistake(value: Sequence[str]) -> str:
        return "" if all(form.fullmatch(each) for each in value) else needs

    return Allowed(needs, mistake)


_TIMED = "must be a time such as '2:30:00', or '1-12:00:00' with days"
_NAMED = "must start with a letter or digit, and contain only letters, digits, '-', '_' and '.'"
_PATTERN = "must be a regular expression"
_INITIALIZER = "must name one of tf_keras.initializers"

COUNT = number(at_least=1)
SIZE = number(at_least=0)
NAME = Allowed(_NAMED, _name)
OPTIONAL_NAME = Allowed(
    _NAMED.replace("must", "must be empty, or", 1), lambda value: value and _name(value)
)
TIME = Allowed(f"{_TIMED}, or empty", _time)
VARIABLES = _all(
    r"[A-Za-z_]\w*(=[^\0\n]*)?", "must be a tuple of 'NAME=value' or 'NAME', without line breaks"
)
VOLUMES = _all(r"[a-z0-9.-]+:/[^:\n]*", "must be a tuple of 'claim:/path'")
LABELS = _all(r"[\w./-]+=[\w.-]*", "must be a tuple of 'label=value'")
PATTERN = Allowed(_PATTERN, _pattern)
INITIALIZER = Allowed(f"{_INITIALIZER}, or be empty", _initializer)


def _rate_drops(experiment: Any, path: str) -> bool:
    """Returns whether the run's own evaluations lower the learning rate."""
    del path
    plateau = experiment.run.plateau
    return bool((plateau.higher or plateau.lower) and not plateau.source)


def _batches_count(experiment: Any, path: str) -> bool:
    """Returns whether batch contents matter, in training or if the number of batches is limited."""
    limited = experiment.trainer.validation_steps != -1 or experiment.run.limit_evaluation
    return path.startswith("task.train_data.") or bool(limited)


# Why a value may change when a run is resumed. The choice of evaluation data may not change,
# because decisions compare evaluations with each other.
LENGTH = Resume("affects only the length of the run")
STEPS = Resume("the resulting steps are compared instead")
REPORTS = Resume("does not affect weights")
EVALUATIONS = dataclasses.replace(
    REPORTS, unless="the run's own evaluations lower the learning rate", fails=_rate_drops
)
KEPT = Resume("affects only what is kept and where")
BEST = Resume("the best checkpoint is selected again")
ROLLBACKS = Resume("affects only later rollbacks")
RESUMES = Resume("affects only later resumes")
DEVICES = Resume("same batches, but not always bit-exact")
NOTES = Resume("only descriptive")
PACE = Resume("affects only speed")
BATCHES = Resume(
    "metrics do not depend on the batch size",
    unless="the data are for training, or TrainerConfig.validation_steps or "
    "RunConfig.limit_evaluation is set",
    fails=_batches_count,
)
