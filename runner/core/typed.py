"""Checks the values of a dataclass that was read from a file. Standard library only."""

import dataclasses
from typing import Any

from runner.core import text

_BEYOND = 2**63
_ALLOWED: dict[Any, tuple[type, ...]] = {int: (int,), float: (int, float), str: (str,)}


def check(record: Any) -> None:
    """Checks the fields of a dataclass that are an int, a float or a string.

    Raises:
        TypeError: a value has another type, or is a number that is not finite or beyond 2^63.
    """
    for field in dataclasses.fields(record):
        value, allowed = getattr(record, field.name), _ALLOWED.get(field.type)
        if allowed and (not isinstance(value, allowed) or isinstance(value, bool)):
            raise TypeError(f"{field.name} is {text.quoted(value)}")
        if allowed and not isinstance(value, str) and not abs(value) < _BEYOND:  # NaN, too
            raise TypeError(f"{field.name} is {text.quoted(value)}")
