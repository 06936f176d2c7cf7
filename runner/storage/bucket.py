"""A folder in a bucket: objects are read, written, created exclusively, listed and removed.

Whatever a driver of fsspec raises becomes a `BucketError`, which says whether another attempt may
help. Nothing is retried here: who writes must look at its claim before another attempt.
"""

import contextlib
import errno
import logging
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from runner.core import secrets
from runner.errors import ConfigError
from runner.internals import gcsfs
from runner.storage import names, urls

_NO_CREDENTIALS = (
    *("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"),
    "Anonymous caller",  # as Google says it
)
_FINAL = (*_NO_CREDENTIALS, "ParamValidationError")
_MISSING = "NoSuchBucket"
_GOOGLE = ("gs", "gcs")


class BucketError(OSError):
    """Something could not be read or written.

    Attributes:
        is_final: Whether another attempt would fail in the same way, as without permission.
    """

    def __init__(self, message: str, *, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final


class Bucket:
    """A folder at a URL that `urls.check` has returned.

    Args:
        url: The folder's.
        where: The flag or field that gave it, with its sign.

    Raises:
        ConfigError: a package is missing that this kind of URL needs.

    Attributes:
        url: The folder's, without secrets.
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
        if hasattr(self._fs, "retries"):  # S3's driver would repeat what has timed out
            self._fs.retries = 1
        if scheme in _GOOGLE:
            gcsfs.try_once(self._fs)
        if loop := getattr(self._fs, "loop", None):  # it logs what it has given up, with tracebacks
            loop.set_exception_handler(lambda *_: None)
        self._root = root.rstrip("/")
        self._is_local = scheme in ("file", "local")
        self.url = urls.shown(url)

    def part(self, name: str) -> Self:
        """A folder in it."""
        made = type(self).__new__(type(self))
        made._fs, made._is_local = self._fs, self._is_local
        made._root, made.url = f"{self._root}/{name}", f"{self.url}/{name}"
        return made

    def read(self, name: str) -> bytes | None:
        """An object's content, None if there is none."""
        with self._plainly(name):
            try:
                return bytes(self._fs.cat_file(self._path(name)))
            except (FileNotFoundError, NotADirectoryError) as error:
                if _MISSING in _chain(error):
                    raise
                return None

    def write(self, name: str, content: bytes) -> None:
        """Writes an object whole."""
        with self._plainly(name):
            self._prepare(name)
            self._fs.pipe_file(self._path(name), content)

    def create(self, name: str, content: bytes) -> bool:
        """Writes an object that does not exist; False if it does. Only one of several succeeds."""
        with self._plainly(name):
            self._prepare(name)
            try:
                if self._is_local:
                    with self._fs.open(self._path(name), "xb") as file:
                        file.write(content)
                else:
                    self._fs.pipe_file(self._path(name), content, mode="create")
            except FileExistsError:
                return False
        return self.read(name) == content  # some servers know no conditions

    def upload(self, source: Path, name: str) -> None:
        """Writes a file's content, whose size does not matter.

        Raises:
            FileNotFoundError: the file is gone.
        """
        source.stat()
        with self._plainly(name):
            self._prepare(name)
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
        """The objects in the folder and below: the size of each, and what changes with it.

        Where the URL is that of an object, that is the only one, with an empty name.

        Raises:
            BucketError: one has a name that no file can have.
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
        }

    def names(self, folder: str = "") -> list[str]:
        """The names of the objects and folders in a folder.

        Raises:
            BucketError: one has a name that no file can have.
        """
        path = self._path(folder)
        with self._plainly(folder):
            try:
                found = self._fs.ls(path, detail=False)
            except (FileNotFoundError, NotADirectoryError) as error:
                if _MISSING in _chain(error):
                    raise
                return []
        return sorted(self._named(each.rstrip("/").rpartition("/")[2]) for each in found)

    def remove(self, names: Iterable[str]) -> None:
        """Removes objects in order; one that is gone is fine."""
        for name in names:
            with self._plainly(name), contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(self._path(name))

    def _named(self, name: str) -> str:
        """A name from a listing, checked; the folder's own object has none."""
        try:
            return names.check(name) if name else name
        except ValueError as error:
            raise BucketError(f"{self.url}: {error}", is_final=True) from error

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _prepare(self, name: str) -> None:
        """Makes folders where there are any: a bucket has only names."""
        if self._is_local:
            self._fs.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)

    @contextlib.contextmanager
    def _plainly(self, name: str) -> Iterator[None]:
        try:
            yield
        except (BucketError, _GoneError, _FullError):
            raise
        except Exception as error:
            where = f"{self.url}/{name}" if name else self.url
            raise BucketError(f"{where}: {_text(error)}", is_final=_is_final(error)) from error


class _GoneError(FileNotFoundError):
    """An object does not exist."""


class _FullError(OSError):
    """The disk of this machine is full."""


def _options(scheme: str) -> dict[str, Any]:
    """What a driver is told: no listing may be remembered, and no attempt repeated."""
    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if scheme in ("s3", "s3a"):
        once = {"total_max_attempts": 1, "mode": "standard"}
        options["config_kwargs"] = {"retries": once, "connect_timeout": 10, "read_timeout": 30}
    if scheme in _GOOGLE:
        options["requests_timeout"] = _google()
    return options


def _google() -> Any:
    """How long Google's driver waits for an answer; prepares what it finds in this process."""
    import aiohttp
    import google.auth

    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it logs what it raises
    try:
        google.auth.default()
    except google.auth.exceptions.DefaultCredentialsError:
        # There are none, on no machine of Google's: the driver would look again for 16 s.
        os.environ.setdefault("NO_GCE_CHECK", "true")
    return aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=30)


def _version(info: Mapping[str, Any]) -> str:
    """What drivers say that changes with an object; with its content alone, if they know that."""
    if tag := info.get("ETag") or info.get("etag"):
        return str(tag)
    names = ("mtime", "LastModified", "last_modified", "updated", "created")
    return repr([info.get(name) for name in names])


def _chain(error: BaseException) -> str:
    """An error and its causes as one text."""
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
    """What went wrong, in a line."""
    chain = _chain(error)
    if _MISSING in chain or isinstance(error, FileNotFoundError):
        return "there is no such bucket"
    if any(name in chain for name in _NO_CREDENTIALS):
        return "there are no credentials for it in the environment"
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer"
    said = " ".join(str(error).split())
    return secrets.masked(f"{type(error).__name__}: {said}".rstrip(": "))[:300]
