"""Waits for the supervisors of a run, and agrees with them on the next generation.

No TensorFlow.
"""

import time
from collections.abc import Callable, Sequence

from runner.core import console, text
from runner.errors import RunnerError
from runner.launch.bounds import Bounds
from runner.launch.membership import Generation, Meeting, Supervisor, Verdict
from runner.launch.slots import Slots

_LAST_CALL_SECONDS = 10.0  # for more workers, once there are enough
_REMIND_SECONDS = 60.0
_MOMENT_SECONDS = 3.0  # a shorter wait is not reported


class Gathering:
    """Negotiates the next generation of a supervisor.

    Args:
        meeting: The rendezvous of the supervisors.
        bounds: The allowed number of workers.
        slots: This machine's slots for workers.
        names: The names of the machines.
        pause: Called between two polls. It raises to end the wait.
        clock: Seconds, for tests to inject.
        note: Called with a line about a wait.

    Attributes:
        refused: Numbers of workers that the run rejected.
    """

    def __init__(
        self,
        meeting: Meeting,
        bounds: Bounds,
        slots: Slots,
        names: Sequence[str],
        *,
        pause: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
        note: console.Note = console.say,
    ) -> None:
        self._meeting = meeting
        self._bounds = bounds
        self._slots = slots
        self._names = names
        self._pause = pause
        self._clock = clock
        self._note = note
        self.refused: set[int] = set()

    def next(self, patience: float) -> Generation | Verdict:
        """Returns the next generation with this machine, once the supervisors have agreed on it.

        If the run ends while this machine is not needed, returns how it ended.

        Args:
            patience: Seconds to wait for enough workers.

        Raises:
            RunnerError: there were too few.
        """
        offered: list[str] | None = None
        self._began = self._clock()
        self._remind_at = self._began + _MOMENT_SECONDS
        others: Generation | None = None
        self._enough_since: float | None = None
        while True:
            awake = len(self._slots.awake)
            if offered is None or len(offered) != awake:
                offered = self._slots.addresses(awake)
                self._meeting.say("ready" if offered else "resting", offered)
            newest = self._meeting.newest()
            if newest and self._is_part(newest):
                return newest
            if newest and self._goes_on(newest):
                others, self._began = newest, self._clock()
                is_spare = len(newest.hosts) == self._bounds.most
                what = "in case one fails" if is_spare else "to join after their next checkpoint"
                self._remind(f"the other workers are training; waiting {what}")
            elif others and (end := self._meeting.verdict(others)) and end.then == "leave":
                return end
            else:
                self._propose(newest.number + 1 if newest else 1, patience)
            self._pause()

    def _is_part(self, newest: Generation) -> bool:
        tokens = [member.token for member in newest.members]
        return self._meeting.token in tokens and self._meeting.verdict(newest) is None

    def _goes_on(self, newest: Generation) -> bool:
        """Returns whether other supervisors still train this generation."""
        if self._meeting.verdict(newest):
            return False
        if len(self._meeting.absent(newest)) < len(newest.members):
            return True
        self._meeting.declare(newest, Verdict("restart", 1, "all of its supervisors are gone"))
        return False

    def _propose(self, number: int, patience: float) -> None:
        """Proposes a generation if there are enough workers and this supervisor is the first."""
        present = self._meeting.present()
        ready = [each for each in present if each.doing == "ready"]
        size = self._bounds.best(sum(len(each.hosts) for each in ready), self.refused)
        now = self._clock()
        if not size:
            self._enough_since = None
            if now - self._began > patience:
                raise RunnerError(self._too_few(ready, patience))
            self._remind(self._missing(present))
            return
        if self._enough_since is None:
            self._enough_since = now
        if any(each.doing == "running" for each in present):
            return
        complete = size == self._bounds.most or len(present) == len(self._names)
        if not complete and now - self._enough_since < _LAST_CALL_SECONDS:
            return
        if ready[0].token == self._meeting.token:
            self._meeting.propose(number, _first(ready, size))

    def _missing(self, present: Sequence[Supervisor]) -> str:
        there = {each.machine for each in present if each.doing != "resting"}
        missing = [
            f"{name} (--task_index={index})"
            for index, name in enumerate(self._names)
            if index not in there
        ]
        return f"waiting for {text.some(missing)}" if missing else "waiting for the other workers"

    def _too_few(self, ready: Sequence[Supervisor], patience: float) -> str:
        found = sum(len(each.hosts) for each in ready)
        return (
            f"--workers={self._bounds}: only {found} joined within {text.duration(patience)} "
            f"(RunConfig.workers_timeout); {self._missing(ready)}"
        )

    def _remind(self, line: str) -> None:
        if self._clock() >= self._remind_at:
            self._remind_at = self._clock() + _REMIND_SECONDS
            self._note(line)


def _first(ready: Sequence[Supervisor], size: int) -> list[Supervisor]:
    """Returns the first supervisors that together have this many workers."""
    found: list[Supervisor] = []
    for each in ready:
        taken = each.hosts[: size - sum(len(one.hosts) for one in found)]
        if taken:
            found.append(each._replace(hosts=taken))
    return found
