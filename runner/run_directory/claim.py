"""A directory lock: only the process that holds `claim.json` writes there. No TensorFlow.

    with claim.claimed(model_dir, note=print) as mine:
        ...           # train, or evaluate in a separate directory (`files` calls `check` itself)
        mine.check()  # before other code writes
        ...

On the same machine, the flock on the file shows whether the holder is alive. A flock may not reach
other machines, and some file systems have none. The heartbeat decides in these cases. A waiting
process watches it until it has expired, and always for a few beats, so disagreeing clocks do no
harm. If several processes then take over the lock at once, the last one to write it holds it: each
of them waits and looks again (Fischer's algorithm, in Lamport, "A fast mutual exclusion algorithm",
1987). A holder that was only suspended, but taken for dead, finds out in `check`, which runs before
every write.
"""

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from runner.core import console, files, heartbeat, layout, open_folder, signals
from runner.errors import LostError, RunnerError
from runner.run_directory import claim_file, leftovers
from runner.storage import display_names

_PATIENCE_SECONDS = 60.0
_WATCH_SECONDS = 2 * heartbeat.SECONDS
_POLL_SECONDS = 1.0
_SETTLE_SECONDS = 2.0  # longer than replacing a lock takes after the last look at it
_MOMENT_SECONDS = 0.5  # longer than a process takes to die, or to replace a lock on this machine


class Claim:
    """The lock that this process holds on a directory."""

    def __init__(self, path: Path, holder: claim_file.Holder, descriptor: int) -> None:
        self._path = path
        self._holder = holder
        self._descriptor = descriptor
        self._folder = open_folder.OpenFolder(path.parent)

    def check(self) -> None:
        """Checks that this process still holds the directory.

        Raises:
            LostError: it was taken over, moved or deleted, or the lock file was deleted.
        """
        found = claim_file.look(self._path)
        if found is None or found.holder != self._holder:
            self._folder.check()
            now = f"{found.holder} has it now" if found else f"{self._path} was deleted"
            raise LostError(f"this process has lost its lock on {self._path.parent}: {now}")

    def beat(self) -> None:
        """Renews the heartbeat."""
        os.utime(self._descriptor)

    def release(self) -> None:
        """Releases the directory if it is still held. Has no effect in a forked child.

        If the directory was moved, the lock is released at its new path.
        """
        if os.getpid() != self._holder.pid:
            return
        with contextlib.suppress(OSError):  # a leftover file without its flock blocks no process
            path = self._folder.inside / self._path.name
            found = claim_file.look(path)
            if found and found.holder == self._holder:
                path.unlink()
        claim_file.close(self._descriptor)
        self._folder.close()


@contextlib.contextmanager
def claimed(
    folder: Path,
    *,
    note: console.Note,
    instead: str = "--model_dir",
    patience: float = _PATIENCE_SECONDS,
    clock: Callable[[], float] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Claim]:
    """Ensures that only this process writes to `folder` within the block.

    A thread renews the heartbeat. If the process that held the lock has died, this process takes
    the lock over: at once if it ran on this machine, otherwise once its heartbeat has expired.

    Args:
        folder: The directory of a run or an evaluator. Created if missing.
        note: Called with a line about a wait, or about a lock that is taken over.
        instead: The flag or field to change if the directory is taken.
        patience: Seconds after which a heartbeat expires.
        clock: Returns seconds since the epoch. Tests can replace it. The default is the clock that
            sets the modification times, and so all heartbeats, in `folder`.
        sleep: Sleeps for a number of seconds. Tests can replace it.

    Raises:
        RunnerError: another process writes there, or the directory is not writable. The exit code
            is 1 because flags and configuration are valid, and the same command may work later.
    """
    try:
        files.make_folder(folder)
        clock = clock or functools.partial(claim_file.now_in, folder)
        mine = _Start(folder / layout.CLAIM, note, instead, patience, clock, sleep).claim()
    except OSError as error:
        raise RunnerError(f"{folder} cannot be written: {error.strerror}") from error
    try:
        with (
            files.guarded(folder, mine.check),
            heartbeat.beating(mine.beat, note=note),
            signals.leaving(mine.release),
        ):
            leftovers.clear(folder)
            yield mine
    finally:
        mine.release()


class Silence:
    """Detects locks of processes that may have died, where no flock can show it.

    For a process that watches many directories and cannot wait for each. `claimed` makes the
    final decision.

    Args:
        patience: Seconds after which a heartbeat expires.
        clock: Returns seconds. Tests can replace it.
    """

    def __init__(
        self,
        patience: float = _PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience = patience
        self._clock = clock
        self._since: dict[Path, tuple[claim_file.Seen, float]] = {}

    def has_lasted(self, path: Path) -> bool:
        """Returns whether this process has seen no change of the heartbeat for too long."""
        try:
            with path.open("r+", encoding="utf-8") as file:
                seen = claim_file.read(file)
                if seen.holder.is_here and claim_file.lock(file) is False:
                    return False
        except OSError:  # released, or unreachable
            return False
        known, since = self._since.get(path, (None, 0.0))
        if known != seen:
            self._since[path] = seen, self._clock()
        return known == seen and self._clock() - since > self._patience


@dataclasses.dataclass(frozen=True)
class _Start:
    """An attempt of this process to lock a directory."""

    path: Path
    note: console.Note
    instead: str
    patience: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]

    def claim(self) -> Claim:
        """Returns the lock once this process holds it."""
        holder = claim_file.Holder.this()
        offer = self.path.with_name(f".claim.{holder.token}.tmp")
        mine = Claim(self.path, holder, claim_file.write(offer, holder))
        try:
            while not (self._is_published(offer) or self._took_over(offer)):
                pass
            mine.check()
        except BaseException:
            mine.release()
            raise
        finally:
            offer.unlink(missing_ok=True)
        return mine

    def _is_published(self, offer: Path) -> bool:
        """Publishes `offer`. Returns False if another process has the lock."""
        published = claim_file.publish(offer, self.path)
        if published is None:
            self.sleep(_SETTLE_SECONDS)
        return published is not False

    def _took_over(self, offer: Path) -> bool:
        """Replaces a dead process's lock with `offer`. Returns False if the lock has changed."""
        try:
            file = self.path.open("r+", encoding="utf-8")
        except FileNotFoundError:
            return False
        with file:
            locked = claim_file.lock(file)
            if locked is False:
                self.sleep(_MOMENT_SECONDS)
                locked = claim_file.lock(file)
            seen = claim_file.read(file)
            if claim_file.look(self.path) != seen:
                return False
            here = seen.holder.is_here
            if here and locked is False:
                raise RunnerError(self._refusal(seen))
            certain = here and locked is True
            if not (certain or self._ran_out(seen)):
                return False
            if locked is False and not claim_file.lock(file):
                raise RunnerError(f"{self._refusal(seen)}. If it is gone, delete {self.path}")
            folder = display_names.of(self.path.parent)
            self.note(f"{folder}: taking over from {seen.holder}, which has died")
            offer.replace(self.path)
            if not certain:
                self.sleep(_SETTLE_SECONDS)
        return True

    def _ran_out(self, seen: claim_file.Seen) -> bool:
        """Waits until the heartbeat has expired. Returns False if the lock is released meanwhile.

        Raises:
            RunnerError: the holder is alive, or another process took over first.
        """
        left = max(self.patience - self._age(seen), _WATCH_SECONDS)
        self.note(
            f"{display_names.of(self.path.parent)} is held by {self._described(seen)}; "
            f"waiting up to {left:.0f} s for its next heartbeat"
        )
        while left > 0:
            self.sleep(_POLL_SECONDS)
            left -= _POLL_SECONDS
            now = claim_file.look(self.path)
            if now is None:
                return False
            if now != seen:
                raise RunnerError(self._refusal(now))
        return True

    def _refusal(self, seen: claim_file.Seen) -> str:
        return (
            f"{self.path.parent} is being written by {self._described(seen)}; "
            f"stop it first, or choose another {self.instead}"
        )

    def _described(self, seen: claim_file.Seen) -> str:
        return f"{seen.holder} (last heartbeat {self._age(seen):.0f} s ago)"

    def _age(self, seen: claim_file.Seen) -> float:
        return max(self.clock() - seen.heartbeat, 0.0)
