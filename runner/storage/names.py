"""The names that a bucket gives its files: which of them may become paths on this machine.

Whoever can write in a bucket chooses them. So they are checked where they come in, in a listing and
in `mirror.json`, and everything else may join them to a path. Standard library only.
"""

import re

from runner.core import text

_LONGEST = 1024  # characters; a key of S3 has no more bytes
_LONGEST_PART = 255  # bytes; a file's name has no more on the file systems of Linux
_DRIVE = re.compile(r"[A-Za-z]:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check(name: object) -> str:
    """A file's path in a folder of a bucket, `/` between names.

    Raises:
        ValueError: as a path on this machine it would lead out of a folder, or be no path.
    """
    if reason := _refusal(name):
        raise ValueError(f"{text.quoted(name)} cannot be the name of a file: {reason}")
    return str(name)


def _refusal(name: object) -> str:
    """Why something is no such path; empty if it is one."""
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
