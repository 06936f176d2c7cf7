"""`--mode=runs`: a table of the runs below a folder."""

import csv
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time

import folders_of_runs
import pytest
import yaml
from pyarrow import parquet
from wording import says

from runner import main
from runner.core import layout
from runner.inspection import folders, rows
from runner.run_directory import claim
from runner.run_directory.run import Run
from runner.studies import trial


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def shown(capsys):
    """Runs the command over `runs`; its table by lines, and its last line."""

    def run(*flags, code=0):
        assert main.main(["--mode=runs", "--model_dir=runs", *flags]) == code
        printed = capsys.readouterr()
        if code:
            return printed.err
        *table, last = printed.out.splitlines()
        return [line.split() for line in table], json.loads(last)

    return run


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


def names(table):
    return [line[0] for line in table[1:]]


def test_a_table_shows_how_far_runs_are_and_what_is_special(shown, runs):
    folders_of_runs.make(runs / "a", rate=0.1)
    folders_of_runs.make(runs / "deep" / "er" / "b", rate=0.2, accuracy=(0.9, 0.7))
    table, last = shown()
    head = [
        "run",
        "state",
        "step",
        "best",
        "accuracy",
        "last",
        "accuracy",
        "time",
        "steps/s",
        "learning_rate",
    ]
    assert table == [
        head,
        ["a", "done", "40", "0.9", "0.9", "1:00", "5", "0.1"],
        ["deep/er/b", "done", "40", "0.9", "0.7", "1:00", "5", "0.2"],
    ]
    assert last == {"runs": 2, "of": 2, "states": {"done": 2}, "model_dir": "runs"}


def test_the_trials_of_a_study_are_runs(shown, runs):
    for number, state in enumerate((None, "done")):
        folder = runs / "rate" / layout.TRIALS / f"000{number}-rate"
        if state:
            folders_of_runs.make(folder, seed=7)
        trial.write(folder, {"number": number, "parameters": {}, "seed": 7, "fold": 2})
    shown()
    waiting, done = rows.below(runs)
    assert (waiting.state, waiting.seed, waiting.study) == ("waiting", 7, "rate")
    assert (done.state, done.number, done.fold) == ("done", 1, 2)


def test_values_that_only_one_optimizer_has_are_not_special(shown, runs):
    for name in ("sgd", "adam"):
        folders_of_runs.make(runs / name, optimizer=name, sets=[{"name": "noisy", "interval": 5}])
    table, _ = shown()
    assert table[0][-1] == "optimizer.type"
    assert [line[-1] for line in table[1:]] == ["adam", "sgd"]


def test_schedules_of_several_kinds_share_a_column_of_the_learning_rate(shown, runs):
    for name, kind, field, rate in (
        ("a", "constant", "learning_rate", 0.1),
        ("b", "cosine", "initial_learning_rate", 0.2),
        ("c", "cosine", "initial_learning_rate", 0.3),
    ):
        folders_of_runs.make(runs / name, rate=rate)
        path = runs / name / "params.yaml"
        text = path.read_text().replace("constant", kind).replace("Constant", kind)
        path.write_text(text.replace(f" learning_rate: {rate}", f" {field}: {rate}"))
    table, _ = shown()
    assert [name for name in table[0] if "rate" in name] == ["learning_rate", "learning_rate.type"]
    at = table[0].index("learning_rate") - len(table[0])
    assert [line[at] for line in table[1:]] == ["0.1", "0.2", "0.3"]
    table, _ = shown("--columns=run,learning_rate", "--sort=-learning_rate")
    assert names(table) == ["c", "b", "a"]


def test_the_share_of_training_is_a_column_where_it_is_known(shown, runs):
    folders_of_runs.make(runs / "a", start={"spent": {"training": 45.0, "start": 15.0}})
    folders_of_runs.make(runs / "b")
    table, _ = shown()
    assert [line[-1] for line in table] == ["goodput", "75%", "-"]
    assert names(shown("--where=goodput > 0.7")[0]) == ["a"]


def test_tags_and_notes_are_shown_and_asked_for(shown, runs):
    folders_of_runs.make(runs / "a", tags=["base", "old"], notes="the first")
    folders_of_runs.make(runs / "b", tags=["new"])
    table, _ = shown("--where='base' in tags")
    assert table[1] == [*["a", "done", "40", "0.9", "0.9", "1:00", "5"], "base,old", "the", "first"]


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("accuracy > 0.75 and seed == 1", ["b"]),
        ("best.accuracy >= 0.9 or last['accuracy'] < 0.75", ["a", "d"]),
        ("0.6 < accuracy < 0.85", ["a", "b"]),
        ("not state == 'done'", ["d"]),
        ("learning_rate in (0.3, 0.4)", ["c", "d"]),
        ("trainer.train_steps == 40 and run.seed != 0", ["b", "c", "d"]),
        ("accuracy - 0.1 > 0.75", ["d"]),
        ("accuracy > 'high'", []),
        ("steps_per_second > 1 and started < '1971'", ["a", "b", "c", "d"]),
    ],
)  # fmt: skip
def test_a_condition_chooses(shown, runs, condition, found):
    for number, name in enumerate("abcd"):
        accuracy = (0.7, 0.8, math.nan, 0.9)[number]
        state = "failed" if name == "d" else "done"
        rate = 0.1 * (number + 1)
        folders_of_runs.make(
            runs / name, accuracy=(0.5, accuracy), seed=number, state=state, rate=round(rate, 1)
        )
    table, last = shown(f"--where={condition}")
    assert (names(table) if last["runs"] else []) == found
    assert last["of"] == 4


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("__import__('os').system('touch pwned')", "not allowed"),
        ("().__class__.__bases__", "not allowed"),
        ("[x for x in (1,)]", "not allowed"),
        ("accuracy ** 9999999", "not allowed"),
        ("lambda: 1", "not allowed"),
        ("accuracy >", "invalid syntax"),
        ("(" * 500, "--where="),
        ("acuracy > 1", "mean accuracy"),
    ],
)
def test_a_condition_is_never_run_as_python(shown, runs, tmp_path, condition, said):
    folders_of_runs.make(runs / "a")
    says(shown(f"--where={condition}", code=2), said)
    assert not (tmp_path / "pwned").exists()


def test_runs_are_sorted_and_those_without_a_value_come_last(shown, runs):
    for name, accuracy in {"a": [0.5], "b": [0.9], "c": [math.nan], "d": []}.items():
        folders_of_runs.make(runs / name, accuracy=accuracy)
    assert names(shown("--sort=-last.accuracy")[0]) == ["b", "a", "c", "d"]
    assert names(shown("--sort=last.accuracy,-run")[0]) == ["a", "b", "d", "c"]


def test_columns_are_chosen_by_name_end_or_pattern(shown, runs):
    folders_of_runs.make(runs / "a")
    table, _ = shown("--columns=run,train_steps,train.*")
    assert table == [
        ["run", "train_steps", "train", "training_loss"],
        ["a", "40", "0.5"],
    ]
    assert "may be trainer.optimizer_config" in shown("--columns=name", code=2)
    says(shown("--columns=nothing*", code=2), "column matches")


def test_values_are_those_of_the_yaml_file(shown, runs):
    folder = folders_of_runs.make(runs / "a")
    path = folder / "params.yaml"
    path.write_text(f"{path.read_text()}table:\n  10: 0.5\n  kept: |+\n    x\n\nzz: |+\n  y\n")
    (row,) = rows.below(runs)
    assert row.configuration == yaml.safe_load(path.read_text())
    table, _ = shown("--columns=run,table.10")
    assert table[1] == ["a", "0.5"]


def test_the_table_is_written_to_files(shown, runs, tmp_path):
    hostile = '<script>alert("x")</script>, b'
    folders_of_runs.make(runs / hostile, accuracy=(math.inf, math.nan), tags=["p", "q"])
    folders_of_runs.make(runs / "a", rate=0.2, accuracy=())
    for ending in ("csv", "json", "jsonl", "parquet"):
        _, last = shown(f"--output=table.{ending}")
        assert last["output"] == f"table.{ending}"
    with (tmp_path / "table.csv").open() as file:
        line, _ = csv.DictReader(file)
    assert (line["run"], line["best.accuracy"], line["tags"]) == (hostile, "inf", "p,q")
    (row, _) = json.loads((tmp_path / "table.json").read_text())
    assert (row["run"], row["last.accuracy"], row["tags"]) == (hostile, "nan", ["p", "q"])
    found = parquet.read_table(tmp_path / "table.parquet").to_pylist()
    rate = "trainer.optimizer_config.learning_rate.constant.learning_rate"
    assert [each[rate] for each in found] == [0.1, 0.2]
    assert "must end in" in shown("--output=table.xlsx", code=2)


def test_damaged_folders_are_shown_as_such_among_good_ones(shown, runs):
    folders_of_runs.make(runs / "good")
    damage = {
        "params.yaml": "a: [",
        "run.json": '{"starts": 3}',
        "status.json": "[]",
        "history.jsonl": '{"kind": "nothing", "step": 1}\n{}\n',
        "train.jsonl": "1\n2\n",
    }
    for name, text in damage.items():
        folder = folders_of_runs.make(runs / name.partition(".")[0])
        (folder / name).write_text(text)
    (folders_of_runs.make(runs / "binary") / "params.yaml").write_bytes(b"\xff\xfe\0")
    _, last = shown()
    assert last["states"] == {"damaged": 6, "done": 1}
    by_name = {row.name: row for row in rows.below(runs)}
    assert "params.yaml is damaged" in by_name["params"].reason
    assert by_name["status"].best == {"accuracy": 0.9}, "what can be read is shown"


def test_a_run_that_is_being_written_is_running_and_one_that_was_killed_is_not(shown, runs):
    folders_of_runs.make(runs / "killed", state="running")
    folder = folders_of_runs.make(runs / "now", state="running")
    with (folder / "train.jsonl").open("a") as file:
        file.write('{"step": 50, "train')
    with claim.claimed(folder, note=print, instead=""):
        table, _ = shown("--columns=run,state,train.training_loss")
        assert table[1:] == [["killed", "preempted", "0.5"], ["now", "running", "0.5"]]
        silent = time.time() - 7200
        os.utime(folder / layout.CLAIM, (silent, silent))
        says(rows.of(Run(folder, strict=False)).reason, "heartbeat 2:00:")
    assert shown()[1]["states"] == {"preempted": 2}


def test_a_killed_run_is_at_its_last_step_and_not_at_its_last_heartbeat(runs):
    ended = folders_of_runs.make(runs / "ended")
    killed = folders_of_runs.make(runs / "killed", state="running")
    assert [row.step for row in rows.below(runs)] == [40, 40]  # of status.json alone
    for folder in (ended, killed):
        (folder / layout.STEP).write_text("                  47\n")
    assert [row.step for row in rows.below(runs)] == [40, 47]
    (killed / "ckpt-50.index").write_text("")  # saved within the tenth of a second before the kill
    assert Run(killed).step == 50


def test_what_changed_is_read_again_and_what_is_gone_forgotten(shown, runs, tmp_path):
    for name in "ab":
        folders_of_runs.make(runs / name)
    first = rows.below(runs)
    assert rows.below(runs) == first
    shutil.rmtree(runs / "a")
    row = json.dumps({"step": 50, "training_loss": 0.25})
    with (runs / "b" / "train.jsonl").open("a") as file:
        file.write(f"{row}\n")
    (row,) = rows.below(runs)
    assert row.train == {"training_loss": 0.25}
    (tmp_path / "cache" / "runner" / "runs.sqlite").write_bytes(b"no data base")
    assert rows.below(runs) == [row]


def test_many_runs_are_read_by_several_processes_with_the_same_result(runs, tmp_path):
    first = folders_of_runs.make(runs / "0")
    for number in range(1, 500):
        shutil.copytree(first, runs / f"{number}")
        lost = {"step": number, "training_loss": 1 / number}
        folders_of_runs.lines(runs / f"{number}" / "train.jsonl", [lost])
    (runs / "77" / "run.json").write_text("no JSON")
    table = tmp_path / "table.json"
    command = [sys.executable, "-m", "runner", "--mode=runs", "--model_dir=runs"]
    subprocess.run([*command, f"--output={table}"], cwd=tmp_path, check=True)
    (tmp_path / "cache" / "runner" / "runs.sqlite").unlink()
    thread = threading.Timer(60, lambda: None)  # a process with threads is not forked
    thread.start()
    alone = rows.below(runs)
    thread.cancel()
    assert rows.below(runs) == alone
    found = json.loads(table.read_text())
    assert [(row["run"], row["state"], row["train.training_loss"]) for row in found] == [
        (row.name, row.state, row.train["training_loss"]) for row in alone
    ]
    assert [row["run"] for row in found if row["state"] == "damaged"] == ["77"]


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_run_that_is_removed_after_it_was_found_is_left_out(runs, monkeypatch, is_cached):
    for name in "ab":
        folders_of_runs.make(runs / name)
    if is_cached:
        rows.below(runs)
    found = list(folders.runs(runs))
    shutil.rmtree(runs / "a")
    monkeypatch.setattr(folders, "runs", lambda _: found)
    assert [row.name for row in rows.below(runs)] == ["b"]


def test_nothing_is_written_where_the_runs_are(shown, runs):
    folder = folders_of_runs.make(runs / "a")
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*")}
    folder.chmod(0o555)
    runs.chmod(0o555)
    try:
        assert shown()[1]["runs"] == 1
    finally:
        runs.chmod(0o755)
        folder.chmod(0o755)
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("*")} == before


def test_many_metrics_and_many_evaluations(shown, runs):
    folder = folders_of_runs.make(runs / "a")
    metrics = {f"part{n}/accuracy": n / 500 for n in range(500)}
    row = {"kind": "evaluation", "metrics": metrics, "seconds": 1.0, "time": 0.0}
    folders_of_runs.lines(folder / "history.jsonl", [{**row, "step": 1, "checkpoint": "ckpt-1"}])
    folders_of_runs.lines(folder / "train.jsonl", [{"step": 1, **{"x" * 200: 1.0}, **metrics}] * 50)
    found = shown("--columns=last.part49?/accuracy")[0]
    assert len(found[1]) == 10
    assert shown("--where=last['part3/accuracy'] < 0.1")[1]["runs"] == 1
    many = [
        {**row, "metrics": {"accuracy": 1 / n}, "step": n, "checkpoint": f"ckpt-{n}"}
        for n in range(1, 20_001)
    ]
    folders_of_runs.lines(folder / "history.jsonl", many)
    (one,) = rows.below(runs)
    assert (one.evaluations, one.best_step, one.last_step) == (20_000, 1, 20_000)


def test_evaluations_of_an_evaluator_count_for_a_run_that_has_none(runs):
    folder = folders_of_runs.make(runs / "a", accuracy=())
    beside = folders_of_runs.make(folder / "eval-cpu", accuracy=(0.3, 0.4))
    (row,) = rows.below(runs)
    assert (row.best_step, row.best) == (40, {"accuracy": 0.4})
    (beside / "params.yaml").unlink()


def test_links_are_followed_once(runs, tmp_path):
    folders_of_runs.make(tmp_path / "elsewhere" / "a")
    runs.mkdir()
    for name in ("one", "two"):
        (runs / name).symlink_to(tmp_path / "elsewhere")
    (runs / "loop").symlink_to(runs)
    assert [row.name for row in rows.below(runs)] == ["one/a"]


def test_mistakes_are_told(shown, runs, capsys):
    assert "--model_dir=runs does not exist" in shown(code=2)
    runs.mkdir()
    assert shown()[0] == [["no", "runs", "in", "runs"]]
    says(shown("--seeds=3", code=2), "--seeds --mode=runs study")
    says(shown("--dry_run", code=2), "--dry_run effect")
    assert main.main(["--mode=train", "--where=a", "--gin_file=x", "--model_dir=y"]) == 2
    says(capsys.readouterr().err, "--where --mode=train runs")
    assert main.main(["--mode=runs"]) == 2
    assert "--model_dir is missing" in capsys.readouterr().err
