"""Claims in a bucket: one of several, heartbeats by one clock, and takeovers that are seen."""

import concurrent.futures
import uuid

import pytest
from wording import saying

from runner.errors import LostError, RunnerError
from runner.storage import lease
from runner.storage.bucket import Bucket


@pytest.fixture
def bucket():
    return Bucket(f"memory://{uuid.uuid4().hex}/run")


class Clock:
    """Time that passes only in waits; `during` is called in each."""

    def __init__(self, during=lambda: None):
        self.now, self.during = 0.0, during

    def sleep(self, seconds):
        self.now += seconds
        self.during()

    def asking(self, **more):
        notes = []
        return lease.Asking(note=notes.append, clock=lambda: self.now, sleep=self.sleep, **more)


def test_a_released_folder_is_taken_at_once(bucket):
    first = lease.take(bucket, Clock().asking())
    first.release()
    clock = Clock()
    second = lease.take(bucket, clock.asking())
    assert (second.mark.number, second.before, clock.now) == (2, first.mark, 0.0)


def test_a_holder_that_is_alive_is_left_alone(bucket):
    first = lease.take(bucket, Clock().asking())
    with pytest.raises(RunnerError, match=saying("process stop")):
        lease.take(bucket, Clock(first.beat).asking(instead="--model_dir"))
    assert first.check()


def test_a_holder_without_heartbeats_is_taken_over_and_finds_out(bucket):
    first = lease.take(bucket, Clock().asking())
    clock = Clock()
    second = lease.take(bucket, clock.asking())
    assert 60 <= clock.now < 70
    for harmless in (first.beat, first.release):  # of one that was only suspended
        harmless()
        assert second.check()
    with pytest.raises(LostError, match=saying("lost memory://")):
        first.check()


def test_the_holder_of_ones_own_folder_is_known_to_be_gone(bucket):
    first = lease.take(bucket, Clock().asking())
    clock = Clock()
    lease.take(bucket, clock.asking(last=first.mark))
    assert clock.now == 0


def test_of_several_that_take_over_at_once_one_succeeds(tmp_path):
    bucket = Bucket(f"file://{tmp_path}/run")  # in memory, creation is not exclusive among threads
    lease.take(bucket, Clock().asking())

    def attempt(_):
        try:
            return lease.take(bucket, Clock().asking())
        except RunnerError:
            return None

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = [each for each in pool.map(attempt, range(8)) if each]
    holding = []
    for each in found:  # one after the other may find the one before silent, as no time passes
        try:
            each.check()
            holding.append(each)
        except LostError:
            pass
    assert len(holding) == 1


def test_a_folder_that_was_emptied_and_taken_by_another_is_lost(bucket):
    first = lease.take(bucket, Clock().asking())
    bucket.remove(["claims/00000001.json"])
    assert not first.check()
    lease.take(bucket, Clock().asking())
    with pytest.raises(LostError):
        first.renew()
