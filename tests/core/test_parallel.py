"""Functions that are computed on all processors."""

import json
import os
import subprocess
import sys
import time

import psutil
import pytest
from wording import says

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor")

PROGRAM = """
import json, os, signal, threading, time
from runner.core import parallel

def square(item):
    time.sleep(0.001)
    if item == -1:
        os.kill(os.getpid(), signal.SIGKILL)
    return item**2, os.getpid()

print(json.dumps({"own": os.getpid(), "results": list(parallel.mapped(square, ITEMS, at_once=10))}))
"""


def computed(items, before="", code=0):
    program = f"ITEMS = {items}\n{PROGRAM}".replace("\nprint", f"\n{before}\nprint")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stderr if code else json.loads(done.stdout)


def test_other_processes_compute_many_items_in_their_order():
    found = computed(list(range(500)))
    results, processes = zip(*found["results"], strict=True)
    assert list(results) == [item**2 for item in range(500)]
    assert len(set(processes)) > 1
    assert found["own"] not in processes


@pytest.mark.parametrize(
    ("items", "before"),
    [
        (list(range(30)), ""),
        (list(range(500)), "threading.Thread(target=time.sleep, args=(1,)).start()"),
        (list(range(500)), "import sys; sys.modules['tensorflow'] = None"),
    ],
)
def test_one_process_computes_few_items_or_what_cannot_be_forked(items, before):
    found = computed(items, before)
    assert found["results"] == [[item**2, found["own"]] for item in items]


def test_a_killed_process_is_told():
    says(computed([-1, *range(500)], code=1), "RunnerError killed memory")


def test_they_end_with_a_killed_process(tmp_path):
    log = tmp_path / "processes"
    note = f"open({str(log)!r}, 'a').write(f'{{os.getpid()}} ')"
    program = f"ITEMS = {list(range(9000))}\n{PROGRAM}".replace("time.sleep(0.001)", note)
    started = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)
    while not log.exists():
        assert started.poll() is None
        time.sleep(0.01)
    started.kill()
    started.wait()
    read = set(map(int, log.read_text().split()))
    end = time.monotonic() + 60
    while any(psutil.pid_exists(each) for each in read) and time.monotonic() < end:
        time.sleep(0.01)
    assert read
    assert not [each for each in read if psutil.pid_exists(each)]
