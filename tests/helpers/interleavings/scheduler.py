"""Simulated processes that take turns at each file operation, under a simulated clock.

Each process is a thread, and only one thread runs at a time. Before each file operation in the
simulated directory, the world chooses which process continues. Python's audit events and a
replaced `os.stat` show these operations. The code of the processes is the real one.
"""

import contextlib
import dataclasses
import fcntl
import itertools
import os
import secrets
import socket
import sys
import threading
import time
from unittest import mock

from runner.core import files, heartbeat
from runner.errors import LostError
from runner.run_directory import claim_file

MOST_STEPS = 6000
STALL_SECONDS = 100.0
_EVENTS = frozenset(
    f"os.{name}"
    for name in ("rename", "remove", "mkdir", "rmdir", "link", "truncate", "scandir", "listdir")
) | {"open"}
_BY_DESCRIPTOR = ("fcntl.flock", "os.utime")


class Crashed(BaseException):
    """Ends the thread of a process that has crashed. Its file operations have no effect."""


class ViolationError(AssertionError):
    """A property does not hold."""


@dataclasses.dataclass
class Process:
    """A simulated process.

    Attributes:
        name: Its name in messages.
        pid: Its process id.
        host: The machine on which it runs.
        crashes: Whether it may crash or be suspended.
        parent: The process that started it, whose crash ends it too, or None.
        is_dead: Whether it has crashed.
    """

    name: str
    pid: int
    host: str = "here"
    crashes: bool = True
    parent: "Process | None" = None
    is_dead: bool = False
    stalled_until: float = 0.0
    checks: dict = dataclasses.field(default_factory=dict)


class Task:
    """A thread of a process."""

    def __init__(self, process, run):
        self.process = process
        self.run = run
        self.turn = threading.Semaphore(0)
        self.wakes = 0.0
        self.ready = None
        self.is_done = False
        self.is_quiet = False
        self.written = None
        self.thread = None


class World:
    """Runs tasks one at a time.

    A crash may also cut off what the process has written since its last file operation.

    Args:
        root: The directory whose file operations are observed.
        choose: Called with a number of options at each choice, returns the chosen one. Option 0
            continues in the fixed order.
        deviations: How many other choices are possible.
        crashes: How many processes may crash.
        stalls: How many times a process may be suspended for `STALL_SECONDS`.
        terms: How many events `term` may happen.
    """

    def __init__(self, root, choose, *, deviations, crashes=0, stalls=0, terms=0):
        self.root = root
        self.now = 1000.0
        self.problem = None
        self.steps = 0
        self._text = str(root)
        self._choose = choose
        self._left = {"switch": deviations, "crash": crashes, "stall": stalls, "term": terms}
        self.processes = []
        self._tasks = []
        self._pids = itertools.count(100)
        self._locked = {}
        self._stamps = itertools.count(1)
        self._finished = threading.Semaphore(0)
        self._is_over = False
        self._replacements = []

    def process(self, name, run, *, host="here", crashes=True, parent=None, after=None):
        """Adds a process. With `after`, a function, it starts once that returns true."""
        made = Process(name, next(self._pids), host, crashes, parent)
        self.processes.append(made)
        self.task(made, run).ready = after
        return made

    def task(self, process, run):
        """Adds a thread to a process."""
        task = Task(process, run)
        task.wakes = self.now
        task.thread = threading.Thread(target=self._body, args=(task,), daemon=True)
        self._tasks.append(task)
        task.thread.start()
        return task

    def is_over(self, process):
        """Whether a process has ended or crashed."""
        return process.is_dead or all(
            task.is_done for task in self._tasks if task.process is process
        )

    def sleep(self, seconds):
        """Lets simulated time pass for this task."""
        task = current()
        task.wakes = self.now + seconds
        self._pause(task)

    def wait(self, ready):
        """Blocks this task until `ready` returns true."""
        task = current()
        task.ready = ready
        self._pause(task)

    def wake(self, task):
        """Ends a task's sleep."""
        task.wakes = min(task.wakes, self.now)

    def stamp(self):
        """A time in nanoseconds that no file has yet."""
        return int((self.now + 1.79e9) * 1e9) + next(self._stamps)

    def time(self):
        """The simulated time by which files are stamped."""
        return self.now + 1.79e9

    def run(self, check):
        """Runs all tasks to their end, then `check`. Returns the violation, or None.

        `check` sees the directory before the threads of crashed processes end, which flushes their
        buffers.
        """
        with self._replaced():
            try:
                first = self._next(None)
                if first:
                    first.turn.release()
                    self._finished.acquire()
                if self.problem is None:
                    check()
            except Exception as problem:
                self.problem = problem
            finally:
                self._unwind()
        return self.problem

    def operation(self, task):
        """Called before each file operation of a task: continues with any task."""
        if task.is_quiet:
            return
        if self._is_over or task.process.is_dead:
            raise Crashed
        written, task.written = task.written, None
        self.steps += 1
        if self.steps > MOST_STEPS:
            self._fail(ViolationError("it does not end"))
            raise Crashed
        others = [each for each in self._runnable() if each is not task]
        options = [("go", task)]
        if self._left["switch"]:
            options += [("switch", each) for each in others]
        if self._left["crash"] and task.process.crashes:
            options.append(("crash", task))
            if written and not task.process.stalled_until and _size(written[0]) > written[1] + 1:
                options.append(("tear", task))
        if self._left["stall"] and task.process.crashes:
            options.append(("stall", task))
        kind, chosen = options[self._choose(len(options))] if len(options) > 1 else options[0]
        if kind == "go":
            return
        self._left["crash" if kind == "tear" else kind] -= 1
        if kind == "tear":
            _tear(task, *written)
        if kind in ("crash", "tear"):
            self._crash(task.process)
        if kind == "stall":
            task.process.stalled_until = self.now + STALL_SECONDS
        self._pass_on(task, chosen if kind == "switch" else None)

    def replace(self, target, name, new):
        """Replaces an attribute of a module while the world runs."""
        self._replacements.append((target, name, new))

    def happens(self, kind):
        """Whether an event such as `term` happens now, which is a choice."""
        if not self._left.get(kind) or not self._choose(2):
            return False
        self._left[kind] -= 1
        return True

    def locked(self, descriptor, process):
        """Records that a process uses a lock."""
        self._locked[descriptor] = process

    def _runnable(self):
        return [
            task
            for task in self._tasks
            if not task.is_done
            and not task.process.is_dead
            and max(task.wakes, task.process.stalled_until) <= self.now
            and (task.ready is None or task.ready())
        ]

    def _next(self, task):
        """The task that runs after `task` has stopped, or None if none is left."""
        while not (runnable := self._runnable()):
            asleep = [
                max(each.wakes, each.process.stalled_until)
                for each in self._tasks
                if not each.is_done and not each.process.is_dead and each.ready is None
            ]
            if not asleep or min(asleep) <= self.now:
                return None
            self.now = min(asleep)
        if len(runnable) == 1 or not self._left["switch"]:
            return runnable[0]
        number = self._choose(len(runnable))
        self._left["switch"] -= bool(number)
        return runnable[number]

    def _pause(self, task):
        if self._is_over or task.process.is_dead:
            raise Crashed
        self._pass_on(task, None)
        task.ready = None

    def _pass_on(self, task, chosen):
        chosen = chosen or self._next(task)
        if chosen is task:
            return
        if chosen is None:
            self._finished.release()
        else:
            chosen.turn.release()
        task.turn.acquire()
        if self._is_over or task.process.is_dead:
            raise Crashed

    def _crash(self, process):
        """Ends a process and those it started. The operating system releases their locks."""
        process.is_dead = True
        for each in self.processes:
            if each.parent is process and not self.is_over(each):
                self._crash(each)
        task = current()
        task.is_quiet = True
        for descriptor, owner in list(self._locked.items()):
            if owner is process:
                del self._locked[descriptor]
                with contextlib.suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
        task.is_quiet = False

    def _body(self, task):
        _TASKS[threading.get_ident()] = self, task
        task.turn.acquire()
        try:
            task.ready = None
            if not self._is_over:
                task.run()
        except Crashed:
            pass
        except BaseException as error:
            self._fail(error)
        finally:
            del _TASKS[threading.get_ident()]
            task.is_done = True
            if not self._is_over:
                following = None if self.problem else self._next(None)
                (following.turn if following else self._finished).release()

    def _fail(self, error):
        if not self._is_over and self.problem is None:
            self.problem = error
            self._left = dict.fromkeys(self._left, 0)
            for task in self._tasks:
                task.process.is_dead = True

    def _unwind(self):
        """Ends all threads. Their file operations have no effect any more."""
        self._is_over = True
        for task in self._tasks:
            task.turn.release()
            task.thread.join()

    @contextlib.contextmanager
    def _replaced(self):
        """Gives each process its own pid, host and checks, and files the simulated time."""
        install_hook()
        tokens = itertools.count(1)
        before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
        with contextlib.ExitStack() as stack:
            for target, name, new in (
                (os, "stat", _stat),
                (os, "getpid", _getpid),
                (os, "fsync", _fsync),
                (os, "utime", _utime),
                (time, "sleep", _sleep),
                (time, "monotonic", _monotonic),
                (socket, "gethostname", _hostname),
                (claim_file, "_boot", _hostname),
                (files, "_checks", _Checks()),
                (heartbeat, "beating", beating),
                (secrets, "token_hex", lambda size: f"{next(tokens):0{2 * size}x}"),
                *self._replacements,
            ):
                stack.enter_context(mock.patch.object(target, name, new))
            try:
                yield
            finally:
                claim_file._held.clear()
        self._close(set(os.listdir("/proc/self/fd")) - before)  # noqa: PTH208

    def _close(self, descriptors):
        """Closes what processes have left open."""
        for name in descriptors:
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}").startswith(self._text):  # noqa: PTH115
                    os.close(int(name))


_TASKS = {}
_real = {
    "stat": os.stat,
    "getpid": os.getpid,
    "utime": os.utime,
    "fsync": os.fsync,
    "sleep": time.sleep,
    "monotonic": time.monotonic,
    "hostname": socket.gethostname,
}


def current():
    """The task of this thread."""
    return _TASKS[threading.get_ident()][1]


def world():
    """The world of this thread."""
    return _TASKS[threading.get_ident()][0]


def _hook(event, values):
    if not _TASKS:  # None while Python ends
        return
    if event not in _EVENTS and event not in _BY_DESCRIPTOR:
        return
    found = _TASKS.get(threading.get_ident())
    if found is None:
        return
    place, task = found
    path = values[0]
    if event in _BY_DESCRIPTOR:
        place.operation(task)
        if event == "fcntl.flock" and not task.is_quiet:
            place.locked(path, task.process)
    elif isinstance(path, (str, bytes, os.PathLike)):
        text = os.fsdecode(path)
        if text.startswith(place._text) or not text.startswith("/"):
            place.operation(task)
            if event == "open" and values[2] & (os.O_WRONLY | os.O_RDWR) and not task.is_quiet:
                task.written = text, 0 if values[2] & os.O_TRUNC else _size(text)


def _size(path):
    try:
        return _real["stat"](path).st_size
    except OSError:
        return 0


def _tear(task, path, before):
    """Leaves half of what was written to a file since it was opened."""
    task.is_quiet = True
    os.truncate(path, (before + _size(path)) // 2)
    task.is_quiet = False


_installed = []


def install_hook():
    """Observes file operations. Python has no way to remove this, so it is done once."""
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_hook)


def _stat(path, *args, **options):
    found = _TASKS.get(threading.get_ident())
    if found and not isinstance(path, int) and os.fsdecode(path).startswith(found[0]._text):
        found[0].operation(found[1])
    return _real["stat"](path, *args, **options)


def _getpid():
    found = _TASKS.get(threading.get_ident())
    return found[1].process.pid if found else _real["getpid"]()


def _hostname():
    found = _TASKS.get(threading.get_ident())
    return found[1].process.host if found else _real["hostname"]()


def _fsync(descriptor):
    found = _TASKS.get(threading.get_ident())
    if found is None:
        return _real["fsync"](descriptor)
    return _utime(descriptor)


def _utime(path, *args, **options):
    found = _TASKS.get(threading.get_ident())
    if found is None or args or options:
        return _real["utime"](path, *args, **options)
    stamp = found[0].stamp()
    return _real["utime"](path, ns=(stamp, stamp))


def _sleep(seconds):
    found = _TASKS.get(threading.get_ident())
    return found[0].sleep(seconds) if found else _real["sleep"](seconds)


def _monotonic():
    found = _TASKS.get(threading.get_ident())
    return found[0].now if found else _real["monotonic"]()


class _Checks(dict):
    """The checks of guarded directories, separately for each process."""

    def __setitem__(self, key, value):
        current().process.checks[key] = value

    def __delitem__(self, key):
        del current().process.checks[key]

    def values(self):
        found = _TASKS.get(threading.get_ident())
        return found[1].process.checks.values() if found else ()


@contextlib.contextmanager
def beating(beat, *, seconds=heartbeat.SECONDS, note=None, what="", waits=True):
    """Like `heartbeat.beating`, with a simulated thread."""
    place, ended, busy = world(), [], []

    def run():
        while True:
            place.sleep(seconds)
            if ended:
                return
            busy.append(True)
            try:
                beat()
            except LostError:
                return
            except OSError:
                pass
            finally:
                busy.clear()

    task = place.task(current().process, run)
    task.wakes = place.now
    try:
        yield
    finally:
        ended.append(True)
        place.wake(task)
        if waits and busy:
            place.wait(lambda: task.is_done)
