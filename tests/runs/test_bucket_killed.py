"""A run in a bucket of a real server: killed, stopped, and gone on with by another machine."""

import json
import signal
import subprocess
import sys

import buckets
import pytest
import warm

from runner import main
from runner.run_directory.verification import comparison
from runner.storage import bucket, fetching, lease, manifest

FLAGS = [
    "--gin_file=digits.gin",
    "--gin.TrainerConfig.train_steps=1000",
    "--gin.TrainerConfig.steps_per_loop=2",
    *(f"--gin.TrainerConfig.{name}_interval=100" for name in ("checkpoint", "validation")),
]


@pytest.fixture(scope="module")
def server():
    server = buckets.Server()
    yield server
    server.stop()


def test_killed_and_stopped_it_ends_elsewhere_with_the_same_bits(server, tmp_path, monkeypatch):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    url = f"s3://{server.bucket()}/runs/digits"
    there = bucket.Bucket(url)
    command = ["--mode=train_and_eval", *FLAGS]
    assert main.main([*command, f"--model_dir={tmp_path / 'once'}"]) == 0

    def copied():
        names = map(manifest.checkpoint_of, manifest.read(there).files)
        return max((int(name.removeprefix("ckpt-")) for name in names if name), default=0)

    def start(machine):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / machine))
        return warm.Popen(
            [sys.executable, "-m", "runner", *command, f"--model_dir={url}"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=(tmp_path / f"{machine}.err").open("a"),
        )

    killed = start("one")
    server.way.when(f"PUT {url.removeprefix('s3:/')}/ckpt-".encode(), killed.kill)
    assert killed.wait() == -signal.SIGKILL
    stopped = start("one")  # on the same machine nobody waits for a heartbeat
    buckets.wait_for(lambda: copied() > 100)  # what the killed one had: now this one trains
    stopped.send_signal(signal.SIGTERM)
    out, _ = stopped.communicate(timeout=600)
    if stopped.returncode:  # it may have been done
        assert stopped.returncode == 143
        assert json.loads(out.splitlines()[-1])["model_dir"] == url
    assert manifest.read(there).whole
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two"))
    monkeypatch.setattr(lease, "PATIENCE_SECONDS", 1.0)
    assert main.main([*command, f"--model_dir={url}"]) == 0
    found = tmp_path / "found"
    fetching.Replica(there, found).bring()
    parts = comparison.compare(tmp_path / "once", found)
    assert not [part for part in parts if part.differences]
    starts = json.loads((found / "run.json").read_text())["starts"]
    assert starts[0]["state"] == "lost"
