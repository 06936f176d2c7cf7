"""Formats numbers and lists for people. Standard library only."""

import re
from collections.abc import Sequence


def duration(seconds: float) -> str:
    """`0:07`, `12:30`, `3:02:10`, `2 d 03:00`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 24:
        return f"{hours // 24} d {hours % 24:02}:{minute:02}"
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def seconds(written: str) -> int | None:
    """The seconds of a time such as `2:30:00` or `1-12:00:00`, with days; None for other text."""
    found = re.fullmatch(r"(?:(\d{1,4})-)?(\d{1,4}):([0-5]\d):([0-5]\d)", written)
    if not found:
        return None
    days, hours, minutes, rest = (int(each or 0) for each in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def short(number: float) -> str:
    """Three digits and a prefix: `25.6 M`."""
    return _prefixed(number, "").rstrip()


def size(count: float) -> str:
    """A number of bytes: `1.2 GB`."""
    return _prefixed(count, "B")


def _prefixed(number: float, unit: str) -> str:
    for prefix in ("", "k", "M", "G", "T"):
        if number < 999.5:
            return f"{number:.3g} {prefix}{unit}"
        number /= 1000
    return f"{number:.3g} P{unit}"


def counted(number: int, noun: str) -> str:
    """`1 evaluation`, `2,000 evaluations`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def some(words: Sequence[str], most: int = 3) -> str:
    """`a, b, c and 2 more`."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more
