"""Checks the values of a dataclass that was read from a file. Standard library only."""

import dataclasses
import functools
from typing import Any

from runner.core import text

_BEYOND = 2**63
_ALLOWED: dict[Any, tuple[type, ...]] = {int: (int,), float: (float, int), str: (str,)}


def check(record: Any) -> None:
    """Checks the fields of a dataclass that are an int, a float or a string.

    Raises:
        TypeError: a value has another type, or is a number that is not finite or beyond 2^63.
    """
    for name, allowed in _checked(record.__class__):
        value: Any = getattr(record, name)
        kind = value.__class__
        if kind in allowed and (kind is str or -_BEYOND < value < _BEYOND):  # fast for most rows
            continue
        if not isinstance(value, allowed) or isinstance(value, bool):
            raise TypeError(f"{name} is {text.quoted(value)}")
        if not isinstance(value, str) and not abs(value) < _BEYOND:  # NaN, too
            raise TypeError(f"{name} is {text.quoted(value)}")


@functools.cache
def _checked(kind: type[Any]) -> list[tuple[str, Any]]:
    """Returns the names of the fields of a dataclass that are checked, and their types."""
    fields = dataclasses.fields(kind)
    return [(field.name, _ALLOWED[field.type]) for field in fields if field.type in _ALLOWED]
