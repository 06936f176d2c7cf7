"""The name of a path for a person or a stored file: in a local copy of a URL, the URL.

    console.say(f"written: {display_names.of(folder / 'export')}")
    # written: s3://bucket/run/export

A file next to each local copy has its URL, so any process knows the name.
"""

import contextlib
from pathlib import Path

from runner.storage import data_copies, urls

TEMPORARY = "read-"
"""How the name of a temporary directory in the cache begins; it holds one local copy."""

_SUFFIX = ".url"


def cache() -> Path:
    """The directory of the user's cache that holds all local copies of directories in buckets."""
    return data_copies.cache() / "buckets"


def record(copy: Path, url: str) -> None:
    """Records which URL a local copy stands for.

    Args:
        copy: A directory in `cache()` or in a temporary directory there.
        url: Without its secrets, it becomes the name.
    """
    copy.with_name(copy.name + _SUFFIX).write_text(urls.shown(url), encoding="utf-8")


def of(path: Path | str) -> str:
    """The URL of a path in a local copy; any other path as it is."""
    return in_text(str(path))


def in_text(text: str) -> str:
    """A text, such as the message of an error, with URLs in place of paths in local copies."""
    copies = cache().absolute()
    if str(copies) not in text:
        return text
    for file in [*copies.glob(f"*{_SUFFIX}"), *copies.glob(f"{TEMPORARY}*/*{_SUFFIX}")]:
        with contextlib.suppress(FileNotFoundError):  # of another process, which has just ended
            text = text.replace(str(file).removesuffix(_SUFFIX), file.read_text(encoding="utf-8"))
    return text
