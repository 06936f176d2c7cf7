"""A directory at a file:// URL behaves like a bucket: its objects are whole."""

import concurrent.futures
import multiprocessing
import os
import signal
import time

import pytest

from runner.storage.bucket import Bucket

SIZE = 1 << 20
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def there(tmp_path):
    return Bucket(f"file://{tmp_path}/bucket")


def replace_forever(there):
    while True:
        for letter in (b"a", b"b"):
            there.write("state", letter * SIZE)


def test_a_writer_that_is_killed_leaves_whole_objects(there):
    for delay in (0.01, 0.02, 0.03, 0.05):
        writer = FORK.Process(target=replace_forever, args=(there,))
        writer.start()
        while there.read("state") is None:
            time.sleep(0.001)
        end = time.monotonic() + delay
        while time.monotonic() < end:
            assert there.read("state") in (b"a" * SIZE, b"b" * SIZE)
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        assert there.read("state") in (b"a" * SIZE, b"b" * SIZE)
        assert there.names() == ["state"]
        assert there.objects().keys() == {"state"}


def test_writers_with_the_same_process_number_do_not_disturb_each_other(there):
    """As in containers, whose first process has the number 1 everywhere. Here, they are threads."""
    contents = [bytes([each]) * 1_000_000 for each in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for name in ("a", "b", "c"):
            list(pool.map(there.write, ["all"] * 8, contents))
            created = list(pool.map(there.create, [name] * 8, contents))
            assert sum(created) == 1
            assert there.read(name) == contents[created.index(True)]
            assert there.read("all") in contents


@pytest.mark.parametrize("has_links", [True, False])
def test_only_one_of_two_creates_an_object(there, has_links, monkeypatch):
    if not has_links:

        def link(*_):
            raise PermissionError

        monkeypatch.setattr(os, "link", link)
    assert there.create("claims/1.json", b"one")
    assert not there.create("claims/1.json", b"two")
    assert there.read("claims/1.json") == b"one"
    assert there.names("claims") == ["1.json"]
