"""A directory in a bucket: reads, writes, exclusively creates, lists and removes objects.

Any exception of an fsspec driver becomes a `BucketError`, which states whether a retry may help.
This module never retries, because a writer must check its lock before another attempt.
"""

import contextlib
import errno
import logging
import os
import shutil
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from runner.core import files, secrets
from runner.errors import ConfigError
from runner.internals import gcsfs
from runner.storage import names, urls

_NO_CREDENTIALS = (
    *("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"),
    "Anonymous caller",  # Google's message
)
_FINAL = (*_NO_CREDENTIALS, "ParamValidationError")
_MISSING = "NoSuchBucket"
_GOOGLE = ("gs", "gcs")


class BucketError(OSError):
    """A read or write failed.

    Attributes:
        is_final: Whether a retry would fail the same way, as without permission.
    """

    def __init__(self, message: str, *, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final


class Bucket:
    """A directory at a URL that `urls.check` has returned.

    Args:
        url: The directory's URL.
        where: The flag or field that gave it, with its sign.

    Raises:
        ConfigError: a package that this kind of URL needs is missing.

    Attributes:
        url: The directory's URL, without secrets.
    """

    def __init__(self, url: str, where: str = "") -> None:
        import fsspec

        scheme = url.partition("://")[0]
        try:
            self._fs, root = fsspec.url_to_fs(url, **_options(scheme))
        except ImportError as error:
            raise ConfigError(f"{where}{urls.shown(url)}: {urls.missing(url, error)}") from error
        except ValueError as error:
            raise ConfigError(f"{where}{urls.shown(url)}: {error}") from error
        if hasattr(self._fs, "retries"):  # S3's driver would repeat requests that timed out
            self._fs.retries = 1
        if scheme in _GOOGLE:
            gcsfs.try_once(self._fs)
        if loop := getattr(self._fs, "loop", None):  # it logs abandoned requests, with tracebacks
            loop.set_exception_handler(lambda *_: None)
        self._root = root.rstrip("/")
        self._is_local = scheme in ("file", "local")
        self.url = urls.shown(url)

    def part(self, name: str) -> Self:
        """Returns a subdirectory."""
        made = type(self).__new__(type(self))
        made._fs, made._is_local = self._fs, self._is_local
        made._root, made.url = f"{self._root}/{name}", f"{self.url}/{name}"
        return made

    def read(self, name: str) -> bytes | None:
        """Returns an object's content, or None if there is no such object."""
        with self._plainly(name):
            try:
                return bytes(self._fs.cat_file(self._path(name)))
            except (FileNotFoundError, NotADirectoryError) as error:
                if _MISSING in _chain(error):
                    raise
                return None

    def write(self, name: str, content: bytes) -> None:
        """Writes a whole object."""
        with self._plainly(name):
            if self._is_local:
                with self._part(name) as (part, path):
                    part.write_bytes(content)
                    part.replace(path)
            else:
                self._fs.pipe_file(self._path(name), content)

    def create(self, name: str, content: bytes) -> bool:
        """Writes a new object. Returns False if it exists. Only one of several writers succeeds."""
        with self._plainly(name):
            if self._is_local:
                with self._part(name) as (part, path):
                    part.write_bytes(content)
                    if not _linked(part, path):
                        return False
            else:
                try:
                    self._fs.pipe_file(self._path(name), content, mode="create")
                except FileExistsError:
                    return False
        return self.read(name) == content  # some servers ignore conditions

    def upload(self, source: Path, name: str) -> None:
        """Writes the content of a file of any size.

        Raises:
            FileNotFoundError: the file is gone.
        """
        source.stat()
        with self._plainly(name):
            if self._is_local:
                with self._part(name) as (part, path):
                    shutil.copyfile(source, part)
                    part.replace(path)
            else:
                self._fs.put_file(str(source), self._path(name))

    def download(self, name: str, target: Path) -> None:
        """Writes an object's content to a file.

        Raises:
            FileNotFoundError: there is no such object.
            OSError: the disk is full.
        """
        with self._plainly(name):
            try:
                self._fs.get_file(self._path(name), str(target))
            except FileNotFoundError as error:
                if _MISSING in _chain(error):
                    raise
                raise _GoneError(name) from error
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise _FullError(error.errno, error.strerror, str(target.parent)) from error

    def objects(self) -> dict[str, tuple[int, int]]:
        """Returns the size and a version of each object in the directory and below.

        The version changes with the object. If the URL is that of an object, the result contains
        only this object, with an empty name.

        Raises:
            BucketError: an object has a name that no file can have.
        """
        with self._plainly(""):
            try:
                found = self._fs.find(self._root, detail=True)
            except (FileNotFoundError, NotADirectoryError) as error:
                if _MISSING in _chain(error):
                    raise
                return {}
        start = len(self._root) + 1
        return {
            self._named(path[start:]): (
                int(info.get("size") or 0),
                zlib.crc32(_version(info).encode()),
            )
            for path, info in found.items()
            if not self._is_part(path)
        }

    def names(self, folder: str = "") -> list[str]:
        """Returns the names of the objects and directories in a directory.

        Raises:
            BucketError: one of them has a name that no file can have.
        """
        path = self._path(folder)
        with self._plainly(folder):
            try:
                found = self._fs.ls(path, detail=False)
            except (FileNotFoundError, NotADirectoryError) as error:
                if _MISSING in _chain(error):
                    raise
                return []
        return sorted(
            self._named(each.rstrip("/").rpartition("/")[2])
            for each in found
            if not self._is_part(each)
        )

    def remove(self, names: Iterable[str]) -> None:
        """Removes objects in order. Ignores objects that are already gone."""
        for name in names:
            with self._plainly(name), contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(self._path(name))

    def _is_part(self, path: str) -> bool:
        """Returns whether `_part` made this file, and a writer may have died before its end."""
        return self._is_local and files.is_temporary(path.rpartition("/")[2])

    def _named(self, name: str) -> str:
        """Checks a name from a listing. The directory's own object has an empty name."""
        try:
            return names.check(name) if name else name
        except ValueError as error:
            raise BucketError(f"{self.url}: {error}", is_final=True) from error

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    @contextlib.contextmanager
    def _part(self, name: str) -> Iterator[tuple[Path, Path]]:
        """Yields a temporary file and the path of an object of a local directory.

        As in a bucket, an object appears when all of it is written, or not at all. Several
        threads, or processes with the same number on different machines, may write it.
        """
        path = Path(self._path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.beside(path, writer=uuid.uuid4().time_low) as part:
            yield part, path

    @contextlib.contextmanager
    def _plainly(self, name: str) -> Iterator[None]:
        try:
            yield
        except (BucketError, _GoneError, _FullError):
            raise
        except Exception as error:
            where = f"{self.url}/{name}" if name else self.url
            raise BucketError(f"{where}: {_text(error)}", is_final=_is_final(error)) from error


def _linked(part: Path, path: Path) -> bool:
    """Gives a file a second name, which must be new. Returns whether it was."""
    try:
        os.link(part, path)  # unlike a rename, it replaces nothing
    except FileExistsError:
        return False
    except OSError:  # a file system without links, as of a mounted bucket
        try:
            with path.open("xb") as file:
                file.write(part.read_bytes())
        except FileExistsError:
            return False
    return True


class _GoneError(FileNotFoundError):
    """An object does not exist."""


class _FullError(OSError):
    """The disk of this machine is full."""


def _options(scheme: str) -> dict[str, Any]:
    """Returns the options of a driver, which must not cache listings or retry."""
    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if scheme in ("s3", "s3a"):
        once = {"total_max_attempts": 1, "mode": "standard"}
        options["config_kwargs"] = {"retries": once, "connect_timeout": 10, "read_timeout": 30}
    if scheme in _GOOGLE:
        options["requests_timeout"] = _google()
    return options


def _google() -> Any:
    """Returns the timeouts for Google's driver, and prepares this process for it."""
    import aiohttp
    import google.auth

    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it logs the errors that it raises
    try:
        google.auth.default()
    except google.auth.exceptions.DefaultCredentialsError:
        # There are no credentials, and this is not a Google machine. The driver would search again
        # for 16 s.
        os.environ.setdefault("NO_GCE_CHECK", "true")
    return aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=30)


def _version(info: Mapping[str, Any]) -> str:
    """Returns a driver's value that changes with an object, with only its content if possible."""
    if tag := info.get("ETag") or info.get("etag"):
        return str(tag)
    names = ("mtime", "LastModified", "last_modified", "updated", "created")
    return repr([info.get(name) for name in names])


def _chain(error: BaseException) -> str:
    """Returns an error and its causes as one text."""
    said, seen = [], 0
    cause: BaseException | None = error
    while cause is not None and seen < 8:
        said.append(f"{type(cause).__name__}: {cause}")
        cause, seen = cause.__cause__ or cause.__context__, seen + 1
    return "\n".join(said)


def _is_final(error: BaseException) -> bool:
    if isinstance(error, (PermissionError, FileNotFoundError, NotImplementedError, ImportError)):
        return True
    if str(error).startswith("Forbidden"):  # Google's driver
        return True
    return any(name in _chain(error) for name in (*_FINAL, _MISSING))


def _text(error: BaseException) -> str:
    """Describes the error in one line."""
    chain = _chain(error)
    if _MISSING in chain or isinstance(error, FileNotFoundError):
        return "there is no such bucket"
    if any(name in chain for name in _NO_CREDENTIALS):
        return "there are no credentials for it in the environment"
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer"
    said = " ".join(str(error).split())
    return secrets.masked(f"{type(error).__name__}: {said}".rstrip(": "))[:300]
