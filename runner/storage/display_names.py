"""Replaces paths in local copies of URLs with these URLs, for messages and stored files.

    console.say(f"written: {display_names.of(folder / 'export')}")
    # written: s3://bucket/run/export

A file next to each local copy contains its URL, so that any process can look it up.
"""

import contextlib
from pathlib import Path

from runner.core import files
from runner.storage import urls

TEMPORARY = "read-"
"""The prefix of temporary directories in the cache. Each holds one local copy."""

_SUFFIX = ".url"


def cache() -> Path:
    """Returns the cache directory for all local copies of directories in buckets."""
    return files.cache() / "buckets"


def record(copy: Path, url: str) -> None:
    """Records the URL of a local copy.

    Args:
        copy: A directory in `cache()` or in a temporary directory there.
        url: The URL. It is shown without its secrets.
    """
    copy.with_name(copy.name + _SUFFIX).write_text(urls.shown(url), encoding="utf-8")


def of(path: Path | str) -> str:
    """Returns the URL of a path in a local copy, or any other path unchanged."""
    return in_text(str(path))


def in_text(text: str) -> str:
    """Replaces paths in local copies with URLs in a text, such as an error message."""
    copies = cache().absolute()
    if str(copies) not in text:
        return text
    for file in [*copies.glob(f"*{_SUFFIX}"), *copies.glob(f"{TEMPORARY}*/*{_SUFFIX}")]:
        with contextlib.suppress(FileNotFoundError):  # of another process that has just ended
            text = text.replace(str(file).removesuffix(_SUFFIX), file.read_text(encoding="utf-8"))
    return text
