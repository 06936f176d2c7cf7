"""What a person reads in place of a folder's path: a temporary copy goes by the URL it is of.

    with aliases.of(folder, "s3://bucket/run"):
        console.say(f"written: {folder}/export")  # written: s3://bucket/run/export

What is printed, and text that is written to files, has the other name. Standard library only.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

_known: dict[str, str] = {}


@contextlib.contextmanager
def of(folder: Path, name: str) -> Iterator[None]:
    """Inside, `folder` goes by `name`."""
    _known[str(folder)] = name
    try:
        yield
    finally:
        del _known[str(folder)]


def used(text: str) -> str:
    """The text with other names in place of paths."""
    for folder, name in list(_known.items()):
        text = text.replace(folder, name)
    return text
