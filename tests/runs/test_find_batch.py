"""`--mode=find_batch`: which batch fits, and how fast each is."""

import json
import sys
import tempfile
from pathlib import Path

import pytest
import toy
from wording import saying, says

import runner
from runner import main
from runner.errors import ConfigError

DIGITS = ["--mode=find_batch", "--gin_file=digits.gin", "--gin.FindBatchConfig.first=64"]

# Instead of Python with the runner: batches up to 128 fit, and 64 are the fastest.
FAKE = """#!{python}
import json, os, re, signal, sys
size = int(re.search(r"find_batch.first=(\\d+)", sys.argv[-1])[1])
if size >= {most}:
    {end}
trial = {{"global_batch_size": size, "fits": True, "examples_per_second": {pace},
         "seconds_per_step": 0.1, "peak_memory_bytes": 10**9}}
print(json.dumps({{"trials": [trial]}}))
"""
KILLED = "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Makes the trials' processes end as told, at a pace that is told."""

    def make(end=KILLED, *, most=256, pace="1000.0 * size"):
        script = tmp_path / "python"
        script.write_text(FAKE.format(python=sys.executable, most=most, end=end, pace=pace))
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))

    return make


def search(capsys, *flags, code=0):
    assert main.main([*DIGITS, *flags]) == code
    printed = capsys.readouterr()
    return (json.loads(printed.out) if printed.out else None), printed.err


def test_a_size_that_the_system_kills_is_the_end(fake, capsys):
    fake()
    found, said = search(capsys, "--output=batch.json")
    assert (found["largest"], found["fastest"], found["suggestion"]) == (128, 128, 128)
    assert [trial["fits"] for trial in found["trials"]] == [True, True, False]
    says(found["ended"], "256 killed system")
    assert "does not fit" in said
    assert json.loads(Path("batch.json").read_text()) == found


def test_sizes_that_are_no_faster_end_the_search(fake, capsys):
    fake(most=10**9, pace="1000.0 + size / 100")
    found, _ = search(capsys)
    assert [trial["global_batch_size"] for trial in found["trials"]] == [64, 128, 256]
    assert (found["largest"], found["fastest"], found["suggestion"]) == (256, 256, 64)
    says(found["ended"], "2 faster FindBatchConfig.gain")


def test_no_batch_is_larger_than_the_data_or_the_limit(fake, capsys):
    fake(most=10**9)
    found, _ = search(capsys)
    assert found["largest"] == 1024
    says(found["ended"], "1,438 examples")
    found, _ = search(capsys, "--gin.FindBatchConfig.largest=300")
    assert (found["largest"], found["ended"]) == (256, "FindBatchConfig.largest = 300")


def test_a_first_size_that_does_not_fit_is_said(fake, capsys):
    fake(most=1)
    found, said = search(capsys, code=1)
    assert found["status"] == "failed"
    says(said, "smaller FindBatchConfig.first")


def test_a_mistake_is_no_lack_of_memory(fake, capsys):
    fake("sys.exit('runner: my data went away')")
    _, said = search(capsys, code=1)
    says(said, "256 exit code 1")
    says(said, "data went away")


def test_one_that_takes_too_much_memory_is_ended(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    _, said = search(capsys, "--gin.FindBatchConfig.memory_gb=0.1", code=1)
    says(said, "batches 64 fit FindBatchConfig.memory_gb 0.1")
    assert not list(tmp_path.glob("runner-*"))


def one_size(size, **task):
    return toy.experiment(
        {"run": {"find_batch": {"first": size, "largest": size, "seconds": 0.01}}}, **task
    )


def test_one_size_is_tried_here():
    found = runner.run(one_size(16), None, "find_batch")
    (trial,) = found["trials"]
    assert (trial["global_batch_size"], trial["fits"], found["suggestion"]) == (16, True, 16)
    assert trial["examples_per_second"] == pytest.approx(16 / trial["seconds_per_step"], rel=0.1)


def test_data_that_give_smaller_batches_are_no_trial(monkeypatch):
    monkeypatch.setattr(
        toy.ToyTask,
        "build_inputs",
        lambda *_: toy.tf.data.Dataset.from_tensor_slices(toy.data(10)).batch(16).repeat(),
    )
    with pytest.raises(ConfigError, match=saying("global_batch_size 16 data batches 10")):
        runner.run(one_size(16), None, "find_batch")


def test_several_sizes_need_processes():
    with pytest.raises(ConfigError, match=saying("processes runner.load")):
        runner.run(toy.experiment(), None, "find_batch")


def test_a_limit_below_the_first_size_is_refused(capsys):
    _, said = search(capsys, "--gin.FindBatchConfig.largest=32", code=2)
    says(said, "run.find_batch.largest 32 64")
