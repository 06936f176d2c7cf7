"""Shows a run's progress: the live line, and a line for each evaluation. No TensorFlow."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from runner.core import console, text
from runner.history import best_evaluation, records

_RATE_SECONDS = 5.0


class Rate:
    """Training steps per second, without other work, averaged over about the last few seconds."""

    def __init__(self) -> None:
        self._steps = 0.0
        self._seconds = 0.0

    def add(self, steps: int, seconds: float) -> None:
        """Adds `steps` that took `seconds`. Older values decay."""
        fade = math.exp(-seconds / _RATE_SECONDS)
        self._steps = self._steps * fade + steps
        self._seconds = self._seconds * fade + seconds

    @property
    def value(self) -> float:
        """Steps per second, or 0 before the first step."""
        return self._steps / self._seconds if self._seconds else 0.0


class Progress:
    """The live line of one run.

    Args:
        total: The last training step.
        metric: The rule whose metrics are shown, latest and best. None shows none.
        deciding: Other metrics that affect decisions. They come next when an evaluation is printed.
        evaluations_left: Returns the number of evaluations left after a step, for the ETA.
        epochs: `total` in epochs, or 0 if lengths are not given in epochs.
        utilization: Converts steps per second to the fraction of the devices' peak. None shows
            none.
        screen: The console.
        hand_over: Runs the function that reads the loss and redraws, here or in another thread.
        clock: Returns seconds. Tests can replace it.
    """

    def __init__(
        self,
        total: int = 0,
        *,
        epochs: float = 0.0,
        metric: best_evaluation.BestRule | None = None,
        deciding: Sequence[str] = (),
        evaluations_left: Callable[[int], int] = lambda _: 0,
        utilization: Callable[[float], float] | None = None,
        screen: console.Console = console.STDERR,
        hand_over: Callable[[Callable[[], None]], None] = lambda redraw: redraw(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._rule = metric
        self._deciding = tuple(deciding)
        self._evaluations_left = evaluations_left
        self._utilization = utilization
        self._console = screen
        self._epochs = epochs
        self._hand_over = hand_over
        self._lock = threading.RLock()  # guards what is shown
        self._clock = clock
        self._start = clock()
        self._live, self._pause = screen.is_live, screen.pause
        self._shown = -math.inf
        self._rate = Rate()
        self._evaluation_seconds = 0.0
        self._newest: dict[str, float] = {}
        self._best: records.Evaluation | None = None
        self._learning_rate: Callable[[], float] | None = None
        self._epoch_seconds = 0.0
        self._last: tuple[int, Callable[[], float]] = (0, lambda: math.nan)
        self._line = ""

    def training(
        self,
        step: int,
        steps: int,
        seconds: float,
        loss: Callable[[], float],
        *,
        rate: Callable[[], float] | None = None,
        epoch_seconds: float = 0.0,
    ) -> None:
        """Updates the line after a loop of `steps` in `seconds` that ended at `step`.

        Args:
            step: The step at the end of the loop.
            steps: The number of steps.
            seconds: How long they took.
            loss: Returns the loss to show.
            rate: Returns the learning rate to show. None shows none.
            epoch_seconds: How long the last epoch took. 0 shows nothing.
        """
        self._rate.add(steps, seconds)
        self._learning_rate, self._epoch_seconds = rate, epoch_seconds
        self._last = (step, loss)
        if self._clock() - self._shown < self._pause and step < self._total:
            return
        self._shown = self._clock()
        self._hand_over(lambda: self._redraw(step, loss()))

    def resumed(self, newest: records.Evaluation, best: records.Evaluation | None) -> None:
        """Records the last evaluation of earlier attempts, and the best so far."""
        with self._lock:
            self._evaluation_seconds = newest.seconds
            self._best = best
            self._newest.update(newest.metrics)

    def evaluated(self, row: records.Evaluation, best: records.Evaluation | None) -> None:
        """Shows an evaluation. `best` is the best one so far."""
        with self._lock:
            self.resumed(row, best)
            if self._live and self._line:
                step, loss = self._last
                self._redraw(step, loss())
        if not self._console.shows_progress:
            return
        shown = self._ordered(row.metrics)
        is_best = best is not None and best.step == row.step
        if is_best:
            shown[0] += " (best)"
        taken = f"in {row.seconds:.1f} s{limited(row)}"
        line = f"evaluated step {row.step:,} {taken}: {', '.join(shown)}"
        self._console.say(self._fitting(line), style="green" if is_best else "")

    def close(self) -> None:
        """Ends the live line."""
        with self._lock:
            self._line = ""
            self._console.end()

    def _redraw(self, step: int, loss: float) -> None:
        with self._lock:
            self._line = self._fitting(self._describe(step, loss))
            self._console.show(self._line, step / self._total)

    def _describe(self, step: int, loss: float) -> str:
        done = step / self._total
        rate, eta = self._rate.value, f"ETA {self._eta(step)}"
        epoch = f"epoch {done * self._epochs:.1f}/{self._epochs:g}" if self._epochs else ""
        each = f" ({text.duration(self._epoch_seconds)} each)" if self._epoch_seconds else ""
        parts = {
            "step": f"step {step:,}/{self._total:,} {done:.0%}",
            "epoch": f"{epoch}{each}" if epoch else "",
            "rate": f"{rate:,.1f} steps/s",
            "mfu": f"MFU {self._utilization(rate):.0%}" if self._utilization else "",
            "eta": f"{eta}  elapsed {text.duration(self._clock() - self._start)}",
            "learning_rate": f"lr {self._learning_rate():.3g}" if self._learning_rate else "",
            "loss": f"loss {loss:.4g}",
            "metrics": self._metrics(self._watched),
        }
        shorter = [("mfu", ""), ("epoch", epoch), ("epoch", ""), ("rate", ""), ("eta", eta)]
        shorter += [("learning_rate", ""), ("eta", ""), ("step", f"{done:.0%}")]
        shorter += [("metrics", self._metrics(self._watched[:1])), ("step", "")]
        for name, less in shorter:  # the deciding metric is dropped last
            if len("  ".join(filter(None, parts.values()))) > self._console.width:
                parts[name] = less
        return "  ".join(filter(None, parts.values()))

    @property
    def _watched(self) -> Sequence[str]:
        return self._rule.names if self._rule else ()

    def _metrics(self, watched: Sequence[str]) -> str:
        """Formats `accuracy 0.91, macro_f1 0.63 (best 0.92, 0.61 @400)`, empty without values."""
        names = [name for name in watched if name in self._newest]
        shown = ", ".join(f"{name} {self._newest[name]:.4g}" for name in names)
        if names and self._best:
            known = self._best.metrics
            best = ", ".join(f"{known[name]:.4g}" if name in known else "-" for name in names)
            shown += f" (best {best} @{self._best.step:,})"
        return shown

    def _ordered(self, metrics: Mapping[str, float]) -> list[str]:
        """Formats values such as `accuracy 0.97`, with the deciding metrics first."""
        names = dict.fromkeys([*self._watched, *self._deciding, *sorted(metrics)])
        return [f"{name} {metrics[name]:.4g}" for name in names if name in metrics] or [""]

    def _eta(self, step: int) -> str:
        if not self._rate.value:
            return "?"
        left = (self._total - step) / self._rate.value
        return text.duration(left + self._evaluations_left(step) * self._evaluation_seconds)

    def _fitting(self, line: str) -> str:
        """Cuts a line between two values so that it fits the console."""
        width = self._console.width
        if len(line) <= width:
            return line
        room = line[: int(max(width - 3, 0))]
        end = max(room.rfind(", "), room.rfind("  "))
        return f"{line[:end]} ..." if end > 0 else line[: int(width)]


def limited(row: records.Evaluation | records.Test | records.Mean) -> str:
    """Formats ` on 2 batches only`, or an empty string for a complete evaluation."""
    if not row.limited:
        return ""
    return f" on {row.limited:,} {'batch' if row.limited == 1 else 'batches'} only"


def values(metrics: Mapping[str, float | str]) -> str:
    """Formats `accuracy 0.9712, validation_loss 0.1034`."""
    return ", ".join(f"{name} {float(value):.4g}" for name, value in sorted(metrics.items()))
