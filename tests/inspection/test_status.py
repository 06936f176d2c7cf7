"""How far runs are: what is said of a run, of a study and of a folder of runs, and when."""

import json
import re
import time

import folders_of_runs
import pytest
from wording import each_says, says

from runner import main
from runner.core import layout
from runner.inspection import progress
from runner.run_directory import claim, claim_file, pulse, status

ELSEWHERE = {"host": "node-3", "pid": 7, "boot": "another kernel", "token": "t"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def shown(capsys):
    """What the command says: a list of words for each line, and the answer."""

    def run(folder, *flags):
        assert main.main(["--mode=status", f"--model_dir={folder}", *flags]) == 0
        printed = capsys.readouterr()
        lines = [re.split(r"  +", line.strip()) for line in printed.err.splitlines()]
        return lines, json.loads(printed.out)

    return run


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(pulse, "PATIENCE_SECONDS", 0.2)


def running(folder, *, step=20, spent=None, heartbeat=None):
    """A run that says so."""
    folders_of_runs.make(folder, state="running")
    seen = {"state": "running", "step": step, "reason": "", "host": "node-3", "pid": 7}
    seen |= {"heartbeat": heartbeat or time.time(), "spent": spent}
    (folder / "status.json").write_text(json.dumps(seen))
    (folder / "step.txt").write_text(f"{step}\n")
    return folder


def elsewhere(folder, **given):
    """A run of another machine."""
    running(folder, **given)
    (folder / "claim.json").write_text(json.dumps(ELSEWHERE))
    return folder


def trial(study, number, made):
    folder = study / "trials" / f"{number:04}-x"
    made(folder)
    facts = {"number": number, "seed": number, "parameters": {}}
    (folder / "trial.json").write_text(json.dumps(facts))
    return folder


def waiting(folder):
    folder.mkdir(parents=True)


def test_a_run_that_has_ended(tmp_path, shown):
    folder = folders_of_runs.make(tmp_path / "a")
    lines, last = shown(folder)
    says(lines[0][0], "Done 40 accuracy")
    assert lines[1:3] == [
        ["run", "state", "step", "steps/s", "heartbeat", "attempts", "host"],
        ["a", "done", "40", "5", lines[2][4], "1", "a"],
    ]
    assert (last["status"], last["step"], last["metrics"]) == ("done", 40, {"accuracy": 0.9})
    assert last["seconds_left"] is last["seconds_silent"] is None


def test_a_run_of_this_machine_by_its_own_clock(tmp_path, shown):
    spent = {"start": 9.0, "training": 3.0, "evaluation": 1.0, "from": 0, "steps": 8}
    folder = running(tmp_path / "a", spent=spent)
    with claim.claimed(folder, note=print), status.StatusFile(folder) as file:
        file.beat(30)
        last = shown(folder)[1]
        assert (last["status"], last["step"], last["train_steps"]) == ("running", 30, 40)
        assert last["steps_per_second"] == 5.0, "while it trains"
        assert last["seconds_silent"] < 30
    last = shown(folder)[1]
    assert (last["status"], last["seconds_left"]) == ("preempted", None)


def test_what_is_left_counts_evaluations_too(tmp_path, impatient):
    spent = {"start": 9.0, "training": 3.0, "evaluation": 1.0, "from": 0, "steps": 8}
    elsewhere(tmp_path / "a", step=20, spent=spent)
    (line,) = progress.Board(tmp_path).look()
    assert (line.pace, line.left) == (2.0, 10.0)


def test_a_run_elsewhere_whose_clock_is_two_hours_off(tmp_path):
    folder = elsewhere(tmp_path / "a", heartbeat=time.time() - 7200)
    now = 0.0
    seen = pulse.Pulse(folder, clock=lambda: now)
    assert seen.look() == (0.0, False)
    now = 7.0
    assert seen.look() == (7.0, False)
    (folder / "step.txt").write_text("21")
    assert seen.look() == (0.0, True)
    now = 70.0
    assert seen.look() == (63.0, True)


def test_no_sign_of_life_is_said_and_not_taken_for_the_end(tmp_path, shown, impatient):
    elsewhere(tmp_path / "runs" / "a")
    lines, last = shown(tmp_path / "runs")
    assert lines[-1][:2] == ["a", "running"]
    assert any(cell.startswith("none for ") for cell in lines[-1])
    assert last["states"] == {"running": 1}


def test_a_run_that_is_silent_for_a_minute(tmp_path, monkeypatch):
    elsewhere(tmp_path / "a")
    board = progress.Board(tmp_path)
    assert [line.state for line in board.look()] == ["running"]
    since = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: since + 61)
    monkeypatch.setattr(progress, "UNRESPONSIVE_SECONDS", 0.0)
    assert [line.state for line in board.look()] == ["silent"]


def test_a_study_in_numbers_and_its_trials_that_run(tmp_path, shown, impatient):
    study = tmp_path / "runs" / "rate"
    trial(study, 0, folders_of_runs.make)
    trial(study, 1, lambda folder: elsewhere(folder, step=20))
    trial(study, 2, waiting)
    folders_of_runs.make(tmp_path / "runs" / "other", state="failed")
    lines, last = shown(tmp_path / "runs")
    each_says(lines[0], "3 1 done running 0:12")
    assert [line[:3] for line in lines[1:]] == [
        ["run", "state", "step"],
        ["rate/trials/0001-x", "running", "20 of 40"],
        ["other", "failed", "40"],
    ]
    assert last["studies"] == [
        {"study": "rate", "trials": {"done": 1, "running": 1, "waiting": 1}, "seconds_left": 12}
    ]
    assert [each["run"] for each in last["active"]] == ["rate/trials/0001-x"]
    assert shown(study)[0][0][0].startswith("rate: 3 trials")


def test_the_workers_of_a_run_have_a_column(tmp_path, shown, impatient):
    folder = elsewhere(tmp_path / "runs" / "a")
    (folder / "workers").mkdir()
    said = {"state": "running", "hosts": ["a:1", "b:1"], "restarts": [], "slow": []}
    (folder / "workers" / "supervisor.json").write_text(json.dumps(said))
    lines, last = shown(tmp_path / "runs")
    assert dict(zip(lines[0], lines[1], strict=True))["workers"] == "2"
    assert last["active"][0]["workers"] == 2


def test_the_workers_of_a_run_that_has_ended_have_ended(tmp_path, shown):
    folder = folders_of_runs.make(tmp_path / "a")
    (folder / "workers").mkdir()
    said = {"state": "running", "hosts": ["a:1", "b:1"], "restarts": [], "slow": []}
    (folder / "workers" / "supervisor.json").write_text(json.dumps(said))
    assert shown(folder)[1]["workers"] == {**said, "state": "ended"}
    (folder / "workers" / "supervisor.json").write_text('{"hosts": 3}')
    assert shown(folder)[1]["workers"] is None


def submitted(folder, job, log):
    """As `--launch=slurm` leaves it."""
    path = folder / "launch" / "submitted.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    row = {"launcher": "slurm", "job": job, "time": 1.0, "log": str(path.with_name(log))}
    with path.open("a") as file:
        file.write(json.dumps({**row, "cancel": f"scancel {job}"}) + "\n")


def test_a_run_that_waits_in_a_queue(tmp_path, shown):
    folder = tmp_path / "runs" / "a"
    submitted(folder, "17", "slurm-17.log")
    for root in (folder, tmp_path / "runs"):
        lines, last = shown(root)
        assert lines[-1][:2] == ["a", "waiting"]
        says(lines[-1][-1], "submitted slurm 17")
        assert (last["status"], last["states"]) == ("waiting", {"waiting": 1})
        assert [(each["run"], each["job"]) for each in last["submitted"]] == [("a", "17")]
    (folder / "launch" / "slurm-17.log").touch()
    lines, last = shown(folder)
    says(lines[-1][-1], "started 17 slurm launch/")
    assert not last["submitted"]
    folders_of_runs.make(folder, state="preempted")
    assert shown(folder)[1]["status"] == "preempted"
    submitted(folder, "18", "slurm-18.log")
    lines, last = shown(tmp_path / "runs")
    assert lines[-1][1] == "preempted"
    says(lines[-1][-1], "submitted slurm 18")


def test_a_study_whose_array_waits_in_a_queue(tmp_path, shown):
    study = tmp_path / "runs" / "rate"
    submitted(study, "17", "slurm-17_*.log")
    assert shown(study)[0][-1][:2] == ["rate", "waiting"]
    (study / "launch" / "slurm-17_1.log").touch()
    assert shown(study)[0][-1][-1].startswith("started as job 17")
    trial(study, 0, folders_of_runs.make)
    lines, last = shown(tmp_path / "runs")
    assert lines[0] == ["rate: 1 trial: 1 done"]
    assert last["runs"] == 1


def test_watching_shows_the_table_again_until_all_have_ended(tmp_path, shown, monkeypatch):
    folder = elsewhere(tmp_path / "runs" / "a")

    def sleep(seconds):
        assert seconds == 3
        (folder / "claim.json").unlink()
        folders_of_runs.make(tmp_path / "done")
        for name in ("status.json", "run.json"):
            (tmp_path / "done" / name).replace(folder / name)

    monkeypatch.setattr(time, "sleep", sleep)
    lines, last = shown(tmp_path / "runs", "--watch=3")
    assert [line[1] for line in lines if line[0] == "a"] == ["running", "done"]
    assert last["status"] == "done"


def test_it_writes_nothing(tmp_path, shown):
    folder = folders_of_runs.make(tmp_path / "runs" / "a")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}
    shown(folder)
    shown(tmp_path / "runs")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")} == before


def test_damage_is_named_and_the_rest_is_shown(tmp_path, shown):
    for name, text in {"status.json": "{}", "params.yaml": "a: [", "run.json": "3"}.items():
        (folders_of_runs.make(tmp_path / "runs" / name[:3]) / name).write_text(text)
    folders_of_runs.make(tmp_path / "runs" / "good")
    lines, last = shown(tmp_path / "runs")
    assert last["states"] == {"damaged": 3, "done": 1}
    assert any("params.yaml is damaged" in line[-1] for line in lines)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "not exist"),
        ("nowere", "not exist mean 'nowere'"),
        ("nowhere", "no run"),
        ("file", "not directory"),
    ],
)
def test_a_folder_without_runs(tmp_path, capsys, made, said):
    folder = tmp_path / "nowhere"
    if made == "file":
        folder.write_text("")
    elif made:
        (tmp_path / made).mkdir()
    assert main.main(["--mode=status", f"--model_dir={folder}"]) == 2
    says(capsys.readouterr().err, said)


def test_the_holder_is_whoever_the_status_is_of(tmp_path):
    """A claim of this machine beside the status of another start says nothing of its clock."""
    folder = running(tmp_path / "a")
    holder = vars(claim_file.Holder.this()) | {"pid": 8}
    (folder / layout.CLAIM).write_text(json.dumps(holder))
    assert not pulse.Pulse(folder).look().is_known
