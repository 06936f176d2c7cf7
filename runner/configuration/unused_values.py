"""Counts how often each value is read, and finds given values that are never read.

This is the only place that changes the class of objects. While reads are counted, each config has a
subclass that records reads and reports the original class as `__class__`. Model Garden looks tasks
up by this class, and dataclasses compare by it. Model Garden's code also copies configs, which
would break proxies or a table of objects.
"""

import collections
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config, oneof

from runner.configuration import fields, origins, printing, sections


def concerned(experiment: cfg.ExperimentConfig, *, evaluates: bool) -> dict[str, str]:
    """Returns where the values were set that training should read in its first loop, by path."""
    elsewhere = {"elsewhere"} if evaluates else {"elsewhere", "evaluation"}
    return {
        path: place
        for path, place in origins.of(experiment).items()
        if not any(field.read in elsewhere for field in fields.along(experiment, path))
    }


def replaced(
    given: base_config.Config, built: base_config.Config, path: str, places: Mapping[str, str]
) -> Iterator[str]:
    """Yields a line for each given value that building the task has replaced.

    Args:
        given: The config of the experiment.
        built: The task's copy.
        path: The path of both: `task`.
        places: Where each value was set, by path.
    """
    others = dict(sections.walk(built, path))
    for where, section in sections.walk(given, path):
        for name in _changed(section) if where in others else ():
            full, value = _join(where, name), vars(section)[name]
            other = vars(others[where]).get(name)
            if full in places and other != value:
                yield (
                    f"{places[full]}: {full} = {value!r} has no effect: building the model makes "
                    f"it {other!r}, which follows from another value"
                )


class Reads:
    """Counts the reads of all values.

    Exporting a config (`as_dict`, `dataclasses.replace`) reads all its values. It attributes reads
    of a copy to the original config.

    As a context manager, it restores the configs' classes at the end.

    Args:
        experiment: All values.
        places: Where each value to watch was set, by path (`trainer.train_steps`). Values that
            equal their class's default are ignored.
    """

    def __init__(self, experiment: base_config.Config, places: Mapping[str, str]) -> None:
        self.places = places
        self._given: set[str] = set()
        self._counts: collections.Counter[str] = collections.Counter()
        self._kinds: list[tuple[base_config.Config, type]] = []
        self._types: dict[str, str] = {}  # of the configs that choose, by path
        for path, section in list(sections.walk(experiment)):
            if isinstance(section, oneof.OneOfConfig):
                self._types[path] = vars(section)["type"]
            names = {name: _join(path, name) for name in _values(section)}
            if places.keys() & names.values():
                self._given |= places.keys() & {names[name] for name in _changed(section)}
            self._kinds.append((section, type(section)))
            kind = _counting(type(section), section.__class__, names, self._counts)
            _set_class(section, kind)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for section, kind in self._kinds:
            _set_class(section, kind)

    def unread(self) -> list[str]:
        """Returns the watched paths not read so far, in order.

        A binding that set the value in several configs is treated as read if one of them was.
        """
        read = {self._binding(path) for path in self.places.keys() & self._counts.keys()}
        left = self._given - self._counts.keys()
        return sorted(path for path in left if self._binding(path) not in read)

    def complaints(self) -> list[str]:
        """Returns a line for each unread value, but only one for a file's unchosen alternatives.

        A file that sets values for several alternatives offers a menu, as `questions_tiny.gin`
        does. A flag asks for one of them, so it always gets a separate line.
        """
        menus = collections.defaultdict(list)
        for path in self.unread():
            file, _, line = self.places[path].rpartition(":")
            above = next(self._not_chosen(path), "") if line.isdecimal() else ""
            menus[(file, above) if above else (path, "")].append(path)
        return [self._complaint(file, above, paths) for (file, above), paths in menus.items()]

    def _complaint(self, file: str, above: str, paths: list[str]) -> str:
        if len(paths) == 1:
            return f"{self.places[paths[0]]}: {paths[0]} had no effect: it was never read"
        names = dict.fromkeys(path.removeprefix(f"{above}.").partition(".")[0] for path in paths)
        return (
            f"{file}: {above}.type = {self._types[above]!r}: {len(paths)} values for "
            f"{', '.join(names)} had no effect: they were never read"
        )

    def _not_chosen(self, path: str) -> Iterator[str]:
        """Yields the paths of enclosing configs that chose another alternative, outermost first."""
        for above, chosen in self._types.items():
            if path.startswith(f"{above}.") and not path.startswith(f"{above}.{chosen}."):
                yield above

    def _binding(self, path: str) -> tuple[str, str]:
        """Returns where the value was set, and its name."""
        return self.places[path], path.rpartition(".")[2]

    def counts(self) -> dict[str, int]:
        """Returns how often each value was read so far, by path, without unread values."""
        return dict(sorted(self._counts.items()))


class Report:
    """An action that reports the values not read by the end of the first loop.

    Args:
        reads: Counts the reads.
        note: Called with each line about them.
        record: Called with their paths.
    """

    def __init__(
        self,
        reads: Reads,
        *,
        note: Callable[[str], object],
        record: Callable[[list[str]], object],
    ) -> None:
        self._reads = reads
        self._note = note
        self._record = record
        self._done = False

    def __call__(self, logs: Mapping[str, Any]) -> None:
        """Reports after the first loop only."""
        del logs
        if self._done:
            return
        self._done = True
        for line in self._reads.complaints():
            self._note(line)
        self._record(self._reads.unread())


def _counting(
    kind: type[base_config.Config],
    shown: type,
    names: Mapping[str, str],
    counts: collections.Counter[str],
) -> type[base_config.Config]:
    """Returns a subclass of `kind` that counts the reads of `names` and reports `shown`.

    Args:
        kind: The config's class.
        shown: The class to report as `__class__`.
        names: The path of each value, by its name.
        counts: The reads so far, by path.
    """

    class Counting(kind):
        def __getattribute__(self, name: str) -> Any:
            if name in names:
                counts[names[name]] += 1
            return super().__getattribute__(name)

        def as_dict(self) -> dict[str, Any]:
            counts.update(names.values())
            return dict(super().as_dict())

        @property  # type: ignore[misc]
        def __class__(self) -> type:
            return shown

    for name in ("__name__", "__qualname__", "__module__"):
        setattr(Counting, name, getattr(kind, name))
    return Counting


def _values(section: base_config.Config) -> Iterator[str]:
    """Yields the names of a config's values that are not configs."""
    for name, value in vars(section).items():
        parts = value if isinstance(value, (list, tuple)) else [value]
        if name not in section.RESERVED_ATTR and not any(
            isinstance(part, base_config.Config) for part in parts
        ):
            yield name


def _changed(section: base_config.Config) -> Iterator[str]:
    """Yields the names of values, not configs, that differ from the defaults."""
    default = printing.default_of(section)
    known = vars(default) if default is not None else {}
    for name in _values(section):
        if name not in known or known[name] != vars(section)[name]:
            yield name


def _set_class(section: base_config.Config, kind: type) -> None:
    """Bypasses the config's lock and its `__class__` property."""
    vars(object)["__class__"].__set__(section, kind)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}".removeprefix(".")
