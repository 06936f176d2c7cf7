"""Runs work in order in a separate thread, alongside training. Standard library only."""

import collections
from collections.abc import Callable
from concurrent import futures


class Background:
    """A queue of work. An exception in it is raised by the next call.

    Args:
        most: The maximum number of waiting items. If it is exceeded, `do` blocks until the oldest
            is done.
    """

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._thread = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="background")
        self._waiting: collections.deque[futures.Future] = collections.deque()

    def do(self, work: Callable[[], object]) -> None:
        """Queues `work` after everything that is already queued."""
        while self._waiting and (self._waiting[0].done() or len(self._waiting) >= self._most):
            self._waiting.popleft().result()
        self._waiting.append(self._thread.submit(work))

    def wait(self) -> None:
        """Waits until all work is done."""
        while self._waiting:
            self._waiting.popleft().result()

    def close(self) -> None:
        """Finishes the queued work and ends the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()
