"""The bytes of a URL, appended to an open file: in several attempts where connections break.

fsspec opens whatever a URL names. Its own `get_file` begins a broken download anew, and does not
tell whether a server sent the range that was asked for; so the reading is done here.
"""

import os
import time
from collections.abc import Callable
from typing import Any, BinaryIO

import fsspec

from runner.core import console, text
from runner.errors import ConfigError, RunnerError

_CHUNK = 2**20
_LONGEST_PAUSE = 60.0
_HEADERS = {"Accept-Encoding": "identity"}
_MAY_PASS = (408, 425, 429)  # client errors of HTTP that another attempt may not meet

Show = Callable[[int, int | None], object]


def receive(
    url: str,
    out: BinaryIO,
    *,
    attempts: int,
    sleep: Callable[[float], object] = time.sleep,
    screen: console.Console = console.STDERR,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Appends to `out` what it lacks of the URL's content.

    Args:
        url: any that fsspec knows.
        out: open to append to, unbuffered. What it holds is the beginning of the content.
        attempts: how many in a row may bring nothing new.
        sleep: waits so many seconds between attempts: 1, then twice as long each time.
        screen: shows how far it is, and why an attempt failed.
        clock: seconds, for tests to inject.

    Raises:
        ConfigError: another attempt would end alike: no such file, no right to it, a URL of an
            unknown kind, or one that needs a package that is not installed.
        RunnerError: no attempt succeeded, or `out` cannot be written.
    """
    show = _shown(out.name, screen, clock)
    furthest, failures = _size(out), 0
    while True:
        try:
            _attempt(url, out, show)
            return
        except RunnerError:
            raise
        except Exception as error:  # every driver of fsspec has its own kinds
            if _is_final(error):
                raise ConfigError(
                    f"{url} cannot be fetched to {out.name}: {_text(error)}"
                ) from error
            failures = 1 if _size(out) > furthest else failures + 1
            furthest = max(furthest, _size(out))
            if failures >= attempts:
                raise RunnerError(
                    f"{url}: {failures} attempts to fetch it to {out.name} failed,"
                    f" the last one with {_text(error)}"
                ) from error
            pause = min(2.0 ** (failures - 1), _LONGEST_PAUSE)
            screen.say(f"{url}: {_text(error)}; trying again in {pause:.0f} s")
            sleep(pause)
        finally:
            screen.end(keep=False)


def _shown(name: str, screen: console.Console, clock: Callable[[], float]) -> Show:
    """Shows how many bytes there are, but not again within a moment."""
    last = clock()

    def show(done: int, total: int | None) -> None:
        nonlocal last
        if clock() - last >= screen.pause:
            last = clock()
            of = f" of {text.size(total)}, {done / total:.0%}" if total else ""
            screen.show(f"{name}: {text.size(done)}{of}")

    return show


def _attempt(url: str, out: BinaryIO, show: Show) -> None:
    """Appends what is missing, or writes all of it where it cannot begin in the middle."""
    system, remote = _system(url)
    total = system.info(remote).get("size")
    done = _size(out)
    if done == total:
        return
    if total is None or done > total:
        done = 0
    source, done = _open(system, remote, done, total)
    out.truncate(done)
    with source:
        while chunk := source.read(_CHUNK):
            _write(out, chunk)
            done += len(chunk)
            show(done, total)
    if total not in (None, done):
        raise EOFError(f"the content ended after {done:,} of {total:,} bytes")


def _open(system: Any, remote: str, start: int, total: int | None) -> tuple[Any, int]:
    """Content to read, and where it begins: at `start`, or at 0 where a server knows no ranges."""
    if not remote.startswith("http"):
        source = system.open(remote, "rb")
        source.seek(start)
        return source, start
    ranged = {"size": total, "headers": {**_HEADERS, "Range": f"bytes={start}-"}} if start else {}
    source = system.open(remote, "rb", block_size=0, **ranged)  # one response, as it comes
    return source, start if source.r.status == 206 else 0


def _size(out: BinaryIO) -> int:
    return out.seek(0, os.SEEK_END)


def _write(out: BinaryIO, chunk: bytes) -> None:
    left = memoryview(chunk)
    try:
        while left:
            left = left[out.write(left) :]
    except OSError as error:
        raise RunnerError(f"{out.name} cannot be written: {error.strerror}") from error


def _system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    protocols = [protocol for protocol in ("http", "https") if f"{protocol}://" in url]
    try:
        return fsspec.url_to_fs(url, **{protocol: _http() for protocol in protocols})
    except (ImportError, ValueError) as error:  # its package is not installed; an unknown kind
        raise ConfigError(f"{url}: {error}") from error


def _http() -> dict[str, Any]:
    import aiohttp  # takes a third of a second, and most files are there

    # By default a whole response has to arrive within five minutes, and proxies are not used.
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)
    return {"client_kwargs": {"timeout": timeout, "trust_env": True}, "headers": _HEADERS}


def _is_final(error: BaseException | None) -> bool:
    """Whether another attempt would end as this one did: no such file, or no right to it."""
    while error is not None:
        status = getattr(error, "status", None)
        if isinstance(status, int):
            return 400 <= status < 500 and status not in _MAY_PASS
        if isinstance(error, PermissionError):
            return True
        # fsspec raises the same for a web server that does not answer, with a cause.
        if isinstance(error, FileNotFoundError) and error.__cause__ is None:
            return True
        error = error.__cause__
    return False


def _text(error: BaseException) -> str:
    """The kind of an error and what it says, which is often nothing."""
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {cause}".rstrip(": ")
