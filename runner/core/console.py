"""Prints to stderr: lines, and on a terminal, one live line below them.

    console.say("building the model ...")
    console.show("step 10/100")    # on a terminal the live line, redrawn in place
    console.say("noted")           # above it
    console.end()

Without a terminal, all output is plain lines. rich is imported only if a terminal needs it. If
stderr cannot be written, the lines are dropped and the program continues.
"""

import contextlib
import io
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO

from runner.core import notebook
from runner.core import text as words

if TYPE_CHECKING:
    import rich.console
    import rich.live
    from rich import text

Note = Callable[[str], object]
"""Shows a user one line."""


class Console:
    """Prints lines and shows a live line.

    Args:
        stream: The stream to print to. None means the current `sys.stderr`.

    Attributes:
        shows_progress: Whether to show the live line, and others that only report progress.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._lock = threading.RLock()
        self._made: rich.console.Console | None = None
        self._live: rich.live.Live | None = None
        self._cell = notebook.Line()
        self.shows_progress = True

    @contextlib.contextmanager
    def without_progress(self) -> Iterator[None]:
        """A context in which `show` shows nothing, and `shows_progress` is false."""
        before, self.shows_progress = self.shows_progress, False
        try:
            yield
        finally:
            self.shows_progress = before

    @property
    def is_live(self) -> bool:
        """Whether `show` redraws one line in place: on a capable terminal, or in a notebook."""
        return self._is_in_notebook or self._is_terminal

    @property
    def _is_in_notebook(self) -> bool:
        return self._stream is None and notebook.is_running()

    @property
    def _is_terminal(self) -> bool:
        able = os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
        return able and self._file().isatty()

    @property
    def width(self) -> float:
        """The number of columns in a line, unlimited without a terminal."""
        if self._is_in_notebook:
            return notebook.WIDTH
        return self._rich().width - 1 if self.is_live else math.inf

    @property
    def pause(self) -> float:
        """Seconds to leave between two calls of `show` for the same activity."""
        return 0.2 if self.is_live else 30.0

    def say(self, line: "str | text.Text", *, style: str = "") -> None:
        """Prints a line above the live line, with terminal control codes escaped.

        Args:
            line: One or more lines. A Text has its own styles.
            style: A rich style such as "bold red", for terminals.
        """
        if isinstance(line, str):
            line = words.visible(line)
        with self._writing():
            styled = style or not isinstance(line, str)
            if self._live or (styled and self.is_live):
                from rich import text

                shown = text.Text(line, style=style) if isinstance(line, str) else line
                shown.plain = words.visible(shown.plain)
                self._rich().print(shown, soft_wrap=True)
            else:
                print(words.visible(str(line)), file=self._file(), flush=True)

    def announce(self, line: str) -> None:
        """Announces an operation that takes seconds, only on a terminal."""
        if self._file().isatty():
            self.say(line)

    def show(self, line: str, share: float | None = None) -> None:
        """Makes `line` the live line. Without a terminal, prints it.

        Args:
            line: The line.
            share: How much of the work is done, from 0 to 1, for the bar in a notebook.
        """
        if not self.shows_progress:
            return
        if not self.is_live:
            self.say(line)
            return
        if self._is_in_notebook:
            with self._writing():
                self._cell.show(words.visible(line), share)
            return
        from rich import live, text

        with self._writing():
            if self._live is None:
                self._live = live.Live(
                    console=self._rich(),
                    auto_refresh=False,
                    redirect_stdout=self._stream is None
                    and _is_open(sys.stdout)
                    and sys.stdout.isatty(),
                    redirect_stderr=self._stream is None,  # other code's lines go above it, too
                )
                self._live.start()
            self._live.update(
                text.Text(words.visible(line), no_wrap=True, overflow="ellipsis"), refresh=True
            )

    def end(self, *, keep: bool = True) -> None:
        """Ends the live line. The next output appears below it, or replaces it unless `keep`."""
        with self._writing():
            live, self._live = self._live, None
            if live:
                live.transient = not keep
                live.stop()
            self._cell.end(keep=keep)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Lets one thread write at a time, and ignores errors if stderr cannot be written."""
        with self._lock:
            try:
                yield
            except OSError:
                if self._stream is not None:  # not stderr: the caller needs to know
                    raise

    def _file(self) -> TextIO:
        stream = self._stream or sys.stderr
        return stream if _is_open(stream) else io.StringIO()

    def _rich(self) -> "rich.console.Console":
        """Returns rich's console for a terminal."""
        if self._made is None:
            from rich import console

            class Visible(console.Console):
                """Never hides the cursor, because a killed process could not restore it."""

                def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002
                    return False

            self._made = Visible(file=self._stream, stderr=True, force_terminal=True)
        return self._made


class Lines:
    """A stream for the handlers of `logging` and absl that prints through the console."""

    def write(self, text: str) -> None:
        """Prints a line. Handlers write whole lines."""
        if text.rstrip("\n"):
            say(text.rstrip("\n"))

    def flush(self) -> None:
        """Does nothing, as lines are not buffered."""

    def isatty(self) -> bool:
        """Returns True, so that absl does not close it."""
        return True


STDERR = Console()
"""The console of the process."""


def flush() -> None:
    """Flushes stdout and stderr, and ignores errors."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            if _is_open(stream):
                stream.flush()


def _is_open(stream: TextIO | None) -> bool:
    """Returns whether a stream can be used. Python sets one that starts closed to None."""
    return stream is not None and not getattr(stream, "closed", False)


def answers() -> Console:
    """Returns a console on stdout, for a mode's output, such as a table of runs, to be piped."""
    return Console(sys.stdout)


say = STDERR.say
announce = STDERR.announce
show = STDERR.show
end = STDERR.end
