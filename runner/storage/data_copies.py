"""Local copies of data at URLs in a configuration, made once and shared by all processes."""

import concurrent.futures
import contextlib
import fcntl
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner.core import console, files, text
from runner.errors import ConfigError, RunnerError
from runner.storage import attempts, urls
from runner.storage.bucket import Bucket

_AT_A_TIME = 8
_HTTP = ("http", "https")


def local(path: str | Path, where: str) -> Path:
    """Returns a local path to read: `path`, or the local copy of the data at its URL.

    If the data have changed, the copy is made again.

    Args:
        path: A local or remote file or directory.
        where: The field that contains it, for messages.

    Raises:
        ConfigError: it is a URL without data, or one that cannot be read.
        RunnerError: the bucket does not answer, or an object is removed during the copy.
    """
    if not urls.is_url(path):
        return Path(path)
    url = urls.check(path, f"{where} = ", writes=False)
    if url.partition("://")[0] in _HTTP:
        raise ConfigError(f"{where} = {urls.shown(url)}: `fetch` downloads files by http")
    return _copied(Bucket(url, f"{where} = "), where)


def facts(url: str) -> dict[str, Any]:
    """Returns facts that change with an object or directory, or {} if nothing is known.

    Raises:
        RunnerError: the URL is invalid, or its driver is missing.
        BucketError: the bucket does not answer, or rejects the request.
    """
    if url.partition("://")[0] in _HTTP:
        return {}
    found = Bucket(urls.check(url, "", writes=False)).objects()
    digest = f"{zlib.crc32(repr(sorted(found.items())).encode()):08x}"
    size = sum(each for each, _ in found.values())
    return {"files": len(found), "bytes": size, "digest": digest} if found else {}


def _copied(bucket: Bucket, where: str) -> Path:
    found = attempts.several(bucket.objects, where)
    if not found:
        raise ConfigError(f"{where}: {bucket.url}: there is no such file or directory")
    name = bucket.url.rpartition("/")[2]
    version = zlib.crc32(repr(sorted(found.items())).encode())
    folder = files.cache() / "data" / f"{urls.folder_name(bucket.url)}-{version:08x}"
    with _alone(folder):
        if not folder.exists():
            size = sum(each for each, _ in found.values())
            console.say(f"copying {bucket.url} ({text.size(size)}) to {folder}")
            part = folder.with_name(f"{folder.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            with concurrent.futures.ThreadPoolExecutor(_AT_A_TIME) as pool:
                copies = [pool.submit(_bring, bucket, path, part / name, where) for path in found]
                for each in copies:
                    each.result()
            part.rename(folder)
    return folder / name


def _bring(bucket: Bucket, path: str, folder: Path, where: str) -> None:
    target = folder / path if path else folder
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        attempts.several(lambda: bucket.download(path, target), where, lambda _: None)
    except FileNotFoundError as error:
        gone = f"{bucket.url}/{path}".rstrip("/")
        raise RunnerError(f"{where}: {gone} was removed while it was copied") from error


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lets only one process of this machine make the copy at a time."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
