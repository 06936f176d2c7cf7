"""Which given values nothing has read: settings that had no effect.

While it is counted, each section is of a subclass of its class that notes what is read. To
`isinstance`, `__class__` and whoever looks up a task by its configuration's class, it is the same.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from official.modeling.hyperparams import base_config

from runner import gin_tree


class Reads:
    """Counts the reads of values that were given.

    A section that is exported whole (`as_dict`, `dataclasses.replace`) is read whole. A copy of a
    section counts as the section.

    Args:
        experiment: All values.
        given: The paths (`trainer.train_steps`) of those that matter.
    """

    def __init__(self, experiment: base_config.Config, given: Iterable[str]) -> None:
        self._given = frozenset(given)
        self._read: set[str] = set()
        self._counts = True
        for path, section in gin_tree.sections(experiment):
            fields = {name for name in vars(section) if _join(path, name) in self._given}
            if fields:
                kind = _counting(type(section), path, fields, self._note)
                object.__setattr__(section, "__class__", kind)

    def unread(self) -> list[str]:
        """The paths that nothing has read so far, in order."""
        return sorted(self._given - self._read)

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Inside, reads do not count: printing and saving are no use of a value."""
        before, self._counts = self._counts, False
        try:
            yield
        finally:
            self._counts = before

    def _note(self, path: str) -> None:
        if self._counts:
            self._read.add(path)


def _counting(
    kind: type[base_config.Config], path: str, fields: set[str], note: Callable[[str], None]
) -> type[base_config.Config]:
    """A subclass of `kind` that notes the reads of `fields`, and passes for `kind`."""

    class Counting(kind):
        def __getattribute__(self, name: str) -> Any:
            if name in fields:
                note(_join(path, name))
            return super().__getattribute__(name)

        def as_dict(self) -> dict[str, Any]:
            for name in fields:
                note(_join(path, name))
            return dict(super().as_dict())

        @property  # type: ignore[misc]
        def __class__(self) -> type:
            return kind

    Counting.__name__, Counting.__qualname__ = kind.__name__, kind.__qualname__
    return Counting


def _join(path: str, name: str) -> str:
    return f"{path}.{name}".removeprefix(".")
