"""Shows a line in the output of a notebook cell, redrawn in place. No TensorFlow."""

import html
import sys
from typing import Any

WIDTH = 110
"""Columns of a line, which most notebooks show without wrapping it."""


def is_running() -> bool:
    """Returns whether this process is the kernel of a notebook, such as Jupyter's."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return hasattr(shell, "kernel")


class Line:
    """A line in the output of the running cell."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str, share: float | None = None) -> None:
        """Shows the line, or replaces it, after a bar if `share` (0 to 1) says what is done."""
        from IPython import display

        shown = {"text/plain": text}
        if share is not None:
            bar = f'<progress value="{share:.3f}"></progress>'
            shown["text/html"] = f"{bar} <code>{html.escape(text)}</code>"
        if self._handle is None:
            self._handle = display.display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def end(self, *, keep: bool) -> None:
        """Ends the line. The next one appears below it, or it is cleared unless `keep`."""
        if self._handle is not None and not keep:
            self.show("")
        self._handle = None
