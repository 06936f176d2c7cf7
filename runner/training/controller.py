"""The outer loop: which actions happen at which step, in which order, and how training stops."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from runner.core import schedule, signals


class Run(Protocol):
    """The run that a controller drives: a state that training changes, and its operations."""

    @property
    def step(self) -> int:
        """The step of the current state. Waits for it."""

    def train(self, steps: int) -> Mapping[str, Any]:
        """Runs `steps` steps, or fewer if a signal ends them, and returns their logs."""

    def broken(self, loop: schedule.Loop, *, variables: bool) -> str | None:
        """Describes what broke in training, or returns None. `variables`: also check them."""

    def recover(self, reason: str) -> int:
        """Goes back to the step of a saved checkpoint and returns it.

        Raises:
            DivergedError: there is no checkpoint to go back to.
        """

    def after_loop(self, loop: schedule.Loop) -> None:
        """Records a loop, before any checkpoint of it is saved."""

    def decide(self, step: int) -> str | None:
        """Takes outside decisions just before `step` is saved. Returns a reason to stop."""

    def commit(self, step: int) -> None:
        """Saves the state as the checkpoint of `step`, unless already saved."""

    def wait(self) -> None:
        """Waits until every checkpoint is on disk."""

    @property
    def writing_cost(self) -> float | None:
        """Seconds of training that the last write took at most, or None while it is written."""

    def has_evaluated(self, step: int) -> bool:
        """Whether the history already has the evaluation of `step`."""

    def evaluate(self, step: int) -> str | None:
        """Evaluates the state, at `step`, and records the result. Returns a reason to stop."""

    def finish(self, step: int) -> None:
        """Evaluates the sets that were not scheduled at `step`, if the run has stopped early."""


_MOST_SAVING = 0.02  # of the time, for continuous saving


class Pace:
    """The number of steps that take about a second, estimated from the loops so far."""

    def __init__(self) -> None:
        self.steps = 1

    def add(self, steps: int, seconds: float) -> None:
        """Updates the estimate after a loop, at most fourfold because short loops are noisy."""
        second = round(steps / max(seconds, 1e-9))
        self.steps = max(1, min(second, 4 * self.steps))


class Controller:
    """Drives a run by its schedule, with a fixed order at each synchronization point.

    train -> guard -> save the checkpoint -> evaluate -> record -> decide

    Decisions from outside are taken just before a checkpoint is saved.

    Args:
        run: The run to drive.
        grid: The schedule.
        actions: Called with the logs of each loop, after it is recorded.
        stop: Whether a signal has arrived.
        clock: Returns seconds. Tests inject it.

    Attributes:
        step: The current step of the run.
        stop_reason: Why the run ends early, or None if it continues.
    """

    def __init__(
        self,
        run: Run,
        grid: schedule.Grid,
        actions: Sequence[schedule.Action] = (),
        stop: signals.Stop | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._run = run
        self._grid = grid
        self._actions = tuple(actions)
        self._stop = stop or signals.Stop()
        self._clock = clock
        self._committed_at = clock() if grid.seconds or grid.continuous else 0.0
        self._blocked = 0.0  # seconds for which the last checkpoint stopped training
        self._pace = Pace()
        self._uncommitted = 0  # steps since the last checkpoint of this attempt
        self.step = run.step
        self.stop_reason: str | None = None

    def run(self) -> None:
        """Trains to the end of the schedule or until a reason to stop. All state is then on disk.

        Raises:
            DivergedError: training broke and cannot continue. No broken state was saved.
            signals.Interrupted: a signal arrived. All state is saved.
        """
        try:
            with self._stop.deferred():
                self._drive()
        finally:
            self._run.wait()

    def _drive(self) -> None:
        run, grid = self._run, self._grid
        if self.step and grid.evaluates(self.step) and not run.has_evaluated(self.step):
            self._evaluate()
        self._heed(run.decide(self.step))
        while self.step < grid.end and not self.stop_reason:
            self._boundary(self._train())
        self._commit()
        if self.stop_reason and grid.evaluations:
            run.finish(self.step)

    def _train(self) -> schedule.Loop:
        end = self._grid.next(self.step, self._pace.steps)
        start = self._clock()
        logs = self._run.train(end - self.step)
        seconds = self._clock() - start
        if self._stop.requested:
            end = self._run.step
        steps, self.step = end - self.step, end
        self._pace.add(steps, seconds)
        return schedule.Loop(end, steps, seconds, logs, self._grid.due(end, self._grid.summary))

    def _boundary(self, loop: schedule.Loop) -> None:
        """Performs the actions that are scheduled after a loop, in their order."""
        signalled = self._stop.requested
        commits, evaluates = self._grid.commits(loop.step), self._grid.evaluates(loop.step)
        broken, begun = None, None
        if loop.summary or commits or evaluates or signalled:
            broken = self._run.broken(loop, variables=commits or evaluates)
        if not broken:
            self._record(loop)
            asked = signalled or self.stop_reason or self._is_overdue()
            if asked and self._uncommitted and not commits:
                begun = self._clock()
                commits, broken = True, self._run.broken(loop, variables=True)
                if broken and (signalled or not self.stop_reason):  # the schedule will find it
                    self._stop.check(saved=False)
                    return
        if broken:
            self.step, self._uncommitted = self._run.recover(broken), 0
            return
        if commits and self._uncommitted:
            self._heed(self._run.decide(loop.step))
            self._commit(begun)
        if signalled:
            self._stop.check()
        if evaluates:
            self._evaluate()

    def _record(self, loop: schedule.Loop) -> None:
        if not loop.steps:
            return
        self._uncommitted += loop.steps
        self._run.after_loop(loop)
        for action in self._actions:
            self._heed(action(loop.logs))

    def _commit(self, begun: float | None = None) -> None:
        """Saves a checkpoint. `begun`: when work for it began, now by default."""
        start = self._clock() if begun is None else begun
        self._run.commit(self.step)
        self._uncommitted = 0
        self._committed_at = self._clock()
        self._blocked = self._committed_at - start

    def _evaluate(self) -> None:
        try:
            self._heed(self._run.evaluate(self.step))
        except BaseException:
            if self._uncommitted:  # a failing evaluation must not lose training
                self._commit()
            raise

    def _is_overdue(self) -> bool:
        """Whether the last checkpoint is too old.

        Continuous saving leaves so much time between two saves that they take at most 2 % of it.
        """
        seconds = self._grid.seconds
        if self._grid.continuous:
            cost = self._run.writing_cost
            if cost is None:
                return False
            seconds = (self._blocked + cost) / _MOST_SAVING
        elif not seconds:
            return False
        return self._clock() - self._committed_at >= seconds

    def _heed(self, reason: Any) -> None:
        """Ends the run at the next checkpoint if there is a reason. The first reason is kept."""
        if isinstance(reason, str):
            self.stop_reason = self.stop_reason or reason
