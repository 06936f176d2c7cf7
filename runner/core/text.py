"""Formats numbers and lists for people. Standard library only."""

import math
import re
from collections.abc import Sequence
from typing import Any

_LONGEST_QUOTE = 80  # characters, enough to recognize the value
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def duration(seconds: float) -> str:
    """Formats a duration: `0:07`, `12:30`, `3:02:10`, `2 d 03:00`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 24:
        return f"{hours // 24} d {hours % 24:02}:{minute:02}"
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def seconds(written: str) -> int | None:
    """Parses a time such as `2:30:00`, or with days `1-12:00:00`. Returns None for other text."""
    found = re.fullmatch(r"(?:(\d{1,4})-)?(\d{1,4}):([0-5]\d):([0-5]\d)", written)
    if not found:
        return None
    days, hours, minutes, rest = (int(each or 0) for each in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def short(number: float) -> str:
    """Formats three digits and a prefix: `25.6 M`."""
    return _prefixed(number, "").rstrip()


def number(value: Any) -> str:
    """Formats four digits, a dash for None, the name of a non-finite number, or other text."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.4g}" if math.isfinite(value) and abs(value) < 1e6 else f"{value:.4g}"


def size(count: float) -> str:
    """Formats a number of bytes: `1.2 GB`."""
    return _prefixed(count, "B")


def _prefixed(number: float, unit: str) -> str:
    for prefix in ("", "k", "M", "G", "T"):
        if number < 999.5:
            return f"{number:.3g} {prefix}{unit}"
        number /= 1000
    return f"{number:.3g} P{unit}"


def counted(number: int, noun: str) -> str:
    """Formats a number with a noun: `1 evaluation`, `2,000 evaluations`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def some(words: Sequence[str], most: int = 3) -> str:
    """Joins the first words: `a, b, c and 2 more`."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def shortened(words: str, most: int = _LONGEST_QUOTE) -> str:
    """Shortens a long text: `first words ... (10,000,000 characters)`."""
    return words if len(words) <= most else f"{words[:most]} ... ({len(words):,} characters)"


def quoted(value: object, most: int = _LONGEST_QUOTE) -> str:
    """Returns the repr of a value for a message, shortened if it is long."""
    if isinstance(value, str):
        rest = f" ... ({len(value):,} characters)" if len(value) > most else ""
        return f"{value[:most]!r}{rest}"
    try:
        return shortened(repr(value), most)
    except (RecursionError, ValueError):  # too deep, or an int of too many digits
        return f"a {type(value).__name__}"


def visible(words: str) -> str:
    """Escapes the control characters in a text, except tabs and line ends.

    A terminal obeys them: a name in another person's file could clear the screen, or disguise a
    line as a different one.
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), words)


def parts(words: str) -> list[str]:
    """Splits a text at the commas that are outside brackets and quotes."""
    cuts, depth, quote = [-1], 0, ""
    for place, each in enumerate(words):
        if quote:
            quote = "" if each == quote else quote
        elif each in "'\"":
            quote = each
        elif each in "([{":
            depth += 1
        elif each in ")]}":
            depth -= 1
        elif each == "," and not depth:
            cuts.append(place)
    ends = [*cuts[1:], len(words)]
    return [words[cut + 1 : end] for cut, end in zip(cuts, ends, strict=True)]
