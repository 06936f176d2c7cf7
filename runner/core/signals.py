"""Turns SIGTERM and SIGINT into a stop that the training loop can see. No TensorFlow.

A Python signal handler runs only when the interpreter has control, and a loop inside TensorFlow may
keep control for minutes. With `signal.set_wakeup_fd`, the operating system wakes a thread at once,
and the thread sets the flag that the loop checks. A second signal ends the process immediately. The
exception is a process that a parent supervises: both may get a signal, and the parent forwards it.
"""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

WATCHER = "signals"
"""The name of the thread that sees signals. It holds no locks."""

_SERVED = (signal.SIGTERM, signal.SIGINT)
_GRACE_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>

_LEAVING: list[Callable[[], object]] = []


@contextlib.contextmanager
def leaving(undo: Callable[[], object]) -> Iterator[None]:
    """Calls `undo` last if this process is ended within the block for ignoring a signal."""
    _LEAVING.append(undo)
    try:
        yield
    finally:
        _LEAVING.remove(undo)


class Interrupted(KeyboardInterrupt):
    """A signal was received, and any state to save has been saved.

    Args:
        number: The signal.
        at_once: Whether it was the second signal, after which no state is saved.
        saved: Whether the current state was saved. A broken state is not saved.
    """

    def __init__(self, number: int, *, at_once: bool = False, saved: bool = True) -> None:
        by = "ended by a second" if at_once else "stopped by"
        super().__init__(f"{by} {signal.Signals(number).name}")
        self.saved = saved and not at_once
        self.exit_code = 128 + number
        self.is_preemption = number == signal.SIGTERM


class Stop:
    """Records whether a signal was received, and decides what happens then.

    A signal raises `Interrupted` wherever the main thread is, except inside `deferred`. There, the
    signal is only recorded: the code checks `requested` and stops in an orderly way.

    Attributes:
        number: The signal, or None before one was received.
        step: The step at which the run ended without results, for its final message. None before it
            has started.
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
        """Whether a signal was received."""
        return self.number is not None

    def tell(self, told: Callable[[], None]) -> None:
        """Calls `told` from another thread as soon as a signal is received."""
        self._told.append(told)

    def hear(self, number: int) -> None:
        """Acts as if this signal was received, because another worker of the run received it."""
        if self.number is None:
            self.number = number
            for told in self._told:
                told()

    def serve_again(self) -> None:
        """Reinstalls the handlers after a library has replaced them."""
        self._serve()

    def check(self, *, saved: bool = True) -> None:
        """Raises `Interrupted` if a signal was received. `saved`: whether the state was saved."""
        if self.number is not None:
            raise Interrupted(self.number, saved=saved)

    @contextlib.contextmanager
    def deferred(self, *, checks: bool = True) -> Iterator[None]:
        """Defers signals within the block. If `checks` is true, an earlier signal raises first."""
        if checks:
            self.check()
        self._raises = False
        try:
            yield
        finally:
            self._raises = True

    @contextlib.contextmanager
    def abandoning(self, told: Callable[[Any], object]) -> Iterator[None]:
        """Calls `told` with the error if the process is abandoned within the block.

        A process is abandoned if it ignores a signal, or if it cannot continue and may be blocked.

        The function of the innermost block is called first. All calls together have one second.
        """
        self._last_words.append(told)
        try:
            yield
        finally:
            self._last_words.remove(told)

    def _noted(self, number: int) -> None:
        """Runs in the watching thread."""
        self.number = number
        for told in self._told:
            told()
        if self._raises:  # the main thread may be deep in foreign code, with nothing to save
            timer = threading.Timer(_GRACE_SECONDS, self._end_unless_deferred)
            timer.daemon = True
            timer.start()

    def _end_unless_deferred(self) -> None:
        if self._raises and self.number:
            self.abandon(Interrupted(self.number))

    def abandon(self, error: BaseException) -> NoReturn:
        """Ends the process with an error's exit code, whatever its threads are doing.

        It calls the functions passed to `abandoning` first.
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
        """Runs in the main thread, as soon as that runs Python code."""
        self.number = number
        if self._raises and not (self._raised and _is_echo(number)):
            self._raised = True
            raise Interrupted(number)


ONE_SIGTERM = "RUNNER_ONE_SIGTERM"
"""Set in the environment of a process that gets SIGTERM both from a scheduler and from its parent.
The second SIGTERM is then ignored, and the scheduler kills the process if necessary."""


def _is_echo(number: int) -> bool:
    return number == signal.SIGTERM and ONE_SIGTERM in os.environ


ENDS_WITH_STDIN = "RUNNER_ENDS_WITH_STDIN"
"""Set in the environment of a process whose stdin is a pipe that its parent keeps open."""


_is_looked_after = False


def end_with_parent() -> None:
    """Ends this process when its parent is gone, if the parent requested that."""
    global _is_looked_after
    if os.environ.pop(ENDS_WITH_STDIN, ""):
        _is_looked_after = True

        def watch() -> None:
            while os.read(0, 1):
                pass
            os._exit(128 + signal.SIGHUP)

        threading.Thread(target=watch, daemon=True).start()


def die_with_parent() -> None:
    """Makes Linux kill this process when its parent is gone, even if this process is suspended.

    The parent is the thread that started this process. Start it from the main thread, or it dies
    early.
    """
    import ctypes  # slow to import

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


@contextlib.contextmanager
def served() -> Iterator[Stop]:
    """Handles signals within the block.

    Python handles signals only in the main thread, so no signal is recorded in other threads. The
    caller's own handler runs after the block, once, for the signal that ended it.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    threading.Thread(target=_watch, args=(reading, stop), daemon=True, name=WATCHER).start()

    def serve() -> dict[signal.Signals, Any]:
        return {number: signal.signal(number, stop._handle) for number in _SERVED}

    before, stop._serve = serve(), serve
    wakeup = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    try:
        yield stop
    finally:
        stop._raises = False  # the caller continues: no timer may end the process now
        while stop._ends:  # the signal decides the exit, not an error caused by its clean-up
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
    """Reads the numbers of received signals until the other end is closed."""
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
