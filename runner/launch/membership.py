"""The rendezvous of a run's supervisors: files in `workers/` of its directory. No TensorFlow.

Each machine has one supervisor. It locks `machine-<n>/` and writes its offer there. Its lock is
also its heartbeat. A generation is a set of workers that train together. The first of the
supervisors present proposes one, in a file that is created only once. Another such file records how
the generation ended, so that all supervisors take the same next step. Ages are measured by the
local clock of the machine that reads the files.
"""

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from runner.core import console, files, layout
from runner.errors import RunnerError
from runner.run_directory import claim, claim_file, leftovers

SILENT_SECONDS = 20.0
"""A supervisor of another machine without a heartbeat for this long is gone."""

Doing = Literal["ready", "running", "resting"]


class Supervisor(NamedTuple):
    """The state that a live supervisor publishes.

    Attributes:
        machine: Its index in the list of machines.
        token: Distinguishes it from earlier supervisors of the same machine.
        doing: `ready` for the next generation, or not.
        hosts: The addresses that it offers for workers.
    """

    machine: int
    token: str
    doing: Doing
    hosts: tuple[str, ...]


class Generation(NamedTuple):
    """Workers that train together.

    Attributes:
        number: Counts generations from 1, across all commands.
        members: Its supervisors, in the order of their workers.
    """

    number: int
    members: tuple[Supervisor, ...]

    @property
    def hosts(self) -> list[str]:
        """The addresses of all workers, the chief's first."""
        return [host for member in self.members for host in member.hosts]

    def workers(self, machine: int) -> list[int]:
        """Returns the numbers of a machine's workers."""
        before = 0
        for member in self.members:
            if member.machine == machine:
                return list(range(before, before + len(member.hosts)))
            before += len(member.hosts)
        return []


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The outcome of a generation, which all of its supervisors follow.

    Attributes:
        then: The next action: `leave` the run with `code`, `restart` after a failure, or `regroup`
            once a checkpoint is saved.
        code: The exit code, of the command or of the worker that failed.
        reason: The reason, for a person.
        worker: The number of the worker that caused it, if any.
        refused: A number of workers that the run rejected, or 0 if it rejected none.
    """

    then: Literal["leave", "restart", "regroup"]
    code: int = 0
    reason: str = ""
    worker: int | None = None
    refused: int = 0


class Meeting:
    """The rendezvous, as one supervisor uses it.

    Args:
        folder: The run's directory.
        machine: The index of this machine in the list.
        token: This supervisor's token, as in its lock.
        clock: Seconds, for tests to inject.
    """

    def __init__(
        self,
        folder: Path,
        machine: int,
        token: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.machine, self.token = machine, token
        self._folder = folder / layout.WORKERS
        self._silence = claim.Silence(SILENT_SECONDS, clock)
        self._present: list[Supervisor] = []

    def say(self, doing: Doing, hosts: Sequence[str] = ()) -> None:
        """Publishes the state and the offer of this supervisor."""
        said = {"token": self.token, "doing": doing, "hosts": list(hosts)}
        files.write_json(_place(self._folder, self.machine) / _OFFER, said)

    def present(self) -> list[Supervisor]:
        """Returns the supervisors that are alive, including this one, by machine.

        While the directory is unreachable, returns the last known ones.
        """
        with contextlib.suppress(OSError):
            self._present = self._look()
        return self._present

    def _look(self) -> list[Supervisor]:
        found = []
        for place in self._folder.glob(f"{_MACHINE}*"):
            number = place.name.removeprefix(_MACHINE)
            seen = claim_file.look(place / layout.CLAIM) if number.isdigit() else None
            if seen is None or self._is_gone(place / layout.CLAIM, seen.holder.token):
                continue
            said = _read(place / _OFFER)
            if said and said.get("token") == seen.holder.token:
                hosts = tuple(said["hosts"])
                found.append(Supervisor(int(number), said["token"], said["doing"], hosts))
        return sorted(found)

    def _is_gone(self, path: Path, token: str) -> bool:
        if token == self.token:
            return False
        return claim_file.abandoned(path) or self._silence.has_lasted(path)

    def newest(self) -> Generation | None:
        """Returns the last generation that was proposed."""
        names = (re.fullmatch(r"generation-(\d+)\.json", each.name) for each in self._listed())
        number = max((int(name[1]) for name in names if name), default=0)
        said = _read(self._path(number)) if number else None
        if not said:
            return None
        made = [Supervisor(**{**each, "hosts": tuple(each["hosts"])}) for each in said["members"]]
        return Generation(number, tuple(made))

    def _listed(self) -> list[Path]:
        return list(self._folder.glob("generation-*.json"))

    def propose(self, number: int, members: Sequence[Supervisor]) -> None:
        """Proposes a generation. An earlier proposal takes precedence."""
        said = {"members": [each._asdict() for each in members]}
        if self._create(self._path(number), said):
            for path in self._listed():  # the last few are kept for debugging
                found = re.match(r"generation-(\d+)", path.name)
                if found and int(found[1]) < number - _KEPT:
                    path.unlink(missing_ok=True)

    def declare(self, generation: Generation, verdict: Verdict) -> bool:
        """Records how a generation ended. Returns False if another verdict already applies."""
        return self._create(self._path(generation.number, ".end"), dataclasses.asdict(verdict))

    def verdict(self, generation: Generation) -> Verdict | None:
        """Returns how a generation ended, if it has."""
        said = _read(self._path(generation.number, ".end"))
        return Verdict(**said) if said else None

    def absent(self, generation: Generation) -> list[Supervisor]:
        """Returns the members of a generation that are gone or have been restarted."""
        alive = {each.token for each in self.present()}
        return [each for each in generation.members if each.token not in alive]

    def _path(self, number: int, suffix: str = "") -> Path:
        return self._folder / f"generation-{number}{suffix}.json"

    def _create(self, path: Path, value: Any) -> bool:
        """Writes a file that is never rewritten. Returns False if it exists."""
        offer = path.with_name(f".{path.name}.{self.token}.tmp")
        files.write_json(offer, value)
        try:
            return claim_file.publish(offer, path) is not False
        finally:
            offer.unlink(missing_ok=True)


_MACHINE = "machine-"
_OFFER = "offer.json"
_KEPT = 5


def _place(folder: Path, machine: int) -> Path:
    return folder / f"{_MACHINE}{machine}"


def _read(path: Path) -> Any | None:
    """Reads a file of the rendezvous. Returns None if it is missing or currently unreachable."""
    with contextlib.suppress(OSError, RunnerError):
        return files.read_json(path)
    return None


@contextlib.contextmanager
def joined(folder: Path, machine: int, *, note: console.Note = console.say) -> Iterator[Meeting]:
    """Makes this process the supervisor of a machine within the block.

    Raises:
        RunnerError: another supervisor of this machine is alive.
    """
    place = _place(folder / layout.WORKERS, machine)
    with (
        claim.claimed(place, note=note, instead="--task_index", patience=SILENT_SECONDS),
        files.staying(folder),
    ):
        leftovers.clear(place.parent, shared=True)
        seen = claim_file.look(place / layout.CLAIM)
        yield Meeting(folder, machine, seen.holder.token if seen else "")
