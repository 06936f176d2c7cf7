"""Several objectives of a study, and limits on its results. No TensorFlow.

A configuration dominates another one if it is at least as good in every objective and better in
one. The Pareto front is the configurations within the limits that no other one dominates.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner.core import files, layout
from runner.errors import ConfigError

FORMATS = ("saved_model", "tflite", "tflite_float16", "tflite_int8", "onnx")
MEASURES = ("bytes", "milliseconds")
_LIMIT = re.compile(r"\s*(?P<name>\S+?)\s*(?P<sign><=|>=)\s*(?P<bound>\S+)\s*")


class Goal(NamedTuple):
    """An objective.

    Attributes:
        name: A metric, or a measure of the exported model such as `tflite/bytes`.
        higher: Whether higher is better.
    """

    name: str
    higher: bool

    def worse(self, value: float) -> float:
        """Returns `value` with its sign flipped if needed, so that lower is better."""
        return -value if self.higher else value


class Limit(NamedTuple):
    """A limit on a metric or a measure.

    Attributes:
        name: As for `Goal`.
        bound: The last value that is allowed.
        is_upper: Whether higher values are not allowed.
    """

    name: str
    bound: float
    is_upper: bool

    def excess(self, value: float) -> float:
        """Returns by how much a value exceeds the limit, negative or 0 within it."""
        return value - self.bound if self.is_upper else self.bound - value

    def __str__(self) -> str:
        return f"{self.name} {'<=' if self.is_upper else '>='} {self.bound:g}"


class Goals(NamedTuple):
    """What a study optimizes.

    Attributes:
        objectives: The metric that chooses checkpoints first.
        limits: The limits.
    """

    objectives: tuple[Goal, ...] = ()
    limits: tuple[Limit, ...] = ()

    @property
    def are_several(self) -> bool:
        """Whether there is more than one objective."""
        return len(self.objectives) > 1

    @property
    def names(self) -> list[str]:
        """The names of all metrics and measures."""
        named = [each.name for each in self.objectives] + [each.name for each in self.limits]
        return list(dict.fromkeys(named))

    @property
    def measures(self) -> list[str]:
        """Those names that are measures of exported models."""
        return list(filter(is_measure, self.names))

    @property
    def formats(self) -> list[str]:
        """The formats to export, because their files are measured."""
        return list(dict.fromkeys(name.partition("/")[0] for name in self.measures))

    @property
    def facts(self) -> dict[str, Any]:
        """The entries for trial.json. Empty for one objective without limits."""
        if not self.are_several and not self.limits:
            return {}
        return {
            "objectives": list(map(list, self.objectives)),
            "limits": list(map(list, self.limits)),
        }

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> "Goals":
        """Returns the goals that trial.json contains."""
        return cls(
            tuple(Goal(*each) for each in facts.get("objectives", ())),
            tuple(Limit(*each) for each in facts.get("limits", ())),
        )

    def are_known(self, values: Mapping[str, float]) -> bool:
        """Returns whether there is a finite value for every objective and limit."""
        return all(math.isfinite(values.get(name, math.nan)) for name in self.names)

    def exceeded(self, values: Mapping[str, float]) -> list[Limit]:
        """Returns the limits that known values exceed."""
        known = [each for each in self.limits if each.name in values]
        return [each for each in known if each.excess(values[each.name]) > 0]

    def front(self, rows: Sequence[Mapping[str, float]]) -> list[int]:
        """Returns the indices of the rows on the Pareto front, the best first objective first.

        Args:
            rows: The values of each configuration by name. Rows without all of them are left out.
        """
        costs = {
            number: [each.worse(_compared(each.name, row[each.name])) for each in self.objectives]
            for number, row in enumerate(rows)
            if self.are_known(row) and not self.exceeded(row)
        }
        free = [
            number
            for number, own in costs.items()
            if not any(_dominates(other, own) for other in costs.values())
        ]
        return sorted(free, key=lambda number: costs[number])


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    pairs = [*zip(one, other, strict=True)]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def _compared(name: str, value: float) -> float:
    """Returns a value as it is compared: measures with three digits, as smaller ones are noise."""
    return float(f"{value:.3g}") if is_measure(name) else value


def is_measure(name: str) -> bool:
    """Returns whether this is a measure of an exported model, and not a metric."""
    kind, _, what = name.partition("/")
    return kind in FORMATS and what in MEASURES


def parse(objectives: Iterable[str], limits: Iterable[str], main: Goal | None) -> Goals:
    """Parses the texts of StudyConfig.

    Args:
        objectives: Such as `tflite/bytes` or `f1:higher`.
        limits: Such as `tflite/milliseconds <= 2`.
        main: The metric that chooses checkpoints, or None if there is none.

    Raises:
        ConfigError: a text is not valid, or there is no such metric.
    """
    further = [_goal(each) for each in objectives]
    if further and main is None:
        raise ConfigError(
            "StudyConfig.objectives needs TrainerConfig.best_checkpoint_eval_metric, which is the "
            "first objective"
        )
    every = [*([main] if main else []), *further]
    names = [each.name for each in every]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"StudyConfig.objectives: {twice[0]!r} is an objective more than once "
            "(TrainerConfig.best_checkpoint_eval_metric is the first)"
        )
    return Goals(tuple(every), tuple(map(_limit, limits)))


def _goal(text: str) -> Goal:
    name, _, direction = text.partition(":")
    name, direction = name.strip(), direction.strip()
    if is_measure(name) and not direction:
        return Goal(name, higher=False)
    if not name or direction not in ("higher", "lower"):
        raise ConfigError(
            f"StudyConfig.objectives: {text!r}: expected a metric with its better direction, such "
            "as 'f1:higher', or a measure of an exported model, such as 'tflite/bytes' (formats: "
            f"{', '.join(FORMATS)}; measures: {', '.join(MEASURES)})"
        )
    return Goal(name, direction == "higher")


def _limit(text: str) -> Limit:
    found = _LIMIT.fullmatch(text)
    try:
        bound = float(found["bound"]) if found else math.nan
    except ValueError:
        bound = math.nan
    if not found or not math.isfinite(bound):
        raise ConfigError(
            f"StudyConfig.limits: {text!r}: expected a name, <= or >=, and a number, such as "
            "'tflite/milliseconds <= 2'"
        )
    return Limit(found["name"], bound, found["sign"] == "<=")


def measures(run: Path) -> dict[str, float]:
    """Returns the measures of the models that a run has exported, the newest of each format.

    Rejected exports are left out.
    """
    found: dict[str, float] = {}
    for kind in FORMATS:
        versions = (run / layout.EXPORT / kind).glob(f"*/{layout.EXPORT_FACTS}")
        whole = [path for path in versions if path.parent.name.isdigit()]  # not one being written
        for path in sorted(whole, key=lambda each: int(each.parent.name)):
            facts = files.read_json(path) or {}
            if facts.get("accepted"):
                found |= {f"{kind}/{name}": facts[name] for name in MEASURES if facts.get(name)}
    return found
