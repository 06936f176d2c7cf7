"""Closes objects without hiding an earlier error. Standard library only."""

import contextlib
from collections.abc import Iterator
from typing import Protocol, TypeVar


class Closes(Protocol):
    """Anything with a `close` method."""

    def close(self) -> None:
        """Closes it."""


Thing = TypeVar("Thing", bound=Closes)


@contextlib.contextmanager
def closing(thing: Thing) -> Iterator[Thing]:
    """Closes `thing` at the end, as `contextlib.closing` does.

    If the block raises, an error from closing is dropped. Once a disk rejects writes, everything
    fails in turn, and the first failure is the one to report.
    """
    try:
        yield thing
    except BaseException:
        with contextlib.suppress(Exception):
            thing.close()
        raise
    thing.close()


def close(*things: Closes | None) -> None:
    """Closes all objects in order, even if closing one of them raises."""
    with contextlib.ExitStack() as stack:
        for thing in reversed(things):
            if thing is not None:
                stack.callback(thing.close)
