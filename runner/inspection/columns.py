"""The columns of a table of runs: what a name means, which ones say something. No TensorFlow."""

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
from runner.run_folder.params import Values

Value = Callable[[Row], Any]
"""From a row to what stands in a column; None if it has nothing there."""

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
"""The sections of metrics: `best.accuracy` is a column."""


def when(seconds: float) -> str:
    """A time as text that sorts: `2026-11-23T01:40:05Z`."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


LEARNING_RATE = "learning_rate"
"""The column of the scheduled learning rate, which each kind of schedule has elsewhere."""

_RATE = re.compile(r"(?:.*\.)?learning_rate\.(?:\w+\.(?:initial_)?learning_rate|type)")
_OF_A_PERSON = ("run.tags", "run.notes")  # not what makes a run what it is


class Columns:
    """The columns that the runs of a table have.

    Args:
        rows: The runs.

    Attributes:
        special: The paths of the configuration's values that are not the same in all runs, in the
            order of the file.
        short: For each of these a short name, which no other column has.
        rates: The paths of the learning rate, if the runs have schedules of several kinds.
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
        """The special columns, with one for the learning rate of all kinds of schedules."""
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
        """The path of every value of the configurations."""
        if self._paths is None:
            self._paths = list(resolved.paths(self._configurations))
        return self._paths

    def expanded(self, names: Iterable[str]) -> list[str]:
        """Names of columns, with those that patterns such as `best.*` stand for.

        Raises:
            ConfigError: nothing matches a pattern.
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
        """What a name means.

        Args:
            name: A column; `best.x`, `last.x`, `test.x`, `train.x`, a metric at the best, last and
                final evaluation and in training; `x`, the same at the best evaluation, else at the
                last; a path of the configuration, or the end of one.
            flag: Which flag it comes from, for the message.

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
        """The paths that a name may mean: that, one with this short name, or with this end."""
        if name in self.paths:
            return [name]
        if short := [path for path, each in self.short.items() if each == name]:
            return short
        return [path for path in self.paths if path.endswith(f".{name}")]

    def _ambiguous(self, paths: Sequence[str]) -> list[str]:
        """Of several paths those that one run has at once, with values that are not the same."""
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
    """The value at the first of the paths that the configuration has; None if it has none."""
    found = (resolved.get(values, path) for path in paths)
    return next((value for value in found if value is not resolved.ABSENT), None)


def _shortened(paths: Sequence[str], taken: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Each path with its shortest end that no other path has and that says what it is."""
    taken = set(taken)
    ends: dict[str, collections.Counter[str]] = {}
    for path in paths:
        for end in _ends(path):
            ends.setdefault(end, collections.Counter())[path] += 1
    for path in paths:
        alone = (end for end in _ends(path) if len(ends[end]) == 1 and end not in taken)
        yield path, next(alone, path)


def _ends(path: str) -> list[str]:
    """`adam.beta`, ... for `optimizer.adam.beta`: the shortest first, which may not be `type`."""
    parts = path.split(".")
    ends = [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]
    return ends[1:] if parts[-1] in ("type", "name") and len(ends) > 1 else ends
