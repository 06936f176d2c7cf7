"""A sign of life, given again and again beside whatever else goes on. Standard library only."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from runner.core import console
from runner.errors import LostError

SECONDS = 5.0
"""How long from one sign of life to the next."""


@contextlib.contextmanager
def beating(
    beat: Callable[[], None], *, seconds: float = SECONDS, note: console.Note = console.say
) -> Iterator[None]:
    """Inside, a thread calls `beat` every `seconds`, through long loops and evaluations.

    A beat that the file system refuses (a full disk, a share that is away) is noted once for as
    long as that lasts; the next one is tried all the same. There is none after a lost claim.
    """
    ended = threading.Event()

    def run() -> None:
        works = True
        while not ended.wait(seconds):
            try:
                beat()
                works = True
            except LostError:  # whoever works in the folder finds out by itself
                return
            except OSError as error:
                if works:
                    note(f"no heartbeat, and the run goes on: {error}")
                works = False

    thread = threading.Thread(target=run, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
