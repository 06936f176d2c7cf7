"""Decides which of a bucket's object names may become paths on this machine.

Anyone with write access to a bucket chooses these names. Therefore they are checked on entry, in a
listing and in `mirror.json`, and other modules may join them to a path. Standard library only.
"""

import re

from runner.core import text

_LONGEST = 1024  # characters (the limit of an S3 key, in bytes)
_LONGEST_PART = 255  # bytes (the limit of a file name on Linux file systems)
_DRIVE = re.compile(r"[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check(name: object) -> str:
    """Checks a file's path in a directory of a bucket, with `/` between names.

    Raises:
        ValueError: as a local path, it would lead out of a directory, or be invalid.
    """
    if reason := _refusal(name):
        raise ValueError(f"{text.quoted(name)} cannot be the name of a file: {reason}")
    return str(name)


def _refusal(name: object) -> str:
    """Returns why a name is not a valid path, or an empty string if it is valid."""
    if not isinstance(name, str):
        return "it is not text"
    parts = name.split("/")
    if name.startswith("/") or _DRIVE.match(name):
        return "it is absolute"
    if not all(parts) or "." in parts or ".." in parts:
        return "it has an empty part, '.' or '..'"
    if "\\" in name or _CONTROL.search(name):
        return "it has a backslash or a control character"
    try:
        longest = max(len(part.encode()) for part in parts)
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    return "it is too long" if len(name) > _LONGEST or longest > _LONGEST_PART else ""
