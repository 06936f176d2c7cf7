"""Everything a person sees: lines on stderr, and below them, on a terminal, one live line.

    console.say("building the model ...")
    console.show("step 10/100")    # on a terminal the live line, redrawn in place
    console.say("noted")           # above it
    console.end()

Without a terminal all of this is plain lines. rich is loaded only when a terminal needs it. A
stderr that cannot be written stops nothing: its lines are dropped.
"""

import contextlib
import io
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO

from runner.core import text as words

if TYPE_CHECKING:
    import rich.console
    import rich.live
    from rich import text

Note = Callable[[str], object]
"""Shows a person one line."""


class Console:
    """Where lines go, and which live line is shown.

    Args:
        stream: Where to print; None for the current `sys.stderr`.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._lock = threading.RLock()
        self._made: rich.console.Console | None = None
        self._live: rich.live.Live | None = None

    @property
    def is_live(self) -> bool:
        """Whether `show` redraws one line in place: only on a terminal that can."""
        able = os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
        return able and self._file().isatty()

    @property
    def width(self) -> float:
        """How many columns fit on a line; unlimited without a terminal."""
        return self._rich().width - 1 if self.is_live else math.inf

    @property
    def pause(self) -> float:
        """How many seconds to leave between two calls of `show` for the same thing."""
        return 0.2 if self.is_live else 30.0

    def say(self, line: "str | text.Text", *, style: str = "") -> None:
        """Prints a line, above the live one; a terminal's control codes in it are spelled out.

        Args:
            line: One line or more; a Text has its own styles.
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
        """On a terminal, announces something that will take seconds."""
        if self._file().isatty():
            self.say(line)

    def show(self, line: str) -> None:
        """Makes `line` the live line; without a terminal, just prints it."""
        if not self.is_live:
            self.say(line)
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
                    redirect_stderr=self._stream is None,  # lines of others go above it, too
                )
                self._live.start()
            self._live.update(
                text.Text(words.visible(line), no_wrap=True, overflow="ellipsis"), refresh=True
            )

    def end(self, *, keep: bool = True) -> None:
        """Ends the live line; what is printed next comes below it, or in its place."""
        with self._writing():
            live, self._live = self._live, None
            if live:
                live.transient = not keep
                live.stop()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Within the block, one thread writes, and a stderr that takes nothing is no error."""
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
        """Rich's console for a terminal."""
        if self._made is None:
            from rich import console

            class Visible(console.Console):
                """Never hides the cursor: a killed process could not bring it back."""

                def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002
                    return False

            self._made = Visible(file=self._stream, stderr=True, force_terminal=True)
        return self._made


class Lines:
    """A stream for the log handlers of `logging` and absl that prints through the console."""

    def write(self, text: str) -> None:
        """Prints a line; handlers write whole lines."""
        if text.rstrip("\n"):
            say(text.rstrip("\n"))

    def flush(self) -> None:
        """Does nothing: lines are not buffered."""

    def isatty(self) -> bool:
        """True, so that absl does not close it."""
        return True


STDERR = Console()
"""The console of the process."""


def flush() -> None:
    """Writes what Python still holds back of both streams, as far as they take it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            if _is_open(stream):
                stream.flush()


def _is_open(stream: TextIO | None) -> bool:
    """Whether it can be used; Python has None for one that was closed before the start."""
    return stream is not None and not getattr(stream, "closed", False)


def answers() -> Console:
    """For what a mode was asked for, such as a table of runs: on stdout, to be piped."""
    return Console(sys.stdout)


say = STDERR.say
announce = STDERR.announce
show = STDERR.show
end = STDERR.end
