"""Hosts that lock a directory in a bucket, one after the other."""

import contextlib

from interleavings.scheduler import ViolationError, current
from runner.errors import LostError, RunnerError
from runner.storage import lease
from runner.storage.bucket import Bucket

PATIENCE = 7.0


class Holders:
    """Hosts that lock a directory in a bucket, here of files, write, and release it.

    Properties:
        Never two holders: once a later lock exists, its predecessor's holder writes no more.
        A dead holder's lock is taken over, and no host ends with another error than a rejection.
    """

    def __init__(self, world, count):
        self.world = world
        folder = world.root / "bucket"
        folder.mkdir()
        self.url = f"file://{folder}"
        self.written = []
        for number in range(count):
            world.process(f"host {number}", self.hold, host=f"{number}", crashes=number < 2)
        world.replace(lease, "_seconds", lambda: world.now)

    def hold(self):
        asking = lease.Asking(
            note=[].append,
            patience=PATIENCE,
            clock=lambda: self.world.now,
            sleep=self.world.sleep,
        )
        current().is_quiet = True
        bucket = Bucket(self.url)
        current().is_quiet = False
        with contextlib.suppress(LostError, RunnerError):
            held = lease.take(bucket, asking)
            for _ in range(2):
                held.check(again=True)
                self.written.append(held.mark.number)
                self.world.sleep(1.0)
                held.beat()
            held.release()

    def check(self):
        if self.written != sorted(self.written):
            raise ViolationError("two holders")
        if len(set(self.written)) < 1:
            raise ViolationError("nobody got the lock")


def of_three_hosts(world):
    return Holders(world, 3).check
