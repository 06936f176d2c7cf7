"""Measures what the time of an attempt is spent on. No TensorFlow."""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from typing import Literal

from runner.core import schedule

Phase = Literal["start", "training", "evaluation", "checkpoint", "rollback", "end"]

_SUSPENDED = 5.0  # a heartbeat later than this many seconds shows that the process was suspended
_BUSY = 0.1  # if it used more than this fraction of that time on a processor, it was only slow


def _now() -> float:
    """Returns seconds by a clock that also runs while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Spent:
    """The time of one attempt, in seconds, by what it was spent on.

        spent = Spent()
        spent.turn("training")
        with spent.on("evaluation"):
            ...
        spent.as_dict()

    Args:
        launched: When the process was started, in seconds since the epoch. None means now.
        clock: Returns seconds. Tests can replace it.
        processor: Returns the processor seconds of this process. Tests can replace it.

    Attributes:
        furthest: The last step that earlier attempts, or this one before a rollback, completed.
        thrown_away: The number of completed steps that are not part of the run.
    """

    def __init__(
        self,
        launched: float | None = None,
        *,
        clock: Callable[[], float] = _now,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self.furthest = 0
        self.thrown_away = 0
        self._clock = clock
        self._processor = processor
        self._lock = threading.RLock()  # the heartbeat thread reads the times, too
        self._seconds: dict[str, float] = {}
        self._phases: list[str] = ["start"]
        self._since = clock()
        if launched is not None:
            self._seconds["start"] = max(time.time() - launched, 0.0)
        self._heard = self._since, processor()
        self._first: schedule.Loop | None = None
        self._first_again = 0.0  # the fraction of it that repeats earlier steps
        self._steps = self._step = self._from = 0
        self._later = 0, 0.0  # steps and seconds of all loops except the first
        self._again = 0.0
        self._waited = 0.0

    def turn(self, phase: Phase) -> None:
        """Assigns the time from now on, outside `on` blocks, to `phase`."""
        with self._lock:
            self._count()
            self._phases[0] = phase

    @contextlib.contextmanager
    def on(self, phase: Phase) -> Iterator[None]:
        """Assigns the time within the block to `phase`."""
        with self._lock:
            self._count()
            self._phases.append(phase)
        try:
            yield
        finally:
            with self._lock:
                self._count()
                self._phases.pop()

    def resumed(self, step: int, *, reached: int, furthest: int) -> None:
        """Records that the attempt continues from `step`.

        Args:
            step: The step of the checkpoint.
            reached: The last step of the previous attempt.
            furthest: The last step of any attempt.
        """
        self._from = step
        self.furthest = max(step, reached, furthest)
        self.thrown_away += max(reached - step, 0)

    def rolled_back(self, step: int, *, to: int) -> None:
        """Records that training went back from one step to another."""
        self.furthest = max(step, self.furthest)
        self.thrown_away += step - to

    def trained(self, loop: schedule.Loop, *, input_wait: float | None = None) -> None:
        """Records a trained loop. `input_wait` is the fraction of its time spent on input waits."""
        self._steps += loop.steps
        self._step = loop.step
        if self._first is None:
            self._first = dataclasses.replace(loop, logs={})
            self._first_again = self._repeated(loop)
            return
        steps, seconds = self._later
        self._later = steps + loop.steps, seconds + loop.seconds
        again = loop.seconds * self._repeated(loop)
        self._again += again
        self._waited += (loop.seconds - again) * (input_wait or 0.0)

    def beat(self) -> None:
        """Must be called regularly. A late call in an idle process marks a suspension's end."""
        with self._lock:
            self._count()
            (then, busy), self._heard = self._heard, (self._since, self._processor())
            late = self._since - then - _SUSPENDED
            if late > _SUSPENDED and self._heard[1] - busy < _BUSY * late:
                phase = self._phases[-1]
                late = min(late, self._seconds[phase])
                self._seconds[phase] -= late
                self._seconds["suspended"] = self._seconds.get("suspended", 0.0) + late

    def as_dict(self) -> dict[str, float]:
        """Returns the values for JSON: the seconds, which add up to the total, and the step counts.

        `compile` is how much longer the first loop took than its steps would have taken later.
        """
        with self._lock:
            self._count()
            found = dict(self._seconds)
        compiling, again = 0.0, self._again
        steps, seconds = self._later
        if self._first and steps:
            usual = seconds / steps * self._first.steps
            compiling = max(self._first.seconds - usual, 0.0)
            again += (self._first.seconds - compiling) * self._first_again
        elif self._first:
            again += self._first.seconds * self._first_again
        if training := found.get("training", 0.0):
            taken = {"compile": compiling, "again": again, "input_wait": self._waited}
            found.update((name, value) for name, value in taken.items() if value)
            found["training"] = max(training - sum(taken.values()), 0.0)
        counts = {
            "from": self._from,
            "steps": self._steps,
            "thrown_away": self.thrown_away,
            "furthest": max(self.furthest, self._step),
        }
        return {**{name: round(value, 3) for name, value in found.items()}, **counts}

    def _repeated(self, loop: schedule.Loop) -> float:
        """Returns the fraction of a loop's steps that repeat earlier steps."""
        repeated = self.furthest - (loop.step - loop.steps)
        return min(max(repeated / max(loop.steps, 1), 0.0), 1.0)

    def _count(self) -> None:
        now, phase = self._clock(), self._phases[-1]
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._since
        self._since = now
