"""Sends regular heartbeats from a thread, during any other work. Standard library only."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from runner.core import console
from runner.errors import LostError

SECONDS = 5.0
"""Time between two beats."""


@contextlib.contextmanager
def beating(
    beat: Callable[[], None],
    *,
    seconds: float = SECONDS,
    note: console.Note = console.say,
    what: str = "heartbeat",
    waits: bool = True,
) -> Iterator[None]:
    """Makes a thread call `beat` every `seconds` within the block, even in long loops.

    If the file system rejects a beat (a full disk, an unreachable share), this is reported once,
    and the thread continues to try. When the directory's lock is lost, the thread ends.

    Args:
        beat: Called in the thread.
        seconds: Time between two beats.
        note: Called with a line when a beat fails.
        what: What to call a beat in that line.
        waits: Whether the end of the block waits for a beat in progress.
    """
    ended = threading.Event()

    def run() -> None:
        works = True
        while not ended.wait(seconds):
            try:
                beat()
                works = True
            except LostError:  # the next write in the directory detects it
                return
            except OSError as error:
                if works:
                    note(f"no {what}; the run continues: {error}")
                works = False

    thread = threading.Thread(target=run, name=what, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        if waits:
            thread.join()
