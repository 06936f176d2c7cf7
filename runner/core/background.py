"""Work done in order by a thread of its own while training goes on. Standard library only."""

import collections
from collections.abc import Callable
from concurrent import futures


class Background:
    """A queue of work; an exception in it is raised by the next call.

    Args:
        most: Pieces of work that may wait; beyond that, `do` blocks until the oldest is done.
    """

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._thread = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="background")
        self._waiting: collections.deque[futures.Future] = collections.deque()

    def do(self, work: Callable[[], object]) -> None:
        """Queues `work` behind all that was queued before."""
        while self._waiting and (self._waiting[0].done() or len(self._waiting) >= self._most):
            self._waiting.popleft().result()
        self._waiting.append(self._thread.submit(work))

    def wait(self) -> None:
        """Returns when everything is done."""
        while self._waiting:
            self._waiting.popleft().result()

    def close(self) -> None:
        """Finishes the queued work and ends the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()
