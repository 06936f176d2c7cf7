"""Directories of runs that were made to do harm: they are read as data, whatever they hold."""

import json
import random
import re
import shutil
import sys

import folders_of_runs
import pytest
import yaml

from runner import main
from runner.run_directory import pulse

CODES = "x\x1b[2J\x07</script><b>"
VALUES = [None, True, -1, float("inf"), float("nan"), 10**30, CODES, "\ud800", [], {}, [[1, "a"]]]
CONTENTS = [b"", b"\xff\xfe", b"null", b"7", b'"x"', b"[]", b"{}", b"\0" * 50, b"1" * 5000]
CONTENTS += [b"[" * 50_000, b'{"a":' * 3_000, b"a: &a [*a]", b"- " * 3_000]
BOMB = "a0: &a0 [x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(pulse, "PATIENCE_SECONDS", 0.0)


@pytest.fixture
def folder(tmp_path):
    """A trial of a study, with every file that the tables and pages read."""
    run = tmp_path / "study" / "trials" / "0-a"
    start = {"mode": "train", "command": ["runner", "--mode=train"], "reads": {"run.seed": 1}}
    folders_of_runs.make(run, start=start)
    restart = {"time": 1.0, "generation": 1, "workers": 1, "worker": 0, "code": 1, "reason": "r"}
    workers = {"state": "running", "generation": 1, "hosts": ["a:1"], "least": 1, "most": 2}
    objects = {
        "overview.json": {"parameters": 10, "flops": 1e6},
        "trial.json": {"number": 0, "parameters": {"A.b": 1}, "seed": 0, "fold": None},
        "best/info.json": {"accuracy": 0.9, "best_ckpt_global_step": 40.0, "checkpoint": "ckpt-40"},
        "workers/supervisor.json": {**workers, "slow": [], "restarts": [restart]},
        "eval-x/evaluator.json": {"host": "a", "pid": 1, "beat": 1.0},
    }
    for name, value in objects.items():
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text(json.dumps(value))
    shutil.copy(run / "history.jsonl", run / "eval-x")
    folders_of_runs.lines(run / "attempts.jsonl", [{"exit_code": 1, "reason": "r", "host": "h"}])
    folders_of_runs.lines(run / "system.jsonl", [{"step": 10, "time": 1001.0, "cpu": 0.5}])
    job = {"launcher": "slurm", "job": "1", "time": 1.0, "log": "/x/y.log", "cancel": "scancel 1"}
    (run / "launch").mkdir()
    folders_of_runs.lines(run / "launch" / "submitted.jsonl", [job])
    return run


def read(folder, capfd):
    """What all modes say that only read; none may raise, or pass on a terminal's codes."""
    page = folder.parents[2] / "page.html"
    good = folder.parents[2] / "good"
    if not good.exists():
        folders_of_runs.make(good)
    for command in (
        ["--mode=runs", f"--model_dir={folder.parents[1]}", "--columns=all"],
        ["--mode=status", f"--model_dir={folder}"],
        ["--mode=report", f"--model_dir={folder}", f"--output={page}"],
        ["--mode=report", f"--model_dir={folder.parents[1]}", f"--output={page}"],
        ["--mode=compare", str(folder), str(good)],
        ["--print_config=reads", f"--model_dir={folder}"],
    ):
        code = main.main(command)
        printed = capfd.readouterr()
        assert code in (0, 1, 2, 5), printed.err
        assert "Traceback" not in printed.err, (command, printed.err)
        assert "\x1b[2J" not in printed.out + printed.err, command


def mutated(value, rng):
    """A value of JSON in which one place is another value, or missing."""
    if rng.random() < 0.25 or not isinstance(value, dict | list) or not value:
        return rng.choice(VALUES)
    if isinstance(value, list):
        place = rng.randrange(len(value))
        return [*value[:place], mutated(value[place], rng), *value[place + 1 :]]
    name = rng.choice(list(value))
    rest = {other: each for other, each in value.items() if other != name}
    return rest if rng.random() < 0.2 else {**rest, name: mutated(value[name], rng)}


def damaged(name, content, rng):
    if rng.random() < 0.25:
        return rng.choice(CONTENTS)
    if name.endswith(".yaml"):
        return yaml.safe_dump(mutated(yaml.safe_load(content), rng)).encode()
    rows = [json.loads(line) for line in content.splitlines()]
    place = rng.randrange(len(rows))
    rows[place] = mutated(rows[place], rng)
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.mark.parametrize("seed", range(3))
def test_damaged_files_are_left_out_or_named(folder, capfd, seed):
    rng = random.Random(seed)
    files = [path for path in sorted(folder.rglob("*.*")) if path.is_file()]
    for path in rng.sample(files, 8):
        before = path.read_bytes()
        path.write_bytes(damaged(path.name, before, rng))
        read(folder, capfd)
        path.write_bytes(before)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("params.yaml", None, BOMB),
        ("params.yaml", None, "run: []\ntrainer: x\n"),
        ("status.json", '"step": 40', '"step": null'),
        ("status.json", '"done"', "Infinity"),
        ("attempts.jsonl", '"exit_code": 1, ', ""),
        ("attempts.jsonl", None, '"text"\n'),
        ("history.jsonl", '"seconds": 0.1', '"seconds": [1]'),
        ("history.jsonl", '"time": 1001.0', '"time": NaN'),
        ("trial.json", '"fold": null', '"fold": []'),
        ("workers/supervisor.json", '"a:1"', "null"),
        ("run.json", '"train"', json.dumps(CODES)),
        ("run.json", '"train"', '"\\ud800"'),
        ("run.json", None, "[" * 100_000),
    ],
)
def test_each_of_these_was_once_a_traceback_or_a_hang(folder, capfd, name, old, new):
    path = folder / name
    path.write_text(path.read_text().replace(old, new) if old else new)
    read(folder, capfd)


def test_texts_of_a_run_cannot_change_a_page_or_a_terminal(folder, capfd, tmp_path):
    folders_of_runs.make(folder, notes=CODES, tags=[CODES], start={"host": CODES, "mode": CODES})
    read(folder, capfd)
    page = (tmp_path / "page.html").read_text()
    assert CODES[4:] not in page
    assert len(re.findall("</script>", page)) == len(re.findall("<script", page))


def test_nothing_that_a_folder_names_is_imported(folder, capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "harmful_module.py").write_text("raise SystemExit('harm')")
    (folder / "harmful_module.py").write_text("raise SystemExit('harm')")
    (folder / "config.gin").write_text("import harmful_module\nharmful_module.run.a = 1\n")
    read(folder, capfd)
    assert "harmful_module" not in sys.modules
