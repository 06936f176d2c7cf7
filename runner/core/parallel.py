"""Computes a function of many items on all processors. Standard library only."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import process
from typing import TypeVar

from runner.core import signals
from runner.errors import RunnerError

Item = TypeVar("Item")
Result = TypeVar("Result")


def mapped(
    function: Callable[[Item], Result], items: Sequence[Item], *, at_once: int
) -> Iterator[Result]:
    """Yields `function(item)` for each item, in their order.

    If this process cannot be forked safely, or there are few items, it computes them itself: a fork
    copies locks that other threads hold, and TensorFlow does not work in it.

    Args:
        function: A function of a module. It must not change anything that this process needs.
        items: The items. Like the results, they can be pickled.
        at_once: How many items a process takes at once. Four times as many are worth a fork.

    Raises:
        RunnerError: a process was killed.
    """
    processes = min(len(os.sched_getaffinity(0)), len(items) // (2 * at_once))
    threads = {thread.name for thread in threading.enumerate()}
    others = threads - {threading.main_thread().name, signals.WATCHER}
    if processes < 2 or others or "tensorflow" in sys.modules:
        yield from map(function, items)
        return
    forks = multiprocessing.get_context("fork")
    try:
        with futures.ProcessPoolExecutor(processes, forks, _serve) as pool:
            yield from pool.map(function, items, chunksize=at_once)
    except process.BrokenProcessPool as error:
        raise RunnerError("a process was killed, perhaps because memory ran out") from error


def _serve() -> None:
    """Leaves signals to the process that was forked, and ends with it."""
    signals.die_with_parent()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
