"""A process that logs a run while it trains.

    python -m runner.run_directory.loggers.follow NAME FOLDER

It only reads the run's files, and ends soon after the run. No TensorFlow.
"""

import contextlib
import os
import sys
import threading
import time
from pathlib import Path

from runner.core import layout, secrets
from runner.run_directory import watch
from runner.run_directory.loggers import facts, feed, ledger
from runner.storage import display_names

_LOOK_SECONDS = 0.5
_PAUSE_SECONDS = 5.0
_SHARE = 100  # pauses are this many times as long as the work before them
_LONGEST_PAUSE = 120.0
_SILENT_SECONDS = 600.0
_LAST_TRIES = 3  # once the run has ended
_HANGS_SECONDS = 1800.0
_LONGEST_REASON = 300


class Log:
    """Writes lines to `loggers/<name>.log`, without repeating a line."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / layout.LOGGERS / f"{name}.log"
        self._said = ""

    def say(self, line: str) -> None:
        """Adds a line."""
        line = secrets.masked(" ".join(line.split()))
        if line != self._said:
            self._said = line
            with contextlib.suppress(OSError):  # the run was moved or deleted
                self._path.parent.mkdir(exist_ok=True)
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")


def main() -> int:
    """Logs until the run has ended and all data are logged. Returns the exit code."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    with contextlib.suppress(OSError):
        os.nice(10)
    log = Log(folder, name)
    try:
        return _followed(folder, name, log)
    except Exception as error:
        log.say(f"{_described(error)}; {_later(folder, name)}")
        return 1


def _followed(folder: Path, name: str, log: Log) -> int:
    run, tries, alive = _Run(folder), 0, _Alive(log)
    with _turn(folder, name):
        made = None
        while True:
            alive.beat()
            over, begin = run.is_over, time.monotonic()
            try:
                if layout.is_study(folder):
                    feed.all_of(folder, name, whole=False)
                    return 0
                made = made or feed.of(folder, name)
                made.give(whole=False)
                if over:
                    made.close()
                    return 0
            except Exception as error:
                log.say(f"{_described(error)}; {_later(folder, name)}")
                with contextlib.suppress(Exception):
                    if made:
                        made.close()
                made, tries = None, tries + over
                if tries >= _LAST_TRIES:
                    return 1
            taken = time.monotonic() - begin
            longest = _PAUSE_SECONDS if over else _LONGEST_PAUSE
            pause = min(max(_PAUSE_SECONDS, _SHARE * taken), longest)
            end = time.monotonic() + pause
            while time.monotonic() < end and (over or not run.is_over):
                alive.beat()
                time.sleep(_LOOK_SECONDS)


def _turn(folder: Path, name: str) -> contextlib.AbstractContextManager[None]:
    """Waits for the previous attempt's process to log the rest. A study is not locked here."""
    if layout.is_study(folder):
        return contextlib.nullcontext()
    return ledger.alone(folder, name)


class _Run:
    """The attempt that has locked the directory, or a study."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._holder = facts.holder(folder)
        self._status = watch.Glance(folder / layout.STATUS)
        self._seen = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or gives no heartbeat if locks are unreliable."""
        if self._status.changed():
            self._seen = time.monotonic()
        silent = time.monotonic() - self._seen > _SILENT_SECONDS
        return silent or facts.has_ended(self._folder, self._holder)


class _Alive:
    """Ends the process if it makes no progress for too long, for example when a library hangs."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.beat()
        threading.Thread(target=self._watch, daemon=True).start()

    def beat(self) -> None:
        """Signals progress."""
        self._beat = time.monotonic()

    def _watch(self) -> None:
        while time.monotonic() - self._beat < _HANGS_SECONDS:
            time.sleep(_LOOK_SECONDS)
        self._log.say(f"nothing has come back for {_HANGS_SECONDS / 60:.0f} minutes: ended")
        os._exit(1)


def _described(error: Exception) -> str:
    said = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {said[:_LONGEST_REASON]}"


def _later(folder: Path, name: str) -> str:
    model_dir = display_names.of(folder)
    return f"what is missing is logged by --mode=log --to={name} --model_dir={model_dir}"


if __name__ == "__main__":
    os._exit(main())  # regardless of threads that a library has left
