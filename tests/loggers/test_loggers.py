"""MLflow, W&B and CSV have every row once, whatever was killed, cut, repeated or away meanwhile."""

import contextlib
import csv
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import finished
import pytest
import toy
import yaml
from wording import says

import runner
from runner import main
from runner.run_directory.loggers import feed

WAIT_SECONDS = 300


def until(done, what):
    end = time.monotonic() + WAIT_SECONDS
    while not (found := done()):
        assert time.monotonic() < end, what
        time.sleep(0.05)
    return found


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def run(tmp_path):
    """The folder of a finished run."""
    folder = tmp_path / "runs" / "toy"
    finished.run(toy.experiment(), folder)
    return folder


def rows(folder, name="train.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def write(folder, found, name="train.jsonl"):
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in found))


def log(capsys, folder, *flags, code=0):
    """What the command prints: its results, or what went wrong."""
    capsys.readouterr()
    assert main.main(["--mode=log", f"--model_dir={folder}", *flags]) == code
    printed = capsys.readouterr()
    return printed.err if code else json.loads(printed.out.splitlines()[-1])["logged"]


# CSV


def test_a_run_is_followed_by_a_process_of_its_own(tmp_path):
    config = toy.experiment({"run": {"loggers": ["csv"]}})
    folder = tmp_path / "run"
    assert runner.run(config, folder, "train_and_eval")["status"] == "done"
    place = folder / "loggers" / "train.csv"
    evaluations = place.with_name("evaluations.csv")
    until(lambda: evaluations.exists() and len(table(evaluations)) == 2, "the evaluations")
    until(lambda: place.exists() and len(table(place)) == 4, "the whole table")
    for found, row in zip(table(place), rows(folder), strict=True):
        assert int(found["step"]) == row["step"]
        assert float(found["training_loss"]) == row["training_loss"]
    assert {row["source"] for row in table(evaluations)} == {"validation"}


def table(path):
    with path.open() as file:
        return list(csv.DictReader(file))


# MLflow


def imported():
    """The library, which takes long to import."""
    return pytest.importorskip("mlflow", reason="the extra mlflow is not installed")


class Gate:
    """A port that leads to a server, and can be shut: for its clients, the server is dead then."""

    def __init__(self, server):
        self._server = server
        self.port = port()
        self.after = math.inf  # connections; then it shuts
        self.open()

    def open(self):
        self._listening = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._serve, args=(self._listening,), daemon=True).start()

    def shut(self):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve(self, listening):
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server))
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=pair, daemon=True).start()

    def _copy(self, source, target):
        try:
            while data := source.recv(65536):
                if b"log-batch" in data:
                    self.after -= 1
                if self.after < 0:
                    break
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            with contextlib.suppress(OSError):  # close() alone leaves it open while others read
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The port of MLflow's own server over SQLite."""
    imported(), pytest.importorskip("flask", reason="MLflow's server needs it")
    folder, number = tmp_path_factory.mktemp("mlflow"), port()
    command = [sys.executable, "-m", "mlflow", "server", f"--port={number}", "--workers=1"]
    command += [f"--backend-store-uri=sqlite:///{folder}/mlflow.db"]
    command += [f"--artifacts-destination={folder}/artifacts"]
    own = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "log").open("w") as out:
        started = subprocess.Popen(
            command, env={**os.environ, **own}, stdout=out, stderr=out, start_new_session=True
        )
    try:
        until(lambda: answers(number), (folder / "log").read_text())
        yield number
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def answers(number):
    try:
        socket.create_connection(("127.0.0.1", number)).close()
    except OSError:
        return False
    return True


@pytest.fixture
def client(server, monkeypatch):
    """A client of the server, which the environment names, too."""
    uri = f"http://127.0.0.1:{server}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", f"{time.time()}")
    return imported().MlflowClient(uri)


def runs(client):
    """The runs of the test's experiment, by name."""
    there = client.get_experiment_by_name(os.environ["MLFLOW_EXPERIMENT_NAME"])
    found = client.search_runs([there.experiment_id])
    assert len({each.info.run_name for each in found}) == len(found)
    return {each.info.run_name: each for each in found}


def points(client, made, name):
    history = client.get_metric_history(made.info.run_id, name)
    return [
        (each.step, each.value) for each in sorted(history, key=lambda m: (m.step, m.timestamp))
    ]


def test_mlflow_has_each_row_once_the_configuration_and_the_best(run, client, capsys):
    assert log(capsys, run, "--to=mlflow", "--dry_run")["mlflow"] == {"rows": 6}
    assert log(capsys, run, "--to=mlflow")["mlflow"]["rows"] == 6
    assert log(capsys, run, "--to=mlflow")["mlflow"]["rows"] == 0
    made = runs(client)["toy"]
    assert made.info.status == "FINISHED"
    assert made.data.params["trainer.train_steps"] == "40"
    assert made.data.tags["runner.folder"] == str(run)
    losses = [(row["step"], row["training_loss"]) for row in rows(run)]
    assert points(client, made, "train/training_loss") == losses
    scores = [(row["step"], row["metrics"]["accuracy"]) for row in rows(run, "history.jsonl")]
    assert points(client, made, "validation/accuracy") == scores
    kept = {each.path for each in client.list_artifacts(made.info.run_id, "best")}
    assert "best/info.json" in kept


def test_rows_that_come_again_are_logged_again_only_if_their_values_changed(run, client, capsys):
    whole = rows(run)
    log(capsys, run, "--to=mlflow")
    write(run, whole[:2])  # killed, and resumed from step 20
    assert log(capsys, run, "--to=mlflow")["mlflow"]["rows"] == 0
    again = [{**row, "steps_per_second": 1.0} for row in whole]
    write(run, again)
    assert log(capsys, run, "--to=mlflow")["mlflow"]["rows"] == 0
    again[3]["training_loss"] = 7.0  # after a rollback
    write(run, again)
    back = {"kind": "rollback", "step": 30, "found": 40, "skipped": [30, 40], "rate": 1.0}
    back |= {"reason": "a NaN", "time": time.time()}
    write(run, [*rows(run, "history.jsonl"), back], "history.jsonl")
    assert log(capsys, run, "--to=mlflow")["mlflow"]["rows"] == 1
    made = runs(client)["toy"]
    assert made.data.metrics["train/training_loss"] == 7.0
    assert [step for step, _ in points(client, made, "train/training_loss")] == [10, 20, 30, 40, 40]


def test_a_server_that_dies_gets_the_rest_later_and_nothing_twice(
    run, client, server, capsys, monkeypatch
):
    first = rows(run)[0]
    write(run, [{**first, "step": step, "training_loss": 1 / step} for step in range(1, 1001)])
    gate = Gate(server)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{gate.port}")
    gate.after = 6  # requests, some of them with parameters and tags
    said = log(capsys, run, "--to=mlflow", code=1)
    assert "mlflow: " in said
    says(said, "rerun command")
    gate.shut()
    says(log(capsys, run, "--to=mlflow", code=1), "rerun command")
    gate.after = math.inf
    gate.open()
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # a slow client's may be dropped
    assert 0 < log(capsys, run, "--to=mlflow")["mlflow"]["rows"] < 1002
    gate.shut()
    made = runs(client)["toy"]
    expected = [(step, 1 / step) for step in range(1, 1001)]
    assert points(client, made, "train/training_loss") == expected


def test_training_does_not_mind_a_server_that_is_dead(tmp_path, monkeypatch):
    imported()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port()}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    folder = tmp_path / "run"
    config = toy.experiment({"run": {"loggers": ["mlflow"]}})
    assert runner.run(config, folder, "train_and_eval")["status"] == "done"
    place = folder / "loggers" / "mlflow.log"
    said = until(lambda: place.exists() and place.read_text(), "a line in the log")
    assert f"--mode=log --to=mlflow --model_dir={folder}" in said
    assert len(said.splitlines()) == 1


def test_mlflow_takes_odd_names_odd_numbers_many_metrics_and_long_values(run, client, capsys):
    many = {f"m{number}": float(number) for number in range(500)}
    odd = {"a(b)": 1.0, "a[b]": 2.0, "../x": 3.0, "y" * 300: 4.0, "n": "nan", "i": "-inf"}
    write(run, [{"step": 10, **odd}, {"step": 20, **many}, {"step": 30, **many}])
    write(run, [{"step": 20, "time": 1.8e9, "cpu": 0.5, "memory": 2**31}], "system.jsonl")
    values = yaml.safe_load((run / "params.yaml").read_text())
    values["task"] |= {"text": "x" * 7000, "api_key": "a1b2c3d4e5", "also": "uses a1b2c3d4e5"}
    (run / "params.yaml").write_text(yaml.safe_dump(values))
    log(capsys, run, "--to=mlflow")
    assert log(capsys, run, "--to=mlflow")["mlflow"]["rows"] == 0
    made = runs(client)["toy"]
    metrics = made.data.metrics
    assert metrics["train/a_b_"] == 1.0
    assert metrics["train/a_b_-2"] == 2.0
    assert math.isnan(metrics["train/n"])
    assert metrics["train/i"] < -1e308
    assert metrics["system/memory"] == 2**31
    assert [metrics[f"train/m{number}"] for number in range(500)] == [*range(500)]
    assert made.data.params["task.api_key"] == "***"
    assert made.data.params["task.also"] == "uses ***"
    assert made.data.params["task.text"].endswith("...")
    kept = {each.path for each in client.list_artifacts(made.info.run_id)}
    assert kept == {"best"}  # not params.yaml, which has the secret


def test_a_study_is_a_parent_and_its_trials_are_its_children(run, client, capsys):
    study = run.parent / "study"
    for number in range(2):
        folder = study / "trials" / f"000{number}-seed={number}"
        shutil.copytree(run, folder)
        facts = {"number": number, "parameters": {"A.b": 0.1}, "seed": number, "fold": None}
        (folder / "trial.json").write_text(json.dumps(facts))
    (study / "study.json").write_text("{}")
    assert log(capsys, study, "--to=mlflow")["mlflow"]["rows"] == 12
    assert log(capsys, study, "--to=mlflow")["mlflow"]["rows"] == 0
    found = runs(client)
    assert set(found) == {"study", "0000-seed=0", "0001-seed=1"}
    child, parent = found["0001-seed=1"], found["study"].info.run_id
    assert child.data.tags["mlflow.parentRunId"] == parent
    assert child.data.params["trial.A.b"] == "0.1"
    assert child.data.params["trial.seed"] == "1"
    assert [each.path for each in client.list_artifacts(parent)] == ["study.json"]


def test_a_run_that_was_deleted_there_is_not_made_again_by_itself(run, client, capsys):
    made = log(capsys, run, "--to=mlflow")["mlflow"]["run"]
    client.delete_run(made)
    write(run, [*rows(run), {"step": 50, "training_loss": 1.0}])
    said = log(capsys, run, "--to=mlflow", code=1)
    says(said, f"{made} deleted")
    assert "loggers/mlflow.jsonl" in said


# W&B


@pytest.fixture
def offline(monkeypatch):
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")


def stored(folder):
    """The records of all sessions in a folder, of each kind."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal import datastore

    found = {}
    for path in sorted(folder.glob("loggers/wandb/offline-run-*/*.wandb")):
        store = datastore.DataStore()
        store.open_for_scan(path)
        while data := store.scan_data():
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            kind = record.WhichOneof("record_type")
            found.setdefault(kind, []).append(getattr(record, kind))
    return found


def logged(folder):
    """The step and the values of each row that W&B has, its own names left out."""
    for row in stored(folder)["history"]:
        items = {item.key or "/".join(item.nested_key): item for item in row.item}
        values = {name: json.loads(item.value_json) for name, item in items.items()}
        yield values.pop("step"), {name: x for name, x in values.items() if "/" in name}


def test_wandb_has_each_row_once_also_after_a_kill(run, offline, capsys):
    killed = (
        "import os, signal, sys; from pathlib import Path;"
        "from runner.run_directory.loggers import feed;"
        "feed.of(Path(sys.argv[1]), 'wandb').give(whole=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    died = subprocess.run([sys.executable, "-c", killed, str(run)])
    assert died.returncode == -signal.SIGKILL
    assert log(capsys, run, "--to=wandb")["wandb"]["rows"] == 6
    assert log(capsys, run, "--to=wandb")["wandb"]["rows"] == 0
    losses = {step: x["train/training_loss"] for step, x in logged(run) if "train/accuracy" in x}
    assert losses == {row["step"]: row["training_loss"] for row in rows(run)}
    assert len(list(logged(run))) == 6
    assert {each.type for each in stored(run)["artifact"]} == {"model", "file"}


def test_wandb_has_both_tables_of_a_study(run, offline, capsys):
    study = run.parent / "study"
    shutil.copytree(run, study / "trials" / "0000-seed=0")
    facts = {"number": 0, "parameters": {"A.b": 0.1}, "seed": 0, "fold": None}
    (study / "trials" / "0000-seed=0" / "trial.json").write_text(json.dumps(facts))
    for name in ("study.json", "trials.csv", "trials.parquet"):
        (study / name).write_text("{}")
    log(capsys, study, "--to=wandb")
    names = [each.name.rpartition("-")[0] for each in stored(study)["artifact"]]
    assert sorted(names) == ["study", "trials.csv", "trials.parquet"]


# The command


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model_dir=runs"], "--to mlflow"),
        (["--model_dir=runs", "--to=mlfow"], "mlfow logger"),
        (["--to=csv"], "--model_dir missing"),
        (["--to=csv", "--model_dir=none"], "not exist"),
        (["--to=csv", "--model_dir=runs", "--gin_file=a.gin"], "--gin_file no effect --launch"),
    ],
)
def test_what_cannot_be_logged_is_refused(flags, said, capsys):
    assert main.main(["--mode=log", *flags]) == 2
    says(capsys.readouterr().err, said)


def test_a_library_that_is_missing_is_named_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(feed.importlib.util, "find_spec", lambda name: None)
    config = toy.experiment({"run": {"loggers": ["wandb"]}})
    with pytest.raises(runner.errors.ConfigError, match=r"pip install .*\[wandb\]"):
        runner.run(config, tmp_path / "run", "train")
    assert not Path("run").exists()
