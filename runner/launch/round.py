"""Runs one generation of workers on one machine, from start to end. No TensorFlow."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from runner.core import signals, text
from runner.core.child import ending
from runner.launch import rules
from runner.launch.membership import Generation, Meeting, Verdict
from runner.launch.worker import Place, Worker
from runner.run_directory.run import reached

_FINAL = (2, 3, 4, 5)  # rerunning the command would end the same way
_POLL_SECONDS = 0.1
_SETTLE_SECONDS = 1.0  # after the first end, because other workers may give a better reason
_CRASH_GRACE_SECONDS = 5.0  # no checkpoint can be saved once a worker is missing
_STUCK_SECONDS = 8.0  # longer than the heartbeat interval, shorter than TensorFlow's timeout
_SILENT_SECONDS = 60.0
_GRACE_SECONDS = 120.0
_STOPPED = {
    128 + signal.SIGTERM: signal.SIGTERM,
    -signal.SIGTERM: signal.SIGTERM,  # before it could handle signals
    128 + signal.SIGINT: signal.SIGINT,
    -signal.SIGINT: signal.SIGINT,
}


class Round:
    """The workers of this machine in one generation.

    Args:
        generation: All workers.
        meeting: The rendezvous that agreed on it.
        command: The command of each worker.
        places: This machine's workers.
        folder: The run's directory.
        kind: How to start them.
        clock: Seconds, for tests to inject.

    Attributes:
        workers: This machine's workers.
    """

    def __init__(
        self,
        generation: Generation,
        meeting: Meeting,
        command: Sequence[str],
        places: Sequence[Place],
        folder: Path,
        *,
        kind: type[Worker] = Worker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.generation = generation
        self._meeting = meeting
        self._clock = clock
        self._began = clock()
        self._first_end: float | None = None
        self._seen: Verdict | None = None
        self._looked = 0.0
        self._formed = False
        self._folder, self._step = folder, reached(folder)
        self.workers = [kind(command, place, clock=clock) for place in places]

    @property
    def has_chief(self) -> bool:
        """Whether the chief is one of this machine's workers."""
        return any(worker.place.number == 0 for worker in self.workers)

    @property
    def has_formed(self) -> bool:
        """Whether the workers have found each other, by their heartbeats or the run's progress."""
        if not self._formed:
            says = all(worker.has_formed for worker in self.workers)
            self._formed = says or reached(self._folder) != self._step
        return self._formed

    @property
    def has_progressed(self) -> bool:
        """Whether it has trained a step."""
        says = any(worker.shows.get("step") is not None for worker in self.workers)
        return says or reached(self._folder) != self._step

    def decided(self, seconds: float = 0.5) -> Verdict | None:
        """Returns the verdict that any supervisor has declared, polled every `seconds`."""
        if self._seen is None and self._clock() - self._looked >= seconds:
            self._looked = self._clock()
            self._seen = self._meeting.verdict(self.generation)
        return self._seen

    def ended(self) -> Verdict | None:
        """Returns the verdict that follows from workers that have ended."""
        codes = {worker.place.number: worker.code for worker in self.workers}
        if codes.get(0) == 0:
            return Verdict("leave", 0)
        bad = {index: code for index, code in codes.items() if code}
        if not bad:
            return None
        for index, code in bad.items():
            if code in _FINAL:
                return Verdict("leave", code, self._reason(index), index)
        if self._first_end is None:
            self._first_end = self._clock()
        others_run = len(bad) < len(self.generation.hosts)
        if others_run and self._clock() - self._first_end < _SETTLE_SECONDS:
            return None
        for index, code in bad.items():
            if code in _STOPPED:
                number = _STOPPED[code]
                reason = f"worker {index} received {number.name}"
                return Verdict("leave", 128 + number, reason, index)
        index = min(bad, key=lambda each: (bad[each] > 0, each))  # a signal explains more
        if bad[index] > 0 and (quiet := self._quiet(_STUCK_SECONDS)):
            return quiet
        return Verdict("restart", bad[index], self._reason(index), index)

    def silent(self) -> Verdict | None:
        """Returns the verdict that follows from a worker that is unresponsive or not connected."""
        if self.has_formed:
            return self._quiet(_SILENT_SECONDS)
        age = self._clock() - self._began
        late = age > rules.START_SECONDS and age > rules.Rules.of(self._folder).to_form
        return self._not_formed(age) if late else None

    def _quiet(self, seconds: float) -> Verdict | None:
        quiet = self._silent_for(seconds)
        if not quiet:
            return None
        worker = max(quiet, key=lambda each: each.silent_for)
        index = worker.place.number
        reason = f"worker {index} sent no heartbeat for {text.duration(worker.silent_for)}"
        return Verdict("restart", 1, reason, index)

    def _silent_for(self, seconds: float) -> list[Worker]:
        """Returns the running workers without a heartbeat for this long."""
        running = [worker for worker in self.workers if worker.code is None and worker.shows]
        return [worker for worker in running if worker.silent_for > seconds]

    def _not_formed(self, age: float) -> Verdict:
        missing = [worker for worker in self.workers if not worker.has_formed]
        number = min(missing, key=lambda each: bool(each.shows)).place.number
        reason = f"worker {number} had not connected to the others after {text.duration(age)}"
        return Verdict("restart", 1, reason, number)

    def absent(self) -> Verdict | None:
        """Returns the verdict that follows from supervisors that are gone."""
        for member in self._meeting.absent(self.generation):
            index = self.generation.workers(member.machine)[0]
            reason = f"the supervisor of worker {index} on {member.hosts[0]} is gone"
            return Verdict("restart", 1, reason, index)
        return None

    def _reason(self, index: int) -> str:
        worker = next(each for each in self.workers if each.place.number == index)
        assert worker.code is not None
        why = worker.reason()
        return f"worker {index} {ending(worker.code)}" + (f": {why}" if why else "")

    @contextlib.contextmanager
    def watched(self, stop: signals.Stop) -> Iterator[None]:
        """Kills the workers when the block ends, or at a second signal within it."""
        try:
            with stop.abandoning(lambda _: self._kill()):
                yield
        finally:
            self._kill()

    def _kill(self) -> None:
        for worker in self.workers:
            worker.kill()

    def end(self, verdict: Verdict) -> None:
        """Ends the workers, gracefully if they can save a checkpoint, otherwise within seconds."""
        saves = verdict.then == "regroup" or verdict.code in _STOPPED
        grace = _GRACE_SECONDS if saves and self.has_formed else _CRASH_GRACE_SECONDS
        if verdict.then != "leave" or verdict.code:  # otherwise they end by themselves
            number = verdict.code - 128 if saves else signal.SIGTERM
            for worker in self.workers:
                if worker.code is None:
                    worker.send(number)
        deadline = self._clock() + grace
        while any(worker.code is None for worker in self.workers) and self._clock() < deadline:
            self._end_quiet()
            time.sleep(_POLL_SECONDS)
        for worker in self.workers:
            worker.end(max(deadline - self._clock(), 0.0))

    def _end_quiet(self) -> None:
        """Kills unresponsive workers, which do not react to signals."""
        has_failed = any(worker.code not in (None, 0, *_STOPPED) for worker in self.workers)
        for worker in self._silent_for(_STUCK_SECONDS if has_failed else _SILENT_SECONDS):
            worker.kill()

    @property
    def printed(self) -> str:
        """The stdout of the chief, if it is one of this machine's workers."""
        return "".join(worker.printed for worker in self.workers if worker.place.number == 0)
