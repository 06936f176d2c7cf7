"""Work that a thread of its own does, in order, while training goes on. Standard library only."""

import collections
from collections.abc import Callable
from concurrent import futures

_MOST = 64  # pieces of work that may wait: who hands over more waits for the first


class Background:
    """Does what it is handed; what that raises is raised by the next call."""

    def __init__(self) -> None:
        self._thread = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="background")
        self._handed: collections.deque[futures.Future] = collections.deque()

    def do(self, work: Callable[[], object]) -> None:
        """Hands over `work`, which is done after all that was handed over before."""
        while self._handed and (self._handed[0].done() or len(self._handed) >= _MOST):
            self._handed.popleft().result()
        self._handed.append(self._thread.submit(work))

    def wait(self) -> None:
        """Returns when everything is done."""
        while self._handed:
            self._handed.popleft().result()

    def close(self) -> None:
        """Waits, and ends the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()
