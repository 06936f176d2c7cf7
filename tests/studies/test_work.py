"""How a study works through its trials. Their processes only play: no training here."""

import functools
import json
import os
import threading
import time
from pathlib import Path
from typing import ClassVar

import pytest
from wording import says

from runner import config, main
from runner.core import child, layout
from runner.run_directory import claim, status
from runner.runs.call import Call
from runner.studies import pictures, places, publish, study, trial, warm, worker

DIGITS = ["--gin_file=digits.gin"]


class Played(child.Child):
    """In place of a trial's process: prints and writes what one does, and ends."""

    codes: ClassVar = {}  # by seed: the exit codes of its starts, the last one again and again
    seconds = 0.0
    started: ClassVar = []

    pid = os.getpid()

    def _start(self, command, *, stdout, **_):
        self.folder = Path(command[-1].removeprefix("--model_dir="))
        self.seed = trial.read(self.folder).seed
        codes = self.codes.get(self.seed, [0])
        self._code = codes[min(self.started.count(self.seed), len(codes) - 1)]
        self.started.append(self.seed)
        self._ends = time.monotonic() + self.seconds
        if state := {0: "done", 3: "diverged"}.get(self._code):
            status.StatusFile(self.folder).write(state, 40)
            (self.folder / layout.CLAIM).unlink(missing_ok=True)
        stdout.write(b"runner: no luck\n")

    @property
    def code(self):
        return self._code if time.monotonic() >= self._ends else None

    def wait(self, seconds):
        return self._code

    def send(self, number):
        pass


@pytest.fixture(autouse=True)
def played(monkeypatch):
    monkeypatch.setattr(warm, "begin", lambda flags: None)
    monkeypatch.setattr(warm, "Fork", Played)
    monkeypatch.setattr(pictures, "draw", lambda *_: [])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for name, value in (("codes", {}), ("started", []), ("seconds", 0.0)):
        monkeypatch.setattr(Played, name, value)
    return Played


def studied(folder, seeds, **options):
    """The exit code of a study with one job."""
    values = [f"--params_override=run.study.{name}={value}" for name, value in options.items()]
    flags = [*DIGITS, f"--seeds={seeds}", "--jobs=1", *values, f"--model_dir={folder}"]
    return main.main(["--mode=study", *flags])


def test_what_ends_badly_is_started_again_by_rule_and_stops_no_other(tmp_path, played, capsys):
    played.codes = {0: [1], 1: [-9], 2: [1, -9, 0], 3: [2], 4: [3]}
    assert studied(tmp_path, 6, failures=100, tries=3) == 0
    assert [played.started.count(seed) for seed in range(6)] == [3, 10, 3, 1, 1, 1]
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["trials"] == {"failed": 2, "done": 2, "refused": 1, "diverged": 1}
    reasons = [each.reason for each in trial.all_of(tmp_path)[:2]]
    assert reasons == ["no luck", "killed by SIGKILL"]


def test_a_study_in_which_every_trial_fails_is_a_failure(tmp_path, played, capsys):
    played.codes = {0: [1], 1: [1, 1, 0]}
    assert studied(tmp_path, 1, tries=2) == 1
    says(capsys.readouterr().err, "trial failed no luck")
    assert studied(tmp_path, 2, tries=2) == 1
    assert studied(tmp_path, 2, tries=2) == 0


def test_who_is_told_hears_of_the_study_and_not_of_its_trials(tmp_path, played, capsys):
    told = tmp_path / "told"
    run = f'--params_override=run.notify="echo $RUNNER_TEXT >> {told}"'
    flags = ["--mode=study", *DIGITS, run, "--seeds=3", f"--model_dir={tmp_path}/study"]
    assert main.main(flags) == 0
    assert told.read_text().splitlines()[0].startswith(f"{tmp_path}/study: done, 3 trials")
    assert len(told.read_text().splitlines()) == 1
    command = worker.arguments({"parameters": {}, "seed": 0, "fold": None}, {})
    given = [each.removeprefix("--params_override=") for each in [run, *command]]
    assert config.load(["digits.gin"], overrides=given).run.notify == ""


def test_a_machine_on_which_all_fails_is_set_aside_until_the_next_start(tmp_path, played, capsys):
    played.codes = {0: [1, 0], 2: [1, 1, 0], 3: [1, 0]}
    assert studied(tmp_path, 8, failures=3, tries=2) == 1
    assert played.started == [0, 0, 1, 2, 2, 3]
    said = capsys.readouterr()
    says(said.err, "trials 3 failed StudyConfig.failures")
    assert "5 trials left" in json.loads(said.out)["reason"]
    assert studied(tmp_path, 8, failures=3, tries=2) == 0
    assert played.started[6:] == [2, 3, 4, 5, 6, 7]


def fresh(monkeypatch):
    """The seeds of trials that are no forks."""
    seeds = []

    class Fresh(Played):
        codes: ClassVar = {}

        def _start(self, *arguments, **options):
            super()._start(*arguments, **options)
            seeds.append(self.seed)

    monkeypatch.setattr(places, "Child", Fresh)
    return seeds


def test_forks_that_would_hang_are_fresh_processes_and_the_reason_is_said(
    tmp_path, played, monkeypatch, capsys
):
    played.codes = {0: [warm.NOT_WARM]}
    seeds = fresh(monkeypatch)
    assert studied(tmp_path, 2) == 0
    assert seeds == [0, 1]
    says(capsys.readouterr().err, "uses TensorFlow imported")


def test_a_fork_that_hangs_is_ended_and_started_afresh(tmp_path, monkeypatch, capsys):
    class Hangs(child.Child):
        def _start(self, _, **options):
            super()._start(["sleep", "600"], **options)

    monkeypatch.setattr(warm, "Fork", Hangs)
    monkeypatch.setattr(worker, "_SILENT_SECONDS", 0.1)
    seeds = fresh(monkeypatch)
    assert studied(tmp_path, 2) == 0
    assert seeds == [0, 1]
    says(capsys.readouterr().err, "fork 0 hung")
    assert [each.kills for each in trial.all_of(tmp_path)] == [0, 0]


def test_two_workers_do_no_trial_twice_and_both_see_the_end(tmp_path, played, monkeypatch):
    played.seconds = 0.1
    published, one_at_a_time = publish.publish, threading.Lock()

    def publish_alone(*arguments):  # temporary files are named by process, and this is one
        with one_at_a_time:
            return published(*arguments)

    monkeypatch.setattr(publish, "publish", publish_alone)
    given = [["digits.gin"], [], ["run.study.seeds=[0,1,2,3,4,5]", "run.study.jobs=1"]]
    loaded = config.load(*given[:2], overrides=given[2], trains=True, evaluates=True)
    results = []

    def work():
        call = Call(loaded, tmp_path, arguments=DIGITS)
        results.append(study.study(call)["trials"])

    workers = [threading.Thread(target=work) for _ in range(2)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert sorted(played.started) == [0, 1, 2, 3, 4, 5]
    assert results == [{"done": 6}] * 2


def test_a_trial_of_another_host_that_fell_silent_is_taken_over(tmp_path, played, monkeypatch):
    monkeypatch.setattr(claim, "Silence", functools.partial(claim.Silence, patience=0.3))
    folder = tmp_path / layout.TRIALS / "0000-seed=0"
    trial.write(folder, {"number": 0, "parameters": {}, "seed": 0, "fold": None})
    status.StatusFile(folder).write("running", 20)
    holder = {"host": "other", "pid": 17, "boot": "b", "token": "t"}
    (folder / layout.CLAIM).write_text(json.dumps(holder))
    assert trial.read(folder).state == "running"
    assert studied(tmp_path, 2) == 0
    assert played.started == [1, 0]


def test_no_more_trials_start_than_there_is_memory_for(monkeypatch):
    class Running:
        def __init__(self, pid, *, trains):
            self.child, self.trains = type("Process", (), {"pid": pid}), trains

    peaks = {1: 1000, 2: 600}
    for available, fits in ((1700, True), (1500, False)):
        monkeypatch.setattr(places, "_kilobytes", lambda who, _, all=available: peaks.get(who, all))
        assert places.has_memory([Running(1, trains=True), Running(2, trains=False)]) == fits
    assert places.has_memory([])
    assert not places.has_memory([Running(1, trains=False), Running(2, trains=False)])


def test_jobs_follow_from_cores_and_gpus_and_share_the_threads(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))
    assert places.room(0, 100) == places.Room(8, 1, [])
    assert places.room(0, 3) == places.Room(3, 2, [])
    assert places.room(1, 100).threads == 0  # one alone takes what it likes
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    assert places.room(0, 100) == places.Room(2, 4, ["0", "2"])
