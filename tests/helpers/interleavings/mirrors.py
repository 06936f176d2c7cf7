"""Two hosts that train one run in a bucket, one after the other, and a reader."""

import contextlib
import threading

from interleavings import scheduler
from interleavings.evaluators import STEPS, Checkpoints, damage
from interleavings.scheduler import ViolationError, current
from runner.checkpoints import checkpoint_files, integrity
from runner.core import files, layout
from runner.errors import LostError, RunnerError
from runner.history import history, records
from runner.storage import fetching, lease, manifest, mirror
from runner.storage.bucket import BucketError

PATIENCE = 25.0


class Objects:
    """In place of a bucket: each object is read and written as a whole."""

    url = "test://bucket/run"

    def __init__(self, world):
        self._world = world
        self.held = {}
        self.manifests = []

    def _turn(self):
        if threading.get_ident() in scheduler._TASKS:
            self._world.operation(current())

    def read(self, name):
        self._turn()
        return self.held.get(name)

    def write(self, name, content):
        self._turn()
        self.held[name] = content
        if name == manifest.NAME:
            self.manifests.append(manifest.Manifest.loads(content))

    def create(self, name, content):
        self._turn()
        return self.held.setdefault(name, content) is content

    def upload(self, source, name):
        self.write(name, source.read_bytes())

    def download(self, name, target):
        self._turn()
        if name not in self.held:
            raise FileNotFoundError(name)
        target.write_bytes(self.held[name])

    def names(self, folder=""):
        self._turn()
        start = f"{folder}/" if folder else ""
        found = (name[len(start) :] for name in self.held if name.startswith(start))
        return sorted({name.partition("/")[0] for name in found})

    def objects(self):
        self._turn()
        return {name: (len(content), 0) for name, content in self.held.items()}

    def remove(self, names):
        for name in names:
            self._turn()
            self.held.pop(name, None)


class Mirror(mirror.Mirror):
    """A mirror whose thread is simulated."""

    def __enter__(self):
        self._world = scheduler.world()
        self._beating.__enter__()
        self._task = self._world.task(current().process, self._run)
        return self

    def _wait(self, pause):
        self._world.sleep(pause or 1.0)

    def finish(self, timeout):
        self._ending.set()
        self._world.wait(lambda: self._task.is_done)
        self.check()
        with contextlib.suppress(BucketError):
            self._claim.release()


class TwoHosts:
    """The processes.

    Properties:
        Never two writers: the states of the bucket follow the order of the locks, and no step is
            taken back.
        No file that a state of the bucket names is lost: a reader finds complete checkpoints at any
            time, and the second host continues from the newest one.
        The last state is complete in the bucket.
    """

    def __init__(self, world):
        self.world = world
        self.bucket = Objects(world)
        self.ended = False
        self.readings = []
        first = world.process("first", self.train, host="first")
        world.process("second", self.train, host="second", crashes=False)
        world.process("reader", self.read, host="third", crashes=False)
        self.first = first
        world.replace(integrity, "damage", damage)
        world.replace(lease, "_seconds", lambda: world.now)
        world.replace(fetching.concurrent.futures, "ThreadPoolExecutor", _AtOnce)

    def train(self):
        name = current().process.name
        folder = self.world.root / name
        folder.mkdir()
        asking = lease.Asking(
            note=[].append,
            patience=PATIENCE,
            clock=lambda: self.world.now,
            sleep=self.world.sleep,
        )
        if name == "second":
            self.world.wait(lambda: self.world.is_over(self.first))
        claim = lease.take(self.bucket, asking)
        copy = fetching.Replica(self.bucket, folder)
        copy.bring()
        self.look(folder, copy.held)
        kept = Mirror(folder, self.bucket, claim, copy.held, known=copy.stamps, note=[].append)
        with contextlib.suppress(LostError), kept, files.guarded(folder, kept.check):
            self.steps(folder)
            kept.finish(600)
            self.ended = True

    def steps(self, folder):
        rows = history.History(folder / layout.HISTORY)
        newest = checkpoint_files.latest(folder)
        begun = checkpoint_files.step_in(newest.name) if newest else 0
        checkpoints = Checkpoints(folder)
        for step in STEPS:
            if step > begun:
                self.world.sleep(1.0)
                rows.append(records.Evaluation(step, {}, 0.0, 0.0, f"ckpt-{step}"))
                checkpoints.commit(step)

    def read(self):
        folder = self.world.root / "reader"
        folder.mkdir()
        copy = fetching.Replica(self.bucket, folder)
        for _ in range(2):
            self.world.sleep(1.5)
            with contextlib.suppress(RunnerError):
                if copy.bring():
                    self.look(folder, copy.held)

    def look(self, folder, held):
        """Checks a state of the bucket as a reader has received it."""
        for path in checkpoint_files.committed(folder):
            if reason := damage(folder / path.name):
                raise ViolationError(f"a reader has {path.name} in its list, but {reason}")
        if held.files and self.newest(held) < max(map(self.newest, self.bucket.manifests[:1])):
            raise ViolationError("a state was taken back")

    def newest(self, held):
        steps = [checkpoint_files.step_in(manifest.checkpoint_of(path)) for path in held.files]
        return max((step for step in steps if step is not None), default=-1)

    def check(self):
        states = self.bucket.manifests
        if [state.claim for state in states] != sorted(state.claim for state in states):
            raise ViolationError("two writers")
        newest = [self.newest(state) for state in states]
        if newest != sorted(newest):
            raise ViolationError("a checkpoint that the bucket had was lost")
        if not self.ended or newest[-1:] != [STEPS[-1]]:
            raise ViolationError("the bucket lacks the last state")
        for path, entry in states[-1].files.items():
            if len(self.bucket.held.get(path, b"")) < entry.size:
                raise ViolationError(f"{path} is named but missing")


class _AtOnce:
    """In place of a pool of threads: runs each call at once."""

    def __init__(self, size):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, call, *args):
        return _Done(call, args)


class _Done:
    def __init__(self, call, args):
        self._error, self._value = None, None
        try:
            self._value = call(*args)
        except Exception as error:
            self._error = error

    def result(self):
        if self._error:
            raise self._error
        return self._value


def of_two_hosts(world):
    return TwoHosts(world).check
