"""Appends the content of a URL to an open file, resuming after broken connections.

fsspec opens the URL, and this module reads from it. fsspec's `get_file` would restart a broken
download from the beginning, and does not report whether a server honoured the requested range.
"""

import os
import time
from collections.abc import Callable
from typing import Any, BinaryIO

import fsspec

from runner.core import console, text
from runner.errors import ConfigError, RunnerError
from runner.storage import urls

_CHUNK = 2**20
_LONGEST_PAUSE = 60.0
_HEADERS = {"Accept-Encoding": "identity"}
_MAY_PASS = (408, 425, 429)  # HTTP client errors that may be temporary

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
    """Appends the rest of the URL's content to `out`.

    Args:
        url: any URL that fsspec supports.
        out: open for appending, unbuffered. It already holds the beginning of the content.
        attempts: give up after this many attempts in a row without progress.
        sleep: called with the pause between attempts, which is 1 second at first and then doubles.
        screen: shows the progress, and why an attempt failed.
        clock: returns seconds. Tests inject it.

    Raises:
        ConfigError: a retry would fail the same way: the file does not exist, permission is denied,
            the kind of URL is unknown, or it needs a package that is not installed.
        RunnerError: all attempts failed, or `out` cannot be written.
    """
    show = _shown(out.name, screen, clock)
    furthest, failures = _size(out), 0
    while True:
        try:
            _attempt(url, out, show)
            return
        except RunnerError:
            raise
        except Exception as error:  # fsspec's drivers raise different exceptions
            if _is_final(error):
                raise ConfigError(
                    f"{urls.shown(url)} cannot be fetched to {out.name}: {_text(error)}"
                ) from error
            failures = 1 if _size(out) > furthest else failures + 1
            furthest = max(furthest, _size(out))
            if failures >= attempts:
                raise RunnerError(
                    f"{urls.shown(url)}: {failures} attempts to fetch it to {out.name} failed,"
                    f" the last one with {_text(error)}"
                ) from error
            pause = min(2.0 ** (failures - 1), _LONGEST_PAUSE)
            screen.say(f"{urls.shown(url)}: {_text(error)}; retrying in {pause:.0f} s")
            sleep(pause)
        finally:
            screen.end(keep=False)


def _shown(name: str, screen: console.Console, clock: Callable[[], float]) -> Show:
    """Shows the number of bytes received, at most once per `screen.pause`."""
    last = clock()

    def show(done: int, total: int | None) -> None:
        nonlocal last
        if clock() - last >= screen.pause:
            last = clock()
            of = f" of {text.size(total)}, {done / total:.0%}" if total else ""
            screen.show(f"{name}: {text.size(done)}{of}")

    return show


def _attempt(url: str, out: BinaryIO, show: Show) -> None:
    """Appends the missing content, or writes everything if the server cannot resume."""
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
    """Opens the content and returns its offset: `start`, or 0 if ranges are not supported."""
    if not remote.startswith("http"):
        source = system.open(remote, "rb")
        source.seek(start)
        return source, start
    ranged = {"size": total, "headers": {**_HEADERS, "Range": f"bytes={start}-"}} if start else {}
    source = system.open(remote, "rb", block_size=0, **ranged)  # one streamed response
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
    except ImportError as error:
        raise ConfigError(f"{urls.shown(url)}: {urls.missing(url, error)}") from error
    except ValueError as error:  # unknown kind of URL
        raise ConfigError(f"{urls.shown(url)}: {error}") from error


def _http() -> dict[str, Any]:
    import aiohttp  # takes a third of a second to import, and is rarely needed

    # By default, a response must be complete within five minutes, and proxies are ignored.
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)
    return {"client_kwargs": {"timeout": timeout, "trust_env": True}, "headers": _HEADERS}


def _is_final(error: BaseException | None) -> bool:
    """Whether a retry would fail the same way: no such file, or no permission."""
    while error is not None:
        status = getattr(error, "status", None)
        if isinstance(status, int):
            return 400 <= status < 500 and status not in _MAY_PASS
        if isinstance(error, PermissionError):
            return True
        # fsspec raises the same error, but with a cause, for a web server that does not respond.
        if isinstance(error, FileNotFoundError) and error.__cause__ is None:
            return True
        error = error.__cause__
    return False


def _text(error: BaseException) -> str:
    """An error's type and its message, which is often empty."""
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {cause}".rstrip(": ")
