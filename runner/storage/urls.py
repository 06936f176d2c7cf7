"""Checks and formats URLs of directories in buckets. Standard library only.

fsspec and the driver for a kind of URL are imported when a bucket is opened.
"""

import difflib
import re
from pathlib import Path

from runner.core import installation
from runner.errors import ConfigError

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>(?:/.*)?)", re.DOTALL)
_PASSWORD = re.compile(r"[^/]*:[^/]*@")
_KEY = re.compile(r"[^/]*:.*@")  # Amazon's keys may contain slashes
_BUCKETS = ("s3", "s3a", "gs", "gcs")  # their URLs have no user part before an @
_EXTRAS = {"s3": ("s3fs", "s3"), "gs": ("gcsfs", "gcs")}
_EXTRAS |= {"s3a": _EXTRAS["s3"], "gcs": _EXTRAS["gs"]}
_COMMON = ("s3", "gs", "gcs", "az", "abfs", "hdfs", "sftp", "file", "memory")
_READ_ONLY = ("http", "https", "github", "git", "zip", "tar", "data")


def is_url(path: str | Path) -> bool:
    """Returns whether this is a URL, or a Path of one, which makes one slash of two."""
    return _URL.fullmatch(str(path)) is not None


def of(path: str | Path) -> str:
    """Restores a URL from a Path of it."""
    if (found := _URL.fullmatch(str(path))) is None:
        return str(path)
    rest = found["rest"].lstrip("/")
    scheme = found["scheme"].lower()
    return f"{scheme}:///{rest}" if scheme in ("file", "local") else f"{scheme}://{rest}"


def shown(path: str | Path) -> str:
    """Returns a URL or a path without its secrets."""
    from runner.core import secrets  # slow to import

    url = of(path)
    found = _URL.fullmatch(url)
    if found and _has_secret(found["scheme"], found["rest"].lstrip("/")):
        return f"{found['scheme']}://{secrets.MASK}@{url.rpartition('@')[2]}"
    return secrets.masked(url)


def check(path: str | Path, where: str, *, writes: bool = True) -> str:
    """Returns the checked URL of a directory.

    Args:
        path: The URL as given.
        where: The flag or field that gave it, with its sign: `--model_dir=`.
        writes: Whether the caller will write there.

    Raises:
        ConfigError: it is invalid. The message contains no secret.
    """
    url = of(path)
    found = _URL.fullmatch(url)
    if found is None:
        raise ConfigError(f"{where}{shown(url)}: expected a URL, such as s3://bucket/run")
    scheme, rest = found["scheme"], found["rest"].lstrip("/")
    given = f"{where}{shown(url)}"
    if _has_secret(scheme, rest):
        raise ConfigError(
            f"{given}: leave credentials out of the URL; the environment has them, for S3 "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        )
    if "::" in url or re.search(r"[?#]", rest):
        raise ConfigError(f"{given}: only a bucket and a directory in it can be named")
    if not _is_known(scheme):
        near = difflib.get_close_matches(scheme, _COMMON, n=1, cutoff=0.5)
        meant = f"; did you mean {near[0]}://?" if near else ""
        raise ConfigError(f"{given}: unknown kind of URL {scheme}://{meant}")
    if writes and scheme in _READ_ONLY:
        raise ConfigError(f"{given}: {scheme}:// cannot be written")
    if not rest:
        raise ConfigError(f"{given} names no bucket: expected {scheme}://bucket/run")
    return url.rstrip("/")


def missing(url: str, error: ImportError) -> str:
    """Returns what to install for a kind of URL whose driver is missing."""
    known = next((each for scheme, each in _EXTRAS.items() if f"{scheme}://" in url), None)
    if known is None:
        return str(error)
    return f"{known[0]} is not installed: {installation.command_for(known[1])}"


def folder_name(url: str) -> str:
    """Returns the name of a local directory for the URL."""
    import hashlib  # slow to import

    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", url.partition("://")[2]).strip("-.")[-60:]
    return f"{readable}-{hashlib.sha256(url.encode()).hexdigest()[:10]}"


def _has_secret(scheme: str, rest: str) -> bool:
    if scheme in _BUCKETS:
        return "@" in rest.partition("/")[0] or _KEY.match(rest) is not None
    return _PASSWORD.match(rest) is not None


def _is_known(scheme: str) -> bool:
    if scheme in _COMMON:
        return True
    import fsspec

    return scheme in fsspec.available_protocols()
