"""Processes that lock a directory and write there."""

import contextlib
import errno
import fcntl
import os

from interleavings.scheduler import ViolationError, current
from runner.core import files, heartbeat
from runner.errors import RunnerError
from runner.run_directory import claim

PATIENCE = 12.0
ROW = "row.txt"


class Writers:
    """Processes that lock a directory and write there.

    Properties:
        Never two writers: a process gets the lock only if no other process has it. If a process
            was suspended, others may take its lock. It may then complete the write that it has
            begun, and writes no more.
        No lock is stuck: a later process gets it.
        At most one heartbeat late: a dead process's lock is taken over after its patience, one
            heartbeat, and the time to settle.
    """

    def __init__(self, world, hosts, *, late=0):
        self.world = world
        self.folder = world.root / "run"
        self.written = []
        self.took = []
        self.late = late
        self.holders = []
        self.processes = [
            world.process(f"writer {number}", self.write, host=host)
            for number, host in enumerate(hosts)
        ]
        world.process("last", self.last, host="last", crashes=False, after=self.are_over)

    def are_over(self):
        return all(map(self.world.is_over, self.processes))

    def claimed(self):
        return claim.claimed(
            self.folder,
            note=[].append,
            patience=PATIENCE,
            clock=self.world.time,
            sleep=self.world.sleep,
        )

    def write(self):
        name = current().process.name
        try:
            with self.claimed():
                self.enter()
                for _ in range(3):
                    files.write_text(self.folder / ROW, name)
                    self.written.append(name)
                    self.world.sleep(1.0)
        except RunnerError:  # rejected, or it has lost the lock
            pass
        finally:
            self.holders = [each for each in self.holders if each is not current().process]

    def enter(self):
        if not self.late and any(not each.is_dead for each in self.holders):
            raise ViolationError("two processes have the lock")
        self.holders.append(current().process)

    def last(self):
        began = self.world.now
        with self.claimed():
            self.took.append(self.world.now - began)
            files.write_text(self.folder / ROW, "last")

    def check(self):
        if not self.took:
            raise ViolationError("the lock is stuck")
        most = PATIENCE + heartbeat.SECONDS + claim._SETTLE_SECONDS + claim._POLL_SECONDS
        if self.took[0] > most:
            raise ViolationError("a dead process's lock was taken over late")
        order = list(dict.fromkeys(self.written))
        late = sum(
            order.index(name) < max(map(order.index, self.written[:number]), default=0)
            for number, name in enumerate(self.written)
        )
        if late > self.late:
            raise ViolationError("two writers")


class Moved(Writers):
    """A writer whose directory is moved.

    Property: the directory is not created again at its old path.
    """

    def __init__(self, world):
        super().__init__(world, ["here"])
        self.processes.append(world.process("move", self.move, crashes=False))

    def move(self):
        self.world.sleep(1.5)
        with contextlib.suppress(FileNotFoundError):
            self.folder.rename(self.world.root / "moved")

    def last(self):
        if (self.world.root / "moved").exists() and self.folder.exists():
            raise ViolationError("the directory was created again")

    def check(self):
        pass


def no_locks(*_):
    """In place of `fcntl.flock`, on a file system without locks."""
    raise OSError(errno.ENOLCK, "No locks available")


def _no_links(*_):
    raise OSError(errno.EPERM, "Operation not permitted")


def on_one_machine(world):
    return Writers(world, ["here", "here", "here"]).check


def suspended(world):
    world.replace(fcntl, "flock", no_locks)
    return Writers(world, ["a", "b"], late=1).check


def of_hosts(world):
    world.replace(fcntl, "flock", no_locks)
    return Writers(world, ["a", "b", "c"]).check


def moved(world):
    return Moved(world).check


def without_links(world):
    world.replace(os, "link", _no_links)
    return Writers(world, ["a", "b"]).check
