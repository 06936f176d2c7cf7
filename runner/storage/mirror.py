"""A thread that keeps a copy of a directory in a bucket while a run works in it.

    with mirror.Mirror(folder, bucket, lease, held) as kept:
        ...                       # train without waiting for the bucket
        kept.finish(timeout=600)  # the last state is there when this returns

States are copied one after the other. Changes during a copy are not queued: the next copy takes the
newest state. A checkpoint that is replaced before its turn is skipped, which is reported.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from runner.core import console, heartbeat, layout
from runner.errors import LostError, RunnerError
from runner.storage import copying, lease, manifest, snapshot
from runner.storage.bucket import Bucket, BucketError

SECONDS = 10.0
"""Time between two copies. A new checkpoint is copied immediately."""

_LOOK_SECONDS = 0.5  # time between two checks for a new checkpoint
_LONGEST_PAUSE = 60.0
_LAST_PAUSE = 2.0  # between attempts once the run has ended


class Mirror:
    """Copies a directory to a bucket repeatedly.

    Args:
        folder: The run's directory.
        bucket: The destination.
        claim: The lock on the bucket's directory.
        held: The contents of the bucket.
        known: The files that are equal in the directory and in the bucket.
        leaves_out: Returns whether a file or directory belongs to another process.
        fetch: Called before each copy to download the files of other processes.
        stays: Whether the local directory will still exist later.
        note: Called with a line about an error.
        seconds: Time between two copies.
    """

    def __init__(
        self,
        folder: Path,
        bucket: Bucket,
        claim: lease.Lease,
        held: manifest.Manifest,
        *,
        known: dict[str, snapshot.Stamp] | None = None,
        leaves_out: Callable[[str], bool] = lambda _: False,
        fetch: Callable[[], object] = lambda: None,
        stays: bool = True,
        note: console.Note = console.say,
        seconds: float = SECONDS,
    ) -> None:
        self._folder = folder
        self._bucket = bucket
        self._claim = claim
        self._leaves_out = leaves_out
        self._fetch = fetch
        self._stays = stays
        self._note = note
        self._seconds = seconds
        self._copier = copying.Copier(folder, bucket, claim.mark, held, self._ask)
        self._copier.remember(known or {})
        self._lost: LostError | None = None
        self._abandoned = False
        self._ending = threading.Event()
        self._skipped: dict[str, None] = {}
        self._waiting: set[str] = set()
        self._failure = ""
        self._is_away = False  # whether the last failure was a bucket that does not answer
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)
        self._beating: Any = heartbeat.beating(
            self._beat,
            seconds=lease.BEAT_SECONDS,
            note=note,
            what=f"heartbeat in {bucket.url}",
            waits=False,
        )

    def __enter__(self) -> Self:
        self._beating.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._abandoned = True
        self._ending.set()
        self._beating.__exit__(*error)

    def check(self) -> None:
        """Raises if another process now holds the directory in the bucket. Makes no request."""
        if self._lost:
            raise self._lost

    def finish(self, timeout: float) -> None:
        """Waits until the bucket holds the last state.

        Raises:
            RunnerError: it is incomplete after `timeout` seconds. The message names missing files.
            LostError: another process holds it.
        """
        began = time.monotonic()
        self._ending.set()
        self._thread.join(min(timeout, 2.0))
        if self._thread.is_alive() and timeout > 2:
            self._note(f"copying the rest to {self._bucket.url} ...")
            self._thread.join(max(timeout - (time.monotonic() - began), 0.0))
        self.check()
        if self._thread.is_alive():
            self._abandoned = True
            raise RunnerError(self._incomplete(timeout))
        snapshot.clear(self._folder)
        with contextlib.suppress(BucketError):
            self._claim.release()

    def _run(self) -> None:
        """Copies until the bucket has the last state."""
        pause = 0.0
        try:
            while not self._abandoned:
                last = self._ending.is_set()
                try:
                    done = self._once(last=last)
                    if self._failure:
                        self._note(f"{self._bucket.url} responds again")
                    pause, self._failure, self._is_away = 0.0, "", False
                    if done and last:
                        return
                except LostError:
                    raise
                except Exception as error:  # any error: training continues, and `finish` reports it
                    pause = min(max(2 * pause, 1.0), _LONGEST_PAUSE)
                    self._complain(error)
                self._wait(pause)
        except LostError as error:
            if not self._abandoned:
                self._lost = error

    def _once(self, *, last: bool) -> bool:
        """Copies the current state. Returns whether the bucket was up to date."""
        if not self._claim.check(again=True):
            self._copier.forget()
            self._claim.renew()
            self._note(f"{self._bucket.url} was emptied; copying everything again")
        self._fetch()
        state = snapshot.take(self._folder, self._copier.known, self._leaves_out)
        self._say_skipped(state)
        return not self._copier.copy(state, last=last)

    def _wait(self, pause: float) -> None:
        """Waits for the next copy. A new checkpoint or the end of the run shortens the wait."""
        if self._ending.is_set():
            time.sleep(min(pause, _LAST_PAUSE))
            return
        until = time.monotonic() + (pause or self._seconds)
        while (left := until - time.monotonic()) > 0:
            if self._ending.wait(min(left, _LOOK_SECONDS)) or (not pause and self._looked()):
                return

    def _looked(self) -> bool:
        """Returns whether there are uncopied checkpoints, and records their names."""
        with contextlib.suppress(OSError):
            names = snapshot.listed((self._folder / layout.CHECKPOINT).read_bytes())
            self._waiting = self._not_copied({*self._waiting, *names})
            return bool(self._waiting)
        return False

    def _not_copied(self, names: Iterable[str]) -> set[str]:
        return {each for each in names if f"{each}.index" not in self._copier.known}

    def _say_skipped(self, state: snapshot.Snapshot) -> None:
        waiting = self._not_copied(self._waiting)
        gone = {name for name in waiting if f"{name}.index" not in state.files}
        self._waiting = set()
        before = len(self._skipped)
        self._skipped |= dict.fromkeys(sorted(gone))
        if len(self._skipped).bit_length() > before.bit_length():
            self._note(
                f"{self._bucket.url} is slower than the run: {', '.join(sorted(gone))} replaced "
                f"before being copied, {len(self._skipped)} so far; the newest state follows"
            )

    def _ask(self) -> None:
        """Checks before each write that this process may still write there."""
        if self._abandoned:
            raise LostError("given up")
        self._looked()
        if not self._claim.check():
            raise BucketError(f"{self._bucket.url} was emptied", is_final=False)

    def _beat(self) -> None:
        self._looked()
        try:
            if self._claim.check():
                self._claim.beat()
        except LostError as error:
            self._lost = error
            raise

    def _complain(self, error: Exception) -> None:
        """Reports why copying fails, once while the reason stays the same."""
        known = isinstance(error, OSError)
        said = str(error) if known else f"{self._bucket.url}: {type(error).__name__}: {error}"
        is_away = isinstance(error, BucketError) and not error.is_final
        if said != self._failure and not (is_away and self._is_away):
            self._note(f"{said}; retrying while the run continues")
        self._failure, self._is_away = said, is_away

    def _incomplete(self, timeout: float) -> str:
        state = snapshot.take(self._folder, self._copier.known, self._leaves_out)
        missing = self._copier.pending(state, last=True)
        what = copying.described(missing, state) if missing else manifest.NAME
        why = f"; {self._failure}" if self._failure else ""
        said = (
            f"{self._bucket.url} is not complete after {timeout:g} s (RunConfig.mirror_timeout): "
            f"{what} not copied{why}\n"
        )
        if not self._stays:
            return f"{said}rerun the command"
        return (
            f"{said}{self._folder} is complete; rerun the command on this machine to copy the rest"
        )
