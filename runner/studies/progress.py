"""What a study shows while it works: what runs, what has ended, and how long it will take."""

import time
from collections.abc import Sequence

from runner.core import console
from runner.studies import plan, trial
from runner.studies.trial import Trial

_ENDED = (*trial.FINISHED, "diverged", "refused", "failed")


class Board:
    """The live lines.

    Args:
        size: How many trials there will be.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._began = time.monotonic()
        self._shown = 0.0
        self._ended = 0  # since this process began

    def ended(self, one: Trial) -> None:
        """Says how a trial has ended."""
        self._ended += one.state in _ENDED
        metric = one.objective.metric
        value = f", best {metric} {one.best[metric]:.4g}" if metric in one.best else ""
        why = f": {one.reason}" if one.reason else ""
        console.say(f"{one.folder.name}: {one.state} at step {one.step:,}{value}{why}")

    def show(self, trials: Sequence[Trial], running: Sequence[int]) -> None:
        """Redraws the live line, now and then."""
        if time.monotonic() - self._shown < console.STDERR.pause:
            return
        self._shown = time.monotonic()
        over = sum(each.state in _ENDED for each in trials)
        words = [f"{over} of {self._size} trials", f"running {', '.join(map(str, running)) or '-'}"]
        known = [(value, each) for each in trials if (value := plan.worth(each)) is not None]
        if known:
            best = min(known, key=lambda pair: pair[0])[1]
            if best.best:
                words.append(f"best {best.best[best.objective.metric]:.4g} (trial {best.number})")
        if self._ended:
            seconds = (time.monotonic() - self._began) / self._ended * (self._size - over)
            words.append(f"about {_duration(seconds)} left")
        console.show(" | ".join(words))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
