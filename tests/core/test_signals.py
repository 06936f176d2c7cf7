"""Signals, real ones: served within a second or so, whatever the process is doing."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import warm
from wording import says

from runner.core import signals

LONG = [
    "--gin_file=digits.gin",
    "--model_dir=run",
    *(
        f"--gin.TrainerConfig.{name}=10000000"
        for name in ("train_steps", "steps_per_loop", "summary_interval", "checkpoint_interval")
    ),
]
SLOW_EVALUATION = """
import time
import tensorflow as tf
from tasks import image_classification

step = image_classification.ImageClassificationTask.validation_step


def slow(self, inputs, model, metrics=None):
    tf.py_function(lambda: time.sleep(0.2), [], [])
    return step(self, inputs, model, metrics)


image_classification.ImageClassificationTask.validation_step = slow
"""
SLOW_START = """
import hashlib
import sys
import time
from tasks import image_classification

build = image_classification.ImageClassificationTask.build_model


def slow(self):
    print("building", file=sys.stderr, flush=True)
    {wait}
    return build(self)


image_classification.ImageClassificationTask.build_model = slow
"""


def start(*flags, cwd, env=None):
    command = [sys.executable, "-m", "runner", *flags]
    with (cwd / "err").open("w") as err:
        return warm.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=err)


def wait_for(path: Path, what=lambda path: path.exists(), seconds=500):
    for _ in range(seconds * 20):
        if what(path):
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} never came")


def let_work(process, seconds):
    """Waits until it has had the processor for so long, which takes longer on a busy machine."""
    seen = psutil.Process(process.pid)
    end = sum(seen.cpu_times()[:2]) + seconds
    while sum(seen.cpu_times()[:2]) < end:
        assert process.poll() is None
        time.sleep(0.02)


def said(text):
    return lambda path: path.exists() and text in path.read_text()


def state(tmp_path):
    return json.loads((tmp_path / "run" / "status.json").read_text())


@pytest.mark.parametrize(
    ("number", "code", "ends"),
    [(signal.SIGTERM, 143, "preempted"), (signal.SIGINT, 130, "stopped")],
)
def test_a_signal_in_an_endless_loop_saves_everything(tmp_path, number, code, ends):
    process = start("--mode=train", *LONG, cwd=tmp_path)
    wait_for(tmp_path / "err", said("resuming is bit-exact"))
    let_work(process, 2)  # inside the loop
    process.send_signal(number)
    assert process.wait(timeout=500) == code
    status = state(tmp_path)
    assert status["state"] == ends
    assert status["step"] > 0
    assert (tmp_path / "run" / f"ckpt-{status['step']}.index").exists()
    step, name = status["step"], signal.Signals(number).name
    reason = f"stopped by {name}"
    assert json.loads(process.stdout.read()) == {
        "status": ends,
        "step": step,
        "reason": reason,
        "model_dir": "run",
    }
    *_, last = (tmp_path / "err").read_text().splitlines()
    says(last, f"runner: {reason} {step:,} saved command")


@pytest.mark.parametrize(
    "wait", ["time.sleep(600)", "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)"]
)
def test_a_signal_before_the_first_step_saves_nothing_and_says_so(tmp_path, wait):
    (tmp_path / "slow.py").write_text(SLOW_START.format(wait=wait))
    (tmp_path / "slow.gin").write_text("import slow\ninclude 'digits.gin'\n")
    process = start("--mode=train", "--gin_file=slow.gin", *LONG[1:], cwd=tmp_path)
    wait_for(tmp_path / "err", said("building"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=500) == 143
    assert not list((tmp_path / "run").glob("ckpt-*"))
    assert state(tmp_path)["state"] == "preempted"
    last = json.loads(process.stdout.read())
    assert (last["status"], last["step"]) == ("preempted", 0)
    (row,) = json.loads((tmp_path / "run" / "run.json").read_text())["starts"]
    assert row["state"] == "preempted"
    assert not (tmp_path / "run" / "claim.json").exists()  # nothing to take over
    says((tmp_path / "err").read_text(), "step command")


def test_a_signal_while_the_start_is_recorded_is_recorded(tmp_path):
    slow_git = tmp_path / "git"
    slow_git.write_text("#!/bin/sh\ntouch asked\nexec sleep 600\n")
    slow_git.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    process = start("--mode=train", *LONG, cwd=tmp_path, env={**os.environ, "PATH": path})
    wait_for(tmp_path / "asked")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=500) == 143
    assert state(tmp_path)["state"] == "preempted"


def test_a_signal_in_an_evaluation_abandons_it_and_a_resume_does_it_first(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW_EVALUATION)
    (tmp_path / "slow.gin").write_text("import slow\ninclude 'digits.gin'\n")
    flags = [
        "--mode=train_and_eval",
        "--gin_file=slow.gin",
        "--model_dir=run",
        "--gin.TrainerConfig.train_steps=200",
        "--gin.TrainerConfig.validation_interval=100",
    ]
    small = "--gin_params=validation/ImageData.global_batch_size=2"
    process = start(*flags, small, cwd=tmp_path)
    wait_for(tmp_path / "run" / "ckpt-100.index")
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=500) == 143
    assert state(tmp_path)["step"] == 100
    assert not (tmp_path / "run" / "history.jsonl").exists()

    large = "--gin_params=validation/ImageData.global_batch_size=360"
    again = start(*flags, large, "--allow_config_change", cwd=tmp_path)
    assert again.wait(timeout=500) == 0
    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [100, 200]


def test_a_second_signal_ends_the_process_at_once(tmp_path):
    code = (
        "import os, signal, time\n"
        "from runner.core import signals\n"
        "said = lambda error: print(error, flush=True)\n"
        "hung = lambda error: time.sleep(600)\n"
        "with signals.served() as stop, stop.deferred():\n"
        "    with stop.abandoning(hung), stop.abandoning(said):\n"
        "        print('ready', flush=True)\n"
        "        while True: time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert process.poll() is None  # deferred
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=500) == 143
    says(process.stdout.read(), "ended second SIGTERM")


def test_foreign_code_that_keeps_the_interpreter_is_ended_where_nothing_is_to_be_saved():
    code = (
        "import hashlib\n"
        "from runner.core import signals\n"
        "with signals.served():\n"
        "    print('ready', flush=True)\n"
        "    hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    let_work(process, 0.5)  # inside the foreign code
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=500) == 143


def test_handlers_are_as_before_afterwards():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with signals.served():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_signal_raises_at_first_and_is_noted_when_deferred():
    told = threading.Event()
    with signals.served() as stop:
        stop.tell(told.set)
        with stop.deferred():
            os.kill(os.getpid(), signal.SIGINT)
            assert told.wait(300)
            assert stop.requested
            assert stop.number == signal.SIGINT
        with pytest.raises(signals.Interrupted):
            stop.check()
    with signals.served(), pytest.raises(signals.Interrupted):
        os.kill(os.getpid(), signal.SIGTERM)


def test_outside_the_main_thread_no_signal_is_served():
    seen = []

    def work():
        with signals.served() as stop:
            seen.append(stop.requested)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
