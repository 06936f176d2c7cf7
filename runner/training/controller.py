"""The outer loop: what happens at which step, in which order, and how it stops."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import orbit
import tensorflow as tf

from runner.core import schedule, signals


class Pace:
    """How many steps take about a second, as far as the loops until now tell."""

    def __init__(self) -> None:
        self.steps = 1

    def add(self, steps: int, seconds: float) -> None:
        """After a loop. The next has at most four times as many steps: short loops tell little."""
        second = round(steps / max(seconds, 1e-9))
        self.steps = max(1, min(second, 4 * self.steps))


class Controller:
    """Drives a trainer over a grid, in a fixed order at each boundary.

    train -> guard -> commit the checkpoint -> evaluate -> record -> decide

    Decisions that come from outside are taken just before a commit.

    Args:
        grid: When things fall due.
        step: The step that the trainer's state belongs to.
        trainer: Orbit's trainer.
        position: The step that the trainer is at, where a signal may have ended a loop early.
        broken: What is broken after a loop, given whether a commit falls due; None for nothing.
        recover: Given what is broken, goes back to a committed step and returns it, or raises.
        decide: Takes decisions from outside, given the step that is about to be committed. It
            returns the reason to stop that stands, or None.
        commit: Saves the trainer's state as that of a step, unless that is done.
        wait: Returns when every commit is on disk.
        evaluate: Evaluates the trainer's state, given its step, and records the result. It
            returns a reason to stop or None.
        evaluated: Whether a step's evaluation is in the history already.
        finish: Evaluates what was not due at the step where the run has stopped early.
        after_loop: Called after each loop, before anything is committed.
        actions: Called with the logs of each loop, after `after_loop`.
        stop: Whether a signal has come.
        seconds: So long after a commit one more is made, off the grid; 0 for none. It changes
            nothing of what is trained: what is broken then is left for the grid to find.
        clock: Seconds, for tests to inject.
    """

    def __init__(
        self,
        grid: schedule.Grid,
        *,
        step: int,
        trainer: orbit.AbstractTrainer,
        position: Callable[[], int],
        broken: Callable[[schedule.Loop, bool], str | None],
        recover: Callable[[str], int],
        decide: Callable[[int], str | None],
        commit: Callable[[int], None],
        wait: Callable[[], None],
        evaluate: Callable[[int], str | None],
        evaluated: Callable[[int], bool],
        finish: Callable[[int], None],
        after_loop: Callable[[schedule.Loop], None],
        actions: Sequence[schedule.Action] = (),
        stop: signals.Stop | None = None,
        seconds: float = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._grid = grid
        self.step = step
        self._trainer = trainer
        self._position = position
        self._broken = broken
        self._recover = recover
        self._standing = decide
        self._commit = commit
        self._wait = wait
        self._evaluate = evaluate
        self._evaluated = evaluated
        self._finish = finish
        self._after_loop = after_loop
        self._actions = tuple(actions)
        self._stop = stop or signals.Stop()
        self._seconds = seconds
        self._clock = clock
        self._committed_at = clock() if seconds else 0.0
        self._pace = Pace()
        self._uncommitted = 0  # steps since the last commit of this start
        self.stop_reason: str | None = None

    def stop(self, reason: str) -> None:
        """Ends the run at the next boundary, committed there; the first reason given counts."""
        self.stop_reason = self.stop_reason or reason

    def run(self) -> None:
        """Trains to the end of the grid or until something stops it; all is on disk then.

        Raises:
            DivergedError: training broke, and there is no way on. Nothing broken was committed.
            signals.Interrupted: a signal came; everything is saved.
        """
        try:
            with self._stop.deferred():
                self._run()
        finally:
            self._wait()

    def _run(self) -> None:
        grid = self._grid
        if self.step and grid.evaluates(self.step) and not self._evaluated(self.step):
            self._decide(self._evaluate(self.step))
        self._decide(self._standing(self.step))
        while self.step < grid.end and not self.stop_reason:
            self._boundary(self._train())
        self._commit(self.step)
        if self.stop_reason and grid.evaluations:
            self._finish(self.step)

    def _boundary(self, loop: schedule.Loop) -> None:
        """What falls due after a loop, in its order."""
        stopped = self._stop.requested
        commits, evaluates = self._grid.commits(loop.step), self._grid.evaluates(loop.step)
        looks = commits or evaluates
        if (loop.summary or looks or stopped) and self._recovered(loop, looks):
            return
        if loop.steps:
            self._uncommitted += loop.steps
            self._after_loop(loop)
            for action in self._actions:
                self._decide(action(loop.logs))
        if self._uncommitted and (commits or stopped or self.stop_reason or self._is_overdue()):
            if not commits and (stopped or not self.stop_reason) and self._broken(loop, True):
                self._stop.check(saved=False)  # the next start breaks where this one would have
                return
            if not commits and self._recovered(loop, True):  # an action stops the run here
                return
            self._decide(self._standing(loop.step))
            self._commit(loop.step)
            self._uncommitted = 0
            self._committed_at = self._clock() if self._seconds else 0.0
        if stopped:
            self._stop.check()
        if evaluates:
            self._decide(self._evaluated_at(loop.step))

    def _evaluated_at(self, step: int) -> str | None:
        """The reason to stop that an evaluation gave; what breaks it off costs no training."""
        try:
            return self._evaluate(step)
        except BaseException:
            if not self._grid.commits(step):
                self._commit(step)
            raise

    def _is_overdue(self) -> bool:
        """Whether the last commit is too long ago."""
        return self._seconds > 0 and self._clock() - self._committed_at >= self._seconds

    def _recovered(self, loop: schedule.Loop, commits: bool) -> bool:
        """Whether training broke; if so, it is back at a committed step."""
        reason = self._broken(loop, commits)
        if reason is None:
            return False
        self.step = self._recover(reason)
        self._uncommitted = 0
        return True

    def _train(self) -> schedule.Loop:
        end = self._grid.next(self.step, self._pace.steps)
        start = self._clock()
        logs = self._trainer.train(tf.constant(end - self.step, tf.int32)) or {}
        seconds = self._clock() - start
        if self._stop.requested:
            end = self._position()
        steps, self.step = end - self.step, end
        self._pace.add(steps, seconds)
        return schedule.Loop(end, steps, seconds, logs, self._grid.due(end, self._grid.summary))

    def _decide(self, reason: Any) -> None:
        if isinstance(reason, str):
            self.stop(reason)
