"""Supervises fault-tolerant workers: ends all when one ends, and restarts them.

As in torchrun's agent, the end of one worker ends its generation, and the next generation consists
of the workers available at that time. An attempt is an ordinary resume. There are three
differences from torchrun. A failed worker rests for a while if the others are enough. A returning
worker waits for a checkpoint. Only failures are counted as restarts. No TensorFlow.
"""

import dataclasses
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from runner.core import console, layout, signals, text
from runner.errors import ConfigError, DivergedError, RunnerError
from runner.launch import membership
from runner.launch.bounds import Bounds
from runner.launch.gathering import Gathering
from runner.launch.membership import Generation, Meeting, Verdict
from runner.launch.record import Record
from runner.launch.round import Round
from runner.launch.rules import Patience, Rules
from runner.launch.slots import Slots
from runner.launch.stragglers import Stragglers
from runner.launch.worker import Place, WarmWorker, Worker
from runner.run_directory import watch

_POLL_SECONDS = 0.1
_LOOK_SECONDS = 1.0  # between polls of the files of other supervisors
_STRAGGLERS_SECONDS = 10.0
_PREEMPTED = 128 + signal.SIGTERM
_STOPS = (_PREEMPTED, 128 + signal.SIGINT)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The workers to supervise.

    Attributes:
        command: The command of each worker. The environment selects the worker.
        folder: The run's directory.
        bounds: The allowed number of workers.
        slots: This machine's slots for workers.
        names: The names of the machines.
        machine: The index of this machine among them.
        warm_up: Starts the process from which the workers of later generations are forked. It is
            called while the first one trains. If None, they are not forked.
    """

    command: Sequence[str]
    folder: Path
    bounds: Bounds
    slots: Slots
    names: Sequence[str] = ("",)
    machine: int = 0
    warm_up: Callable[[], object] | None = None


def supervise(plan: Plan, stop: signals.Stop) -> int:
    """Trains with the workers of the plan. Returns the exit code, that of the chief.

    Raises:
        RunnerError: there were too few workers, or too many failures.
        signals.Interrupted: a signal arrived, and all workers have ended.
    """
    with membership.joined(plan.folder, plan.machine) as place, stop.deferred():
        return _Supervisor(plan, place, stop).run()


class _Supervisor:
    """The supervisor of one machine."""

    def __init__(self, plan: Plan, place: Meeting, stop: signals.Stop) -> None:
        self._plan = plan
        self._meeting = place
        self._stop = stop
        self._gathering = Gathering(place, plan.bounds, plan.slots, plan.names, pause=self._pause)
        self._patience = Patience()
        self._record = Record(plan.folder, plan.bounds.least, plan.bounds.most)
        self._fits = 0  # a number of workers that has worked
        self._kind: type[Worker] = Worker

    def run(self) -> int:
        while True:
            rules = Rules.of(self._plan.folder)
            generation = self._gathering.next(rules.timeout)
            if isinstance(generation, Verdict):
                return self._leave(generation, "")
            slots = self._plan.slots.awake
            verdict, printed, progressed = self._serve(generation, slots)
            if verdict.then == "leave" or self._stop.requested:
                return self._leave(verdict, printed)
            self._prepare(generation, slots, verdict, progressed=progressed)

    def _pause(self) -> None:
        """Waits between two polls, while no worker runs."""
        self._stop.check()
        time.sleep(_POLL_SECONDS)

    def _serve(self, generation: Generation, slots: Sequence[int]) -> tuple[Verdict, str, bool]:
        """Runs a generation. Returns its verdict, the chief's stdout, and whether it progressed."""
        self._meeting.say("running")
        hosts, folder = generation.hosts, self._plan.folder / layout.WORKERS
        places = [
            Place(index, hosts, folder, self._plan.slots.gpus(slot))
            for index, slot in zip(generation.workers(self._plan.machine), slots, strict=False)
        ]
        one = Round(
            generation,
            self._meeting,
            self._plan.command,
            places,
            self._plan.folder,
            kind=self._kind,
        )
        with one.watched(self._stop):
            if one.has_chief:
                self._record.state("forming", generation)
            verdict = _Watch(self._plan, one, self).verdict()
            one.end(verdict)
        return verdict, one.printed, one.has_progressed

    def formed(self, one: Round, slow: Sequence[str] = ()) -> None:
        """Records that the workers have found each other, or that some have become slow."""
        self._fits = len(one.generation.hosts)
        if self._plan.warm_up and self._kind is Worker:
            self._plan.warm_up()
            self._kind = WarmWorker
        if one.has_chief:
            self._record.state("running", one.generation, slow)

    def judged(self, one: Round, verdict: Verdict) -> Verdict:
        """Returns this supervisor's verdict on a generation, after applying its rules."""
        size = len(one.generation.hosts)
        is_refused = verdict.code == ConfigError.exit_code and self._fits not in (0, size)
        others = self._plan.bounds.best(size, {*self._gathering.refused, size})
        if is_refused and others and not one.has_formed:
            return dataclasses.replace(verdict, then="restart", refused=size)
        if verdict.then != "restart":
            return verdict
        rules = Rules.of(self._plan.folder)
        if why := self._patience.ends(rules, progressed=one.has_progressed):
            reason = f"{verdict.reason}; giving up {why}"
            return dataclasses.replace(verdict, then="leave", code=1, reason=reason)
        return verdict

    def declare(self, one: Round, verdict: Verdict) -> Verdict:
        """Declares a verdict to the others. Returns the verdict that applies."""
        if self._meeting.declare(one.generation, verdict):
            self._record.ended(one.generation, verdict)
            return verdict
        return self._meeting.verdict(one.generation) or verdict

    def stopped(self, one: Round) -> Verdict | None:
        """Returns the verdict after a signal to this process.

        The other workers continue if they are enough.
        """
        number = self._stop.number
        if number is None:
            return None
        others = len(one.generation.hosts) - len(one.workers) + self._offered(one)
        name = self._plan.names[self._plan.machine]
        if number == signal.SIGTERM and self.best(others):
            return Verdict("regroup", 128 + number, f"{name} received SIGTERM and leaves the run")
        signal_name = signal.Signals(number).name
        return Verdict("leave", 128 + number, f"the supervisor received {signal_name}")

    def best(self, available: int) -> int:
        """Returns how many of these workers to use, or 0 if they are too few."""
        return self._plan.bounds.best(available, self._gathering.refused)

    def available(self, one: Round) -> int:
        """Returns how many workers there would be with all that are waiting."""
        idle = len(self._plan.slots.awake) - len(one.workers)
        return len(one.generation.hosts) + self._offered(one) + max(idle, 0)

    def _offered(self, one: Round) -> int:
        """Returns how many workers other machines offer that are not part of this generation."""
        tokens = {member.token for member in one.generation.members}
        present = [each for each in self._meeting.present() if each.doing == "ready"]
        return sum(len(each.hosts) for each in present if each.token not in tokens)

    def _prepare(
        self, generation: Generation, slots: Sequence[int], verdict: Verdict, *, progressed: bool
    ) -> None:
        """Prepares the next generation."""
        if verdict.refused:
            self._gathering.refused.add(verdict.refused)
            console.say(f"a run of {verdict.refused} workers was rejected; trying fewer")
            return
        if verdict.then == "regroup":
            console.say(f"{verdict.reason}; everything is saved, restarting")
            return
        self._patience.count(progressed=progressed)
        own = generation.workers(self._plan.machine)
        seconds = Rules.of(self._plan.folder).rest_seconds
        rests = ""
        if verdict.worker in own and seconds and self.best(len(generation.hosts) - 1):
            self._plan.slots.rest(slots[own.index(verdict.worker)], seconds)
            rests = f", without it for {text.duration(seconds)}"
        console.say(f"{verdict.reason}; restarting{rests}")

    def _leave(self, verdict: Verdict, printed: str) -> int:
        """Ends with the outcome of the run."""
        if verdict.code == RunnerError.exit_code and verdict.worker:
            printed = ""  # the chief was only stopped because of another worker's failure
        if printed:
            console.answers().say(printed.removesuffix("\n"))
        code = 128 + self._stop.number if self._stop.number else verdict.code
        if code in _STOPS and not printed:
            raise signals.Interrupted(code - 128)
        if code in (0, *_STOPS):
            return code
        if printed or verdict.worker == 0:
            console.say(f"runner: {verdict.reason}", style="red")
            return code
        kinds = {2: ConfigError, 3: DivergedError}
        raise kinds.get(code, RunnerError)(verdict.reason)


class _Watch:
    """Watches one generation until it ends."""

    def __init__(self, plan: Plan, one: Round, owner: _Supervisor) -> None:
        self._plan = plan
        self._round = one
        self._owner = owner
        self._looked = self._counted = time.monotonic()
        self._has_formed = False
        self._commit: watch.Glance | None = None
        folder = plan.folder / layout.WORKERS
        self._stragglers = Stragglers(folder, one.generation.hosts)

    def verdict(self) -> Verdict:
        """Waits for the end of the generation. Returns the verdict for all supervisors."""
        while True:
            if decided := self._round.decided():
                return decided
            found = self._owner.stopped(self._round) or self._round.ended() or self._looks()
            if found:
                return self._owner.declare(self._round, self._owner.judged(self._round, found))
            time.sleep(_POLL_SECONDS)

    def _looks(self) -> Verdict | None:
        """Returns the verdict that follows from files, which are polled less often."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return None
        self._looked = now
        if self._round.has_formed and not self._has_formed:
            self._has_formed = True
            self._owner.formed(self._round)
        if self._has_formed and self._round.has_chief and now - self._counted > _STRAGGLERS_SECONDS:
            self._counted = now
            self._name_stragglers()
        silent = self._round.silent()
        return silent or self._round.absent() or self._returned()

    def _name_stragglers(self) -> None:
        if self._stragglers.look():
            for line in self._stragglers.found:
                console.say(line)
            self._owner.formed(self._round, self._stragglers.found)

    def _returned(self) -> Verdict | None:
        """Returns a verdict to restart after a checkpoint if additional workers are waiting."""
        if not (self._round.has_chief and self._has_formed):
            return None
        size, available = len(self._round.generation.hosts), self._owner.available(self._round)
        best = self._owner.best(available)
        if best <= size:
            self._commit = None
        elif self._commit is None:
            self._commit = watch.Glance(self._plan.folder / layout.CHECKPOINT)
            self._commit.changed()
            more = text.counted(best - size, "worker")
            console.say(f"{more} can join after the next checkpoint")
        elif self._commit.changed():
            return Verdict("regroup", _PREEMPTED, f"from {size} to {best} workers")
        return None
