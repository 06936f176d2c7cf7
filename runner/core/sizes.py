"""How much a text that somebody else may have written can hold, so that reading it ends soon.

A few lines of YAML can stand for billions of values, and thousands of brackets end Python's
recursion. Nothing that a person writes comes near these limits. Standard library only.
"""

from pathlib import Path
from typing import Any

LONGEST = 500_000
"""Characters of a file or flag that sets values."""

LONGEST_STORED = 1 << 26
"""Bytes of a file of JSON or YAML in a run's folder."""

MOST = 50_000
"""Values in a file or flag that sets values, with those that aliases and macros stand for."""

MOST_STORED = 2_000_000
"""Values in a file of YAML in a run's folder."""

DEEPEST = 100
"""Sections, lists and brackets within each other, and files that include each other."""


class TooLargeError(ValueError):
    """A text has more than is read; the message says how much that is."""


def read(path: Path, encoding: str = "utf-8") -> str:
    """The text of a file that sets values.

    Raises:
        TooLargeError: it is too long.
        OSError: it cannot be read.
        UnicodeDecodeError: it is not text.
    """
    with path.open(encoding=encoding) as file:
        words = file.read(LONGEST + 1)
    check_length(words)
    return words


def check_length(words: str, most: int = LONGEST) -> None:
    """Raises TooLargeError if a text is too long."""
    if len(words) > most:
        raise TooLargeError(f"longer than {most:,} characters")


def check_written(words: str) -> None:
    """Raises TooLargeError if a text is too long, or has too many parts to be parsed soon."""
    check_length(words)
    check_count(words.count(",") + words.count("\n"))
    check_brackets(words)


def check_count(number: int, most: int = MOST) -> None:
    """Raises TooLargeError if there are too many values."""
    if number > most:
        raise TooLargeError(f"more than {most:,} values")


def check_depth(depth: int) -> None:
    """Raises TooLargeError if something is nested too deeply."""
    if depth > DEEPEST:
        raise TooLargeError(f"nested more than {DEEPEST} deep, or in itself")


def check_brackets(words: str) -> None:
    """Raises TooLargeError for so many open brackets that a parser would take minutes.

    Those in strings count, too, so the limit is far above that of values.
    """
    if words.count("[") + words.count("{") + words.count("(") <= 10 * DEEPEST:
        return
    depth = 0
    for each in words:
        if each in "[{(":
            depth += 1
            check_depth(depth // 10)
        elif each in "]})":
            depth = max(depth - 1, 0)


def check(value: Any, most: int = MOST) -> None:
    """Raises TooLargeError if a value of lists and dicts has too many parts, or is too deep.

    What is shared, as by aliases in YAML, counts as often as it would be printed.
    """
    _measure(value, 0, most, {})


def _measure(
    value: Any, depth: int, most: int, known: dict[int, tuple[int, int]]
) -> tuple[int, int]:
    """The number of values in a value, and its height."""
    if isinstance(value, dict):
        parts: Any = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set):
        parts = value
    else:
        return 1, 0
    check_depth(depth)
    if id(value) not in known:
        count, height = 1, 0
        for part in parts:
            inner = _measure(part, depth + 1, most, known)
            count, height = count + inner[0], max(height, inner[1] + 1)
            check_count(count, most)
        known[id(value)] = count, height
    check_depth(depth + known[id(value)][1])
    return known[id(value)]
