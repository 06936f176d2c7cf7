"""Limits on text that another person may have written, so that reading it ends soon.

A few lines of YAML can represent billions of values, and thousands of brackets exceed Python's
recursion limit. No text written by hand comes near these limits. Standard library only.
"""

from pathlib import Path
from typing import Any

LONGEST = 500_000
"""Characters in a file or flag that sets values."""

LONGEST_STORED = 1 << 26
"""Bytes in a JSON or YAML file in a run's directory."""

MOST = 50_000
"""Values in a file or flag that sets values, including those that aliases and macros expand to."""

MOST_STORED = 2_000_000
"""Values in a YAML file in a run's directory."""

DEEPEST = 100
"""Depth of nested mappings, lists and brackets, and of files that include each other."""


class TooLargeError(ValueError):
    """A text exceeds a limit. The message states the limit."""


def read(path: Path, encoding: str = "utf-8") -> str:
    """Returns the text of a file that sets values.

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
    """Raises TooLargeError if a value is nested too deeply."""
    if depth > DEEPEST:
        raise TooLargeError(f"nested more than {DEEPEST} deep, or in itself")


def check_brackets(words: str) -> None:
    """Raises TooLargeError for so many open brackets that a parser would take minutes.

    Brackets in strings are counted too. Therefore this limit is far above that for values.
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

    Shared values, such as YAML aliases, are counted each time they would be printed.
    """
    _measure(value, 0, most, {})


def _measure(
    value: Any, depth: int, most: int, known: dict[int, tuple[int, int]]
) -> tuple[int, int]:
    """Returns the number of values in a value, and its height."""
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
