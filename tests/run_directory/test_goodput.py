"""Where the time of a run went, over all its starts, also of one that was really killed."""

import json
import signal
import sys
import textwrap

import finished
import pytest
import toy
import warm
from wording import saying, says

from runner import main
from runner.core import schedule
from runner.errors import RunnerError
from runner.run_directory import goodput, spent
from runner.run_directory.run import Run


class Clock:
    """Seconds that pass only where a test says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def times(clock):
    return spent.Spent(clock=clock, processor=lambda: 0.0)


def loop(step, steps, seconds):
    return schedule.Loop(step, steps, seconds, {}, summary=False)


def train(times, clock, step, steps, seconds, **more):
    clock.now += seconds
    times.trained(loop(step, steps, seconds), **more)


def test_the_parts_add_up_to_the_time_since_the_start(times, clock):
    clock.now = 5.0
    times.turn("training")
    train(times, clock, 10, 10, 4.0)
    train(times, clock, 20, 10, 2.0, input_wait=0.25)
    with times.on("evaluation"):
        clock.now += 3.0
        with times.on("checkpoint"):
            clock.now += 1.0
    train(times, clock, 30, 10, 2.0)
    times.turn("end")
    clock.now += 0.5
    found = times.as_dict()
    assert found == {
        **{"start": 5.0, "training": 5.5, "compile": 2.0, "input_wait": 0.5},
        **{"evaluation": 3.0, "checkpoint": 1.0, "end": 0.5},
        **{"from": 0, "steps": 30, "thrown_away": 0, "furthest": 30},
    }
    assert sum(value for name, value in found.items() if name in goodput.PARTS) == clock.now


def test_steps_that_an_earlier_start_had_done_are_done_again(times, clock):
    times.resumed(100, reached=125, furthest=130)
    times.turn("training")
    train(times, clock, 110, 10, 5.0)  # the first takes longer
    train(times, clock, 120, 10, 1.0)
    train(times, clock, 140, 20, 2.0)  # half of these are new
    found = times.as_dict()
    assert found["thrown_away"] == 25
    assert found["compile"] == 4.0
    assert found["again"] == 3.0
    assert found["training"] == 1.0


def test_steps_before_a_rollback_are_thrown_away(times, clock):
    times.turn("training")
    train(times, clock, 10, 10, 1.0)
    train(times, clock, 20, 10, 1.0)
    times.rolled_back(20, to=10)
    train(times, clock, 20, 10, 1.0)
    assert times.as_dict()["thrown_away"] == 10
    assert times.as_dict()["again"] == 1.0


@pytest.mark.parametrize(("busy", "suspended"), [(0.0, 55.0), (50.0, None)])
def test_a_late_sign_of_life_of_an_idle_process_ends_a_suspension(clock, busy, suspended):
    spent_by_processors = Clock()
    times = spent.Spent(clock=clock, processor=spent_by_processors)
    times.turn("training")
    times.beat()
    clock.now, spent_by_processors.now = 60.0, busy
    times.beat()
    found = times.as_dict()
    assert found.get("suspended") == suspended
    assert found["training"] == 60.0 - (suspended or 0.0)


def test_a_run_says_where_its_time_went(tmp_path, capsys):
    finished.run(toy.experiment(), tmp_path)
    ledger = Run(tmp_path).time
    (start,) = ledger.starts
    assert (start.first, start.step, start.state) == (0, 40, "done")
    assert {"start", "training", "evaluation", "checkpoint"} <= set(ledger.parts)
    assert ledger.seconds == pytest.approx(start.ended - start.began, abs=1.0)
    assert 0 < ledger.share < 1
    assert ledger.thrown_away == ledger.kills == 0
    assert main.main(["--mode=status", f"--model_dir={tmp_path}"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["goodput"] == ledger.as_dict()
    assert goodput.sentence(ledger)[1:] in printed.err
    assert "evaluation  " in printed.err


KILLS = """
    import os, signal, time
    from pathlib import Path

    class AtStep150:
        loops = 0

        def __call__(self, logs):
            self.loops += 1
            if self.loops == 14:
                time.sleep(0.2)  # so that step 150 is noted at once
            if self.loops == 15 and not Path("killed").exists():
                Path("killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
"""
BINDINGS = """
    include "digits.gin"
    import killer
    RunConfig.actions = [@killed/ActionConfig()]
    killed/ActionConfig.action = @killer.AtStep150()
    TrainerConfig.train_steps = 300
    TrainerConfig.checkpoint_interval = 100
    TrainerConfig.validation_interval = 100
    TrainerConfig.steps_per_loop = 10
"""


def test_steps_thrown_away_by_a_real_kill_are_known_exactly(tmp_path, monkeypatch):
    (tmp_path / "killer.py").write_text(textwrap.dedent(KILLS))
    (tmp_path / "mine.gin").write_text(textwrap.dedent(BINDINGS))
    command = [
        sys.executable,
        "-m",
        "runner",
        "--mode=train_and_eval",
        "--gin_file=mine.gin",
        "--model_dir=run",
    ]
    with (tmp_path / "err").open("w") as err:
        codes = [warm.Popen(command, cwd=tmp_path, stderr=err).wait(600) for _ in range(2)]
    assert codes == [-signal.SIGKILL, 0]
    ledger = Run(tmp_path / "run").time
    first, second = ledger.starts
    assert (first.state, first.step, second.first, second.step) == ("lost", 150, 100, 300)
    assert ledger.thrown_away == second.thrown_away == 50
    assert ledger.kills == 1
    assert ledger.parts["again"] > 0
    says(goodput.sentence(ledger), "50 discarded 1")


def record(folder, *starts, status=None):
    base = {"ended": None, "step": None, "pid": 1, "state": "done"}
    rows = [{**base, **start} for start in starts]
    (folder / "run.json").write_text(json.dumps({"starts": rows}))
    if status:
        (folder / "status.json").write_text(json.dumps(status))


def test_a_run_of_an_older_version_is_not_recorded(tmp_path):
    record(tmp_path, {"started": 10.0, "ended": 40.0, "step": 5})
    ledger = Run(tmp_path).time
    assert ledger.parts == {"unknown": 30.0}
    says(goodput.sentence(ledger), "unknown share 30.0")


def test_the_time_between_starts_is_a_queue_where_a_scheduler_requeued(tmp_path):
    parts = {"training": 9.0, "start": 1.0}
    record(
        tmp_path,
        {"started": 0.0, "ended": 10.0, "spent": parts, "job": "7", "state": "preempted"},
        {"started": 130.0, "ended": 140.0, "spent": parts, "job": "7"},
        {"started": 150.0, "ended": 160.0, "spent": parts},
    )
    ledger = Run(tmp_path).time
    assert ledger.parts == {"training": 27.0, "start": 3.0, "queue": 120.0, "between": 10.0}
    assert ledger.share == 0.9


def test_a_run_that_goes_on_is_as_far_as_its_last_sign_of_life(tmp_path):
    record(
        tmp_path,
        {"started": 100.0, "launched": 98.0, "state": "running"},
        status={
            **{"state": "running", "reason": "", "host": "a", "pid": 1},
            **{"step": 70, "heartbeat": 110.0, "spent": {"start": 4, "training": 8}},
        },
    )
    (start,) = Run(tmp_path).time.starts
    assert (start.began, start.ended, start.step) == (98.0, 110.0, 70)
    assert start.parts == {"start": 4.0, "training": 8.0}


def test_ledgers_of_several_runs_are_added(tmp_path):
    record(tmp_path, {"started": 0.0, "ended": 10.0, "spent": {"training": 8, "start": 2}})
    ledger = Run(tmp_path).time
    both = goodput.together([ledger, ledger])
    assert both.parts == {"training": 16.0, "start": 4.0}
    assert both.share == 0.8


@pytest.mark.parametrize("text", ['{"starts": 3}', '{"starts": [{}]}', "[1]"])
def test_a_damaged_record_is_named(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunnerError, match=saying("run.json record run")):
        _ = Run(tmp_path).time


def test_energy_is_added_up_from_samples_of_power(tmp_path):
    start = {"started": 100.0, "ended": 130.0, "step": 10}
    samples = [
        {"time": 90.0, "gpu0_watts": 900.0},  # of an earlier attempt
        {"time": 110.0, "gpu0_watts": 50.0, "cpu_watts": 20.0},
        {"time": 120.0, "gpu0_watts": 100.0},
    ]
    (tmp_path / "system.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in samples))
    record(tmp_path, {**start, "spent": {"steps": 10}})
    assert Run(tmp_path).time.joules == 10 * 70 + 10 * 100
    record(tmp_path, {**start, "spent": {"steps": 10, "joules": 5.0}})  # an earlier version's
    assert Run(tmp_path).time.joules == 5
    (tmp_path / "system.jsonl").unlink()
    record(tmp_path, {**start, "spent": {"steps": 10}})
    assert Run(tmp_path).time.joules is None
