"""The loss curve of a learning-rate range test, its suggestion, and its text and plot.

The test is that of Leslie Smith, Cyclical Learning Rates for Training Neural Networks
(arXiv:1506.01186). As in `lr_find` of fastai and Lightning, the suggestion is the learning rate at
which the smoothed loss falls fastest.
"""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import figure

from runner.core import files
from runner.reporting import table

_ROWS = 10
_BARS = "▁▂▃▄▅▆▇█"
_LEAST = 5  # minimum number of points to detect a descent


class RateCurve:
    """The loss of each step of a sweep, and its moving average.

    Args:
        smoothing: The weight of the past in the moving average, which is corrected for its start.
        divergence: The sweep ends when the average is this many times its minimum.

    Attributes:
        rates: The learning rate of each step so far.
        losses: The loss of each step.
        smoothed: The moving average.
        ended: Why the sweep has ended, or empty while it continues.
    """

    def __init__(self, *, smoothing: float, divergence: float) -> None:
        self.rates: list[float] = []
        self.losses: list[float] = []
        self.smoothed: list[float] = []
        self.ended = ""
        self._smoothing = smoothing
        self._divergence = divergence
        self._average = 0.0

    def add(self, rate: float, loss: float) -> None:
        """Adds a step. A step whose loss is not finite only ends the sweep."""
        if not math.isfinite(loss):
            self.ended = f"the loss became {loss:g} at rate {rate:.3g}"
            return
        self._average = self._smoothing * self._average + (1 - self._smoothing) * loss
        smoothed = self._average / (1 - self._smoothing ** (len(self.losses) + 1))
        self.rates.append(rate)
        self.losses.append(loss)
        self.smoothed.append(smoothed)
        lowest = min(self.smoothed)
        if smoothed - lowest > (self._divergence - 1) * abs(lowest):
            self.ended = f"the loss rose to {self._divergence:g} times its lowest at {rate:.3g}"

    @property
    def suggestion(self) -> float | None:
        """The rate at which the loss falls fastest. None if it never falls, or after too few steps.

        The first tenth of the steps is ignored, because the average has not settled there.
        """
        first = len(self.rates) // 10
        if len(self.rates) - first < _LEAST:
            return None
        slopes = np.gradient(np.asarray(self.smoothed))[first:-1]
        steepest = int(np.argmin(slopes))
        return self.rates[first + steepest] if slopes[steepest] < 0 else None

    def as_dict(self) -> dict[str, Any]:
        """Returns the values for JSON."""
        return {
            "suggestion": self.suggestion,
            "ended": self.ended,
            "rates": self.rates,
            "losses": self.losses,
            "smoothed": self.smoothed,
        }

    def render(self) -> str:
        """Formats about ten rows of the curve, and all of it as a line of bars."""
        chosen = np.unique(np.linspace(0, len(self.rates) - 1, _ROWS).round().astype(int))
        rows = [
            (f"{self.rates[n]:.2e}", f"{self.losses[n]:.4g}", f"{self.smoothed[n]:.4g}")
            for n in chosen
        ]
        lines = table.aligned([("rate", "loss", "smoothed"), *rows], left=1)
        return "\n".join([*lines, f"smoothed, by rate: {self._bars()}"])

    def draw(self, path: Path) -> None:
        """Writes the plot, in the format of the path's suffix."""
        drawn = figure.Figure(figsize=(7, 4), layout="constrained")
        axes = drawn.subplots()
        axes.semilogx(self.rates, self.losses, color="0.75", label="loss")
        axes.semilogx(self.rates, self.smoothed, label="smoothed")
        if self.suggestion:
            label = f"suggestion: {self.suggestion:.3g}"
            axes.axvline(self.suggestion, color="tab:red", linestyle="--", label=label)
        low, high = min(self.smoothed), max(self.smoothed[: len(self.smoothed) // 2 + 1])
        room = 0.25 * max(high - low, 1e-12)
        axes.set_ylim(low - room, high + room)
        axes.set_xlabel("learning rate")
        axes.set_ylabel("training loss")
        axes.legend()
        buffer = io.BytesIO()
        drawn.savefig(buffer, format=path.suffix.removeprefix("."))
        with files.whole(path) as file:
            file.write(buffer.getvalue())

    def _bars(self) -> str:
        low, high = min(self.smoothed), max(self.smoothed[: len(self.smoothed) // 2 + 1])
        shares = (np.asarray(self.smoothed) - low) / max(high - low, 1e-12)
        levels = np.clip(shares * len(_BARS), 0, len(_BARS) - 1).astype(int)
        return "".join(_BARS[level] for level in levels)
