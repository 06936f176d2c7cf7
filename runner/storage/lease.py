"""Locks a directory in a bucket for one writer: locks are numbered, and the highest one is valid.

    claims/00000007.json    {"host": ..., "pid": ..., "token": ..., "beat": 12, "released": false}

A process acquires the lock by exclusive creation of the next number, so only one of several
succeeds. The holder rewrites the object as a heartbeat, which does not affect a later lock. A
holder that was taken for dead finds a higher number and stops writing. Other processes detect a
stopped heartbeat by looking twice, using only their own clocks.
"""

import dataclasses
import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from runner.core import console, files
from runner.errors import LostError, RunnerError
from runner.storage import manifest
from runner.storage.bucket import Bucket

BEAT_SECONDS = 10.0
PATIENCE_SECONDS = 60.0

_POLL_SECONDS = 2.0
_FRESH_SECONDS = 2.0  # how long a look at the locks stays valid
_NAME = re.compile(r"(\d+)\.json")


class Mark(NamedTuple):
    """Identifies one lock."""

    number: int = 0
    token: str = ""


@dataclasses.dataclass(frozen=True)
class _Seen:
    """A lock as it was found."""

    host: str = "an unknown host"
    pid: int = 0
    token: str = ""
    beat: int = 0
    released: bool = False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclasses.dataclass(frozen=True)
class Asking:
    """The options of a request for a lock.

    Attributes:
        instead: The flag or field to change if the directory is taken.
        last: The lock that this directory held last. Its holder is known to be gone.
        note: Called with a line about a wait, or about a lock that is taken over.
        patience: Seconds after which a heartbeat expires. 0 means a minute.
        clock: Returns seconds. Tests can replace it.
        sleep: Sleeps for a number of seconds. Tests can replace it.
    """

    instead: str = "--model_dir"
    last: Mark = Mark()  # noqa: RUF009, immutable
    note: console.Note = console.say
    patience: float = 0.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Lease:
    """A directory in a bucket that this process holds. Created by `take`.

    Attributes:
        mark: The lock.
        before: The previous lock, with number 0 if there was none.
    """

    def __init__(self, bucket: Bucket, mark: Mark, before: Mark) -> None:
        self._bucket = bucket
        self._said = {"host": socket.gethostname(), "pid": os.getpid(), "token": mark.token}
        self._beats = 0
        self._looked = 0.0
        self._writing = threading.Lock()
        self._released = False
        self.mark = mark
        self.before = before

    @property
    def path(self) -> str:
        """The lock's object."""
        return _path(self.mark.number)

    def claim(self) -> bool:
        """Creates the lock. Returns False if its number is taken."""
        return self._bucket.create(_path(self.mark.number), self._text())

    def beat(self) -> None:
        """Renews the heartbeat."""
        with self._writing:
            if not self._released:
                self._beats += 1
                self._bucket.write(_path(self.mark.number), self._text())

    def check(self, *, again: bool = False) -> bool:
        """Returns whether the lock is still held, or False if all locks were removed.

        Args:
            again: Whether to look even if the last look is recent.

        Raises:
            LostError: another process holds the directory now.
        """
        now = _seconds()
        if now - self._looked < _FRESH_SECONDS and not again:
            return True
        numbers = _numbers(self._bucket)
        if any(number != self.mark.number for number in numbers if number >= self.mark.number):
            raise self._lost(max(numbers))
        if self.mark.number not in numbers:
            if numbers:
                raise self._lost(max(numbers))
            return False
        self._looked = now
        return True

    def renew(self) -> None:
        """Creates the lock again after all locks were removed.

        Raises:
            LostError: another process was faster.
        """
        if not self.claim():
            raise self._lost(self.mark.number)

    def release(self) -> None:
        """Marks the directory as free."""
        with self._writing:
            self._released = True
            self._bucket.write(_path(self.mark.number), self._text())

    def _lost(self, number: int) -> LostError:
        seen = _look(self._bucket, number)
        return LostError(
            f"this process has lost its lock on {self._bucket.url}: {seen or 'another process'} "
            "has it"
        )

    def _text(self) -> bytes:
        now = {"beat": self._beats, "released": self._released}
        return json.dumps({**self._said, **now}).encode()


def take(bucket: Bucket, asking: Asking) -> Lease:
    """Waits for the lock on a directory and returns it.

    Raises:
        RunnerError: another process writes there.
        BucketError: the bucket does not answer, or rejects the request.
    """
    while True:
        number = max(_numbers(bucket), default=0)
        seen = _look(bucket, number) if number else None
        if number and seen is None:  # removed meanwhile, or listed too early
            asking.sleep(_POLL_SECONDS)
            continue
        before = Mark(number, seen.token if seen else "")
        if seen and not seen.released and before != asking.last:
            if not _ran_out(bucket, number, seen, asking):
                continue
            asking.note(f"{bucket.url}: taking over from {seen}, which has died")
        lease = Lease(bucket, Mark(number + 1, secrets.token_hex(8)), before)
        if lease.claim():
            old = [each for each in _numbers(bucket) if each < number]
            bucket.remove(map(_path, old))
            return lease


def _ran_out(bucket: Bucket, number: int, seen: _Seen, asking: Asking) -> bool:
    """Waits until a heartbeat has expired. Returns False if the lock is released or taken.

    Raises:
        RunnerError: the holder is alive.
    """
    patience, since = asking.patience or PATIENCE_SECONDS, asking.clock()
    asking.note(
        f"{bucket.url} is held by {seen}; waiting up to {patience:.0f} s for its next heartbeat"
    )
    while asking.clock() - since < patience:
        asking.sleep(_POLL_SECONDS)
        now = _look(bucket, number)
        if now is None or now.released or max(_numbers(bucket), default=0) != number:
            return False
        if now != seen:
            raise RunnerError(
                f"{bucket.url} is being written by {now}; stop it first, or choose another "
                f"{asking.instead}"
            )
    return True


def _look(bucket: Bucket, number: int) -> _Seen | None:
    content = bucket.read(_path(number))
    if content is None:
        return None
    try:
        return _Seen(**files.loads(content))
    except (ValueError, TypeError):  # damaged: belongs to an unknown process
        return _Seen()


def _numbers(bucket: Bucket) -> list[int]:
    found = (_NAME.fullmatch(name) for name in bucket.names(manifest.CLAIMS))
    return sorted(int(each[1]) for each in found if each)


def _path(number: int) -> str:
    return f"{manifest.CLAIMS}/{number:08d}.json"


def _seconds() -> float:
    """Returns seconds by a clock that also runs while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)
