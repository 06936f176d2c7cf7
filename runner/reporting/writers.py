"""The user's own writers, in addition to TensorBoard: `RunConfig.writers`."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runner.configuration import functions


class Writers:
    """Passes every training row and evaluation to the configured writers.

    They are created at the first write, and called by one thread at a time.

    Args:
        named: The writers.
    """

    def __init__(self, named: Sequence[functions.FunctionConfig] = ()) -> None:
        self._named = tuple(named)
        self._writers: list[Callable[..., Any]] = []
        self._lock = threading.Lock()

    def write(self, step: int, values: Mapping[str, float], name: str) -> None:
        """Calls each writer.

        Args:
            step: The training step.
            values: Names to numbers. Each writer gets a copy.
            name: `train`, `validation` or the name of an evaluation set.
        """
        with self._lock:
            if not self._writers:
                self._writers = [functions.build(each) for each in self._named]
            for writer in self._writers:
                writer(step, dict(values), name)

    def close(self) -> None:
        """Closes the writers that have a `close` method."""
        for writer in self._writers:
            close = getattr(writer, "close", None)
            if close is not None:
                close()
