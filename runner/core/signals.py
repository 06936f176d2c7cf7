"""SIGTERM and SIGINT: a stop that the loop sees. No TensorFlow.

A Python handler runs only when the interpreter gets control, and a loop inside TensorFlow may keep
it for minutes. With `signal.set_wakeup_fd` the operating system tells a thread at once, and the
thread sets what the loop looks at. A second signal ends the process there and then, but not one
that another process looks after: both may be sent the same signal, and the other passes it on.
"""

import contextlib
import ctypes
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

_SERVED = (signal.SIGTERM, signal.SIGINT)
_GRACE_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


_LEAVING: list[Callable[[], object]] = []


@contextlib.contextmanager
def leaving(undo: Callable[[], object]) -> Iterator[None]:
    """Within the block, `undo` is called last before a process that ignores a signal is ended."""
    _LEAVING.append(undo)
    try:
        yield
    finally:
        _LEAVING.remove(undo)


class Interrupted(KeyboardInterrupt):
    """A signal came, and there was nothing to save or it has been saved.

    Args:
        number: The signal.
        at_once: It was the second signal, and nothing more was saved.
        saved: Whether the current state was saved; a broken one is not.
    """

    def __init__(self, number: int, *, at_once: bool = False, saved: bool = True) -> None:
        by = "ended by a second" if at_once else "stopped by"
        super().__init__(f"{by} {signal.Signals(number).name}")
        self.saved = saved and not at_once
        self.exit_code = 128 + number
        self.is_preemption = number == signal.SIGTERM


class Stop:
    """Whether a signal has come, and what happens when one comes.

    At first a signal raises `Interrupted` wherever the main thread is. Inside `deferred` it is only
    noted; the code there checks `requested` and ends in order.

    Attributes:
        number: The signal, None before one has come.
        step: The step at which the run ended without results, for its final message; None before
            it has started.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.step: int | None = None
        self._raises = True
        self._raised = False
        self._ends = False
        self._serve: Callable[[], object] = lambda: None
        self._told: list[Callable[[], None]] = []
        self._last_words: list[Callable[[Any], object]] = []

    @property
    def requested(self) -> bool:
        """Whether a signal has come."""
        return self.number is not None

    def tell(self, told: Callable[[], None]) -> None:
        """Calls `told` from another thread as soon as a signal comes."""
        self._told.append(told)

    def hear(self, number: int) -> None:
        """Takes it that this signal has come: it came to another worker of the run."""
        if self.number is None:
            self.number = number
            for told in self._told:
                told()

    def serve_again(self) -> None:
        """Takes signals back from a library that has put its own handlers in place."""
        self._serve()

    def check(self, *, saved: bool = True) -> None:
        """Raises `Interrupted` if a signal has come; `saved`: whether the state was saved."""
        if self.number is not None:
            raise Interrupted(self.number, saved=saved)

    @contextlib.contextmanager
    def deferred(self, *, checks: bool = True) -> Iterator[None]:
        """Within the block, a signal raises nothing; `checks`: one that came before does."""
        if checks:
            self.check()
        self._raises = False
        try:
            yield
        finally:
            self._raises = True

    @contextlib.contextmanager
    def abandoning(self, told: Callable[[Any], object]) -> Iterator[None]:
        """Within the block, `told` is called with the error before a process is abandoned.

        That is done to one that ignores a signal, or that cannot go on and may be blocked.

        The innermost block's is called first. All calls together have one second.
        """
        self._last_words.append(told)
        try:
            yield
        finally:
            self._last_words.remove(told)

    def _noted(self, number: int) -> None:
        """In the watching thread."""
        self.number = number
        for told in self._told:
            told()
        if self._raises:  # the main thread may be deep in foreign code, and nothing is to be saved
            timer = threading.Timer(_GRACE_SECONDS, self._end_unless_deferred)
            timer.daemon = True
            timer.start()

    def _end_unless_deferred(self) -> None:
        if self._raises and self.number:
            self.abandon(Interrupted(self.number))

    def abandon(self, error: BaseException) -> NoReturn:
        """Ends the process with an error's exit code, whatever its threads are doing.

        What `abandoning` was given is called before.
        """
        self._ends = True

        def say() -> None:
            for told in reversed(self._last_words):
                told(error)
            for undo in reversed(_LEAVING):
                undo()

        saying = threading.Thread(target=say, daemon=True)
        saying.start()
        saying.join(_GRACE_SECONDS)
        os._exit(getattr(error, "exit_code", 1))

    def _handle(self, number: int, _: FrameType | None) -> None:
        """In the main thread, as soon as it runs Python."""
        self.number = number
        if self._raises and not (self._raised and _is_echo(number)):
            self._raised = True
            raise Interrupted(number)


ONE_SIGTERM = "RUNNER_ONE_SIGTERM"
"""Set in the environment of a process that gets SIGTERM from a scheduler and from its parent, too:
there the second one says nothing new, and the scheduler ends the process when it must."""


def _is_echo(number: int) -> bool:
    return number == signal.SIGTERM and ONE_SIGTERM in os.environ


ENDS_WITH_STDIN = "RUNNER_ENDS_WITH_STDIN"
"""Set in the environment of a process whose stdin is a pipe that its parent holds open."""


_is_looked_after = False


def end_with_parent() -> None:
    """Ends this process when its parent is gone, if the parent asked for that."""
    global _is_looked_after
    if os.environ.pop(ENDS_WITH_STDIN, ""):
        _is_looked_after = True

        def watch() -> None:
            while os.read(0, 1):
                pass
            os._exit(128 + signal.SIGHUP)

        threading.Thread(target=watch, daemon=True).start()


def die_with_parent() -> None:
    """On Linux, has the system kill this process when its parent is gone, even if suspended.

    The parent is the thread that has started this process: its main thread, or this dies early.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


@contextlib.contextmanager
def served() -> Iterator[Stop]:
    """Handles signals within the block; outside the main thread Python cannot, so none is noted.

    A handler of the caller's is called after the block, once for the signal that ended it.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    threading.Thread(target=_watch, args=(reading, stop), daemon=True).start()

    def serve() -> dict[signal.Signals, Any]:
        return {number: signal.signal(number, stop._handle) for number in _SERVED}

    before, stop._serve = serve(), serve
    wakeup = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    try:
        yield stop
    finally:
        stop._raises = False  # the caller goes on: no timer may end the process now
        while stop._ends:  # the signal counts, not what its clean-up has made fail here
            time.sleep(_GRACE_SECONDS)
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        writing.close()  # ends the thread
        for number, handler in before.items():
            own = callable(handler) and handler is not signal.default_int_handler
            if own and number == stop.number:
                signal.raise_signal(number)


def _watch(reading: socket.socket, stop: Stop) -> None:
    """Reads the numbers of the signals that come, until the other end is closed."""
    seen = 0
    with reading:
        while number := reading.recv(1):
            if number[0] in _SERVED:
                if seen and _is_echo(number[0]):
                    continue
                seen += 1
                if seen > 1 and not _is_looked_after:
                    stop.abandon(Interrupted(number[0], at_once=True))
                stop._noted(number[0])
