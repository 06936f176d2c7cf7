"""The live display of a study: running trials, ended trials, and the remaining time."""

import time
from collections.abc import Callable, Mapping, Sequence

from runner.core import console, text
from runner.reporting import table
from runner.run_directory.state import FINISHED, State
from runner.studies import trial
from runner.studies.trial import Trial

_ENDED = (*FINISHED, State.DIVERGED, State.REJECTED, State.FAILED)
_PAUSE = 0.5
_MOST = 20  # trials shown


class Board:
    """The live lines: on a terminal a table of running trials, and below it a line for the study.

    Args:
        size: How many trials there will be.
        screen: The console.
        clock: Seconds, for tests to inject.
    """

    def __init__(
        self,
        size: int,
        *,
        screen: console.Console = console.STDERR,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._size = size
        self._screen = screen
        self._clock = clock
        self._began = clock()
        self._shown = float("-inf")
        self._ended = 0  # since this process began
        self._starts: dict[tuple[int, int], tuple[float, int]] = {}

    def ended(self, one: Trial) -> None:
        """Prints how a trial has ended."""
        self._ended += one.state in _ENDED
        metric = one.objective.metric
        value = f", best {metric} {one.best[metric]:.4g}" if metric in one.best else ""
        why = f": {one.reason}" if one.reason and one.state != State.PAUSED else ""
        self._screen.say(f"{one.folder.name}: {one.state} at step {one.step:,}{value}{why}")

    def show(self, trials: Sequence[Trial], running: Mapping[int, int | str]) -> None:
        """Redraws the live lines at intervals.

        Args:
            trials: All trials, as far as they are known.
            running: The numbers of the trials that run here, and the steps that they train to, or
                what is done with them instead.
        """
        if self._clock() - self._shown < max(self._screen.pause, _PAUSE):
            return
        self._shown = self._clock()
        line = self._whole(trials, running)
        if self._screen.is_live and running:
            now = [trial.read(each.folder) for each in trials if each.number in running][:_MOST]
            rows = [["trial", "", "step", now[0].objective.metric, "left"]]
            rows += [self._row(each, running[each.number]) for each in now]
            lines = table.aligned(rows, left=2, width=self._screen.width)
            line = "\n".join([*lines, line])
        self._screen.show(line)

    def _row(self, one: Trial, goal: int | str) -> list[str]:
        if isinstance(goal, str):
            return [str(one.number), one.described, goal, "", ""]
        began, first = self._starts.setdefault((one.number, goal), (self._clock(), one.step))
        seconds, steps = self._clock() - began, one.step - first
        left = text.duration(seconds / steps * (goal - one.step)) if steps > 0 else ""
        value = one.last.get(one.objective.metric)
        shown = "" if value is None else f"{value:.4g}"
        return [str(one.number), one.described, f"{one.step:,} of {goal:,}", shown, left]

    def _whole(self, trials: Sequence[Trial], running: Mapping[int, int | str]) -> str:
        over = sum(each.state in _ENDED for each in trials)
        words = [f"{over} of {self._size} trials", f"running {', '.join(map(str, running)) or '-'}"]
        known = [(value, each) for each in trials if (value := trial.worth(each)) is not None]
        if known:
            best = min(known, key=lambda pair: pair[0])[1]
            if best.best:
                words.append(f"best {best.best[best.objective.metric]:.4g} (trial {best.number})")
        if self._ended:
            seconds = (self._clock() - self._began) / self._ended * (self._size - over)
            words.append(f"about {text.duration(seconds)} left")
        return " | ".join(words)
