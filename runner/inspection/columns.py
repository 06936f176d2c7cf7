"""The columns of a table of runs: their meanings, and which ones matter. No TensorFlow."""

import collections
import datetime
import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from runner.core import text
from runner.core.spelling import did_you_mean
from runner.errors import ConfigError
from runner.inspection import resolved
from runner.inspection.rows import Row
from runner.run_directory.params import Values

Value = Callable[[Row], Any]
"""Maps a row to the value in a column, or None if it has none."""

FACTS: Mapping[str, Value] = {
    "run": lambda row: row.name,
    "state": lambda row: row.state,
    "reason": lambda row: row.reason,
    "step": lambda row: row.step,
    "seconds": lambda row: row.seconds,
    "steps_per_second": lambda row: row.rate,
    "goodput": lambda row: row.goodput,
    "started": lambda row: None if row.started is None else when(row.started),
    "starts": lambda row: row.starts,
    "evaluations": lambda row: row.evaluations,
    "best_step": lambda row: row.best_step,
    "last_step": lambda row: row.last_step,
    "host": lambda row: row.host,
    "task": lambda row: row.task,
    "study": lambda row: row.study,
    "trial": lambda row: row.number,
    "seed": lambda row: row.seed,
    "fold": lambda row: row.fold,
    "tags": lambda row: row.tags,
    "notes": lambda row: row.notes,
}
"""The columns that every table has."""

METRICS: Mapping[str, Callable[[Row], Mapping[str, float]]] = {
    "best": lambda row: row.best,
    "last": lambda row: row.last,
    "test": lambda row: row.test,
    "train": lambda row: row.train,
}
"""The groups of metrics, in columns such as `best.accuracy`."""


def when(seconds: float) -> str:
    """Formats a time as text that sorts: `2026-11-23T01:40:05Z`."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


LEARNING_RATE = "learning_rate"
"""The column of the scheduled learning rate, whose path depends on the kind of schedule."""

_RATE = re.compile(r"(?:.*\.)?learning_rate\.(?:\w+\.(?:initial_)?learning_rate|type)")
_OF_A_PERSON = ("run.tags", "run.notes")  # do not affect the run


class Columns:
    """The columns that the runs of a table have.

    Args:
        rows: The runs.

    Attributes:
        special: The paths of configuration values that differ between runs, in file order.
        short: A short name for each of them that no other column has.
        rates: The paths of the learning rate, if the runs have several kinds of schedules.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._configurations = [row.configuration for row in rows if row.configuration]
        self._paths: list[str] | None = None
        self.metrics = {
            at: list(dict.fromkeys(name for row in rows for name in of(row)))
            for at, of in METRICS.items()
        }
        differing = resolved.differing(self._configurations)
        self.special = [path for path in differing if not path.startswith(_OF_A_PERSON)]
        self.rates = self._rates()
        taken = {*FACTS, *METRICS, *self.metrics["best"], *self.metrics["last"]}
        taken |= {LEARNING_RATE} if self.rates else set()
        self.short = dict(_shortened(self.special, taken - {"seed"}))

    @property
    def shown(self) -> list[str]:
        """The special columns, with a single one for the learning rates of all schedules."""
        if not self.rates:
            return self.special
        kinds = {*self.rates}
        first = next(n for n, path in enumerate(self.special) if _RATE.fullmatch(path))
        before, after = self.special[:first], self.special[first:]
        return [*before, LEARNING_RATE, *(path for path in after if path not in kinds)]

    def _rates(self) -> list[str]:
        if not any(_RATE.fullmatch(path) for path in self.special):
            return []
        found = [path for path in self.paths if _RATE.fullmatch(path)]
        values = [path for path in found if not path.endswith(".type")]
        return values if len(values) > 1 else []

    @property
    def paths(self) -> list[str]:
        """The path of every configuration value."""
        if self._paths is None:
            self._paths = list(resolved.paths(self._configurations))
        return self._paths

    def expanded(self, names: Iterable[str]) -> list[str]:
        """Replaces patterns such as `best.*` with the columns that match.

        Raises:
            ConfigError: a pattern has no match.
        """
        found: list[str] = []
        for name in names:
            if not set("*?") & set(name):
                found.append(name)
                continue
            known = [*FACTS, *self._metric_names(), *self.paths]
            if not (matching := fnmatch.filter(known, name)):
                raise ConfigError(f"--columns={name}: no column of these runs matches it")
            found += matching
        return list(dict.fromkeys(found))

    def value(self, name: str, flag: str) -> Value:
        """Returns the function that reads a column from a row.

        Args:
            name: A column. `best.x`, `last.x`, `test.x` and `train.x` are the metric `x` at the
                best, last and final evaluation and in training. `x` alone is the metric at the best
                evaluation, or else at the last. Other names are a configuration path or its end.
            flag: The flag that it comes from, for the message.

        Raises:
            ConfigError: these runs have no such column, or several.
        """
        if name in FACTS:
            return FACTS[name]
        if name == LEARNING_RATE and self.rates:
            return lambda row: _first(row.configuration, self.rates)
        at, _, metric = name.partition(".")
        if metric in self.metrics.get(at, ()):
            of = METRICS[at]
            return lambda row: of(row).get(metric)
        if any(name in self.metrics[at] for at in ("best", "last")):
            return lambda row: row.best.get(name, row.last.get(name))
        paths = self._matching(name)
        if not paths and any(name in self.metrics[at] for at in ("test", "train")):
            return lambda row: row.test.get(name, row.train.get(name))
        if not paths:
            raise ConfigError(f"--{flag}: {name!r} is not a column of these runs{self._near(name)}")
        if len(paths) > 1 and (several := self._ambiguous(paths)):
            raise ConfigError(
                f"--{flag}: {name!r} may be {' or '.join(several)}; write one of them out"
            )
        return lambda row: _first(row.configuration, paths)

    def _metric_names(self) -> list[str]:
        return [f"{at}.{name}" for at, names in self.metrics.items() for name in names]

    def _matching(self, name: str) -> list[str]:
        """Returns the paths that match a name: itself, by short name, or by their end."""
        if name in self.paths:
            return [name]
        if short := [path for path, each in self.short.items() if each == name]:
            return short
        return [path for path in self.paths if path.endswith(f".{name}")]

    def _ambiguous(self, paths: Sequence[str]) -> list[str]:
        """Returns the paths that one run has at once with different values, or []."""
        for values in {id(each): each for each in self._configurations}.values():
            found = [path for path in paths if resolved.get(values, path) is not resolved.ABSENT]
            if len({repr(resolved.get(values, path)) for path in found}) > 1:
                return found
        return []

    def _near(self, name: str) -> str:
        ends = {path.rpartition(".")[2] for path in self.paths}
        metrics = {each for names in self.metrics.values() for each in names}
        meant = did_you_mean(name, [*FACTS, *metrics, *self._metric_names(), *ends])
        some = text.some([*self._metric_names(), *FACTS])
        return meant or f"; there are {some}, and others: --columns='*' shows all"


def _first(values: Values, paths: Sequence[str]) -> Any:
    """Returns the value at the first path that the configuration has, or None."""
    found = (resolved.get(values, path) for path in paths)
    return next((value for value in found if value is not resolved.ABSENT), None)


def _shortened(paths: Sequence[str], taken: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Yields each path with its shortest descriptive end that no other path has."""
    taken = set(taken)
    ends: dict[str, collections.Counter[str]] = {}
    for path in paths:
        for end in _ends(path):
            ends.setdefault(end, collections.Counter())[path] += 1
    for path in paths:
        alone = (end for end in _ends(path) if len(ends[end]) == 1 and end not in taken)
        yield path, next(alone, path)


def _ends(path: str) -> list[str]:
    """Returns `adam.beta`, ... for `optimizer.adam.beta`, shortest first, but not just `type`."""
    parts = path.split(".")
    ends = [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]
    return ends[1:] if parts[-1] in ("type", "name") and len(ends) > 1 else ends
