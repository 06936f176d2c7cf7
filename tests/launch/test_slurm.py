"""Jobs of a real Slurm with two nodes: submitted, preempted, started again, given up."""

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
import slurm_cluster
from slurm_cluster import output, wait_for
from wording import says

from runner import main
from runner.run_directory import status
from runner.run_directory.run import reached
from runner.run_directory.verification import comparison

CONFIG = [
    "--gin_file=digits.gin",
    "--gin.TrainerConfig.train_steps=6000",
    "--gin.TrainerConfig.checkpoint_interval=3000",
    "--gin.TrainerConfig.summary_interval=1000",
]
WORKERS = "--gin.RuntimeConfig.distribution_strategy='multi_worker_mirrored'"
needs_slurm = pytest.mark.skipif(bool(slurm_cluster.missing()), reason=slurm_cluster.missing())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slurm")
    with slurm_cluster.running(folder, apart=not slurm_cluster.not_apart()):
        yield folder


def launched(*arguments):
    return main.main(["--launch=slurm", *arguments])


def directives(script):
    lines = script.splitlines()
    return dict(
        each.removeprefix("#SBATCH --").partition("=")[::2] for each in lines if "--" in each
    )


def test_a_dry_run_prints_the_script(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789abcdef")
    config = ["cpus=4", "gpus=2", "memory_gb=1.5", "time='1-02:00:00'", "queue='gpu'", "tries=5"]
    config += ["options=('--account=mine',)", "environment=('A=b c',)", "name='first'"]
    config = [f"--gin.LaunchConfig.{each}" for each in config]
    assert launched("--dry_run", "--mode=train", *CONFIG, "--model_dir=runs/a b", *config) == 0
    script = capsys.readouterr().out
    found = directives(script)
    log = f'"{tmp_path}/runs/a b/launch/slurm-%j.log"'
    assert found | {"cpus-per-task": "4", "gpus-per-node": "2", "mem": "1536M"} == found
    assert found | {"time": "1-02:00:00", "partition": "gpu", "account": "mine"} == found
    assert found | {"nodes": "1", "output": log, "open-mode": "append", "requeue": ""} == found
    assert found | {"signal": "B:TERM@120", "job-name": "first", "chdir": str(tmp_path)} == found
    assert "export A='b c'" in script
    assert "hf_0123456789abcdef" not in script
    *_, last = script.splitlines()
    words = shlex.split(last)
    assert words[:4] == ["exec", sys.executable, "-m", "runner.launch.start"]
    assert "--tries=5" in words
    assert f"--model_dir={tmp_path}/runs/a b" in words[words.index("--") :]
    assert not list(tmp_path.iterdir())


def test_a_run_on_several_nodes_is_one_job_and_a_study_is_an_array(capsys):
    nodes = "--gin.LaunchConfig.nodes=3"
    assert launched("--dry_run", "--mode=train", *CONFIG, "--model_dir=a", nodes, WORKERS) == 0
    script = capsys.readouterr().out
    assert directives(script)["nodes"] == "3"
    assert " --by_status -- srun --nodes=3 --ntasks-per-node=1 " in script
    assert launched("--dry_run", "--mode=study", *CONFIG, "--seeds=9", "--model_dir=a", nodes) == 0
    script = capsys.readouterr().out
    found = directives(script)
    assert (found["nodes"], found["array"]) == ("1", "0-2")
    assert found["output"].endswith("/a/launch/slurm-%A_%a.log")
    assert "srun" not in script


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("time='0:02:30'", "leaves time"),
        ("options=('account=mine',)", "option sbatch"),
        ("nodes=2", "LaunchConfig.nodes 2 --mode=train distribution_strategy off"),
    ],
)
def test_what_slurm_would_not_take_is_refused_without_it(capsys, setting, said):
    arguments = ["--mode=train", *CONFIG, "--model_dir=a", f"--gin.LaunchConfig.{setting}"]
    assert launched("--dry_run", *arguments) == 2
    says(capsys.readouterr().err, said)


@pytest.mark.parametrize(
    "value", ["a\ntouch harm", "a\r", "a\x1b[2J", '\\"\ntouch harm #', '\\" --wrap=harm']
)
def test_a_name_cannot_end_a_comment_of_the_script(capsys, value):
    assert launched("--dry_run", "--mode=train", *CONFIG, f"--model_dir={value}") == 2
    assert not capsys.readouterr().out


def test_an_option_of_sbatch_is_one_line(capsys):
    for value in ("--account=a\ntouch harm", "--account=a\r", "--account=a\x1b[2J"):
        option = f"--gin.LaunchConfig.options=({value!r},)"
        assert launched("--dry_run", "--mode=train", *CONFIG, "--model_dir=a", option) == 2
    assert not capsys.readouterr().out


def test_a_value_of_an_option_is_quoted_if_needed(capsys):
    options = ("--comment=two #words", "--gres=gpu:1", "--nodelist='a[1-3]'", "--exclusive")
    option = f"--gin.LaunchConfig.options={options!r}"
    assert launched("--dry_run", "--mode=train", *CONFIG, "--model_dir=a", option) == 0
    script = capsys.readouterr().out
    found = directives(script)
    assert (found["comment"], found["gres"]) == ('"two #words"', "gpu:1")
    assert found["nodelist"] == "'a[1-3]'"
    assert "#SBATCH --exclusive\n" in script


def test_quotes_and_signs_of_patterns_are_escaped(capsys, tmp_path):
    """Slurm takes a backslash before a quote for the quote, and %% for %; checked with sbatch."""
    assert launched("--dry_run", "--mode=train", *CONFIG, '--model_dir=a "%j" $(b) #c') == 0
    script = capsys.readouterr().out
    logs = f'{tmp_path}/a \\"%%j\\" $(b) #c/launch/slurm-%j.log'
    assert directives(script)["output"] == f'"{logs}"'
    assert f'--model_dir={tmp_path}/a "%j" $(b) #c' in shlex.split(script.splitlines()[-1])


def test_without_slurm_a_line_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert launched("--mode=train", *CONFIG, "--model_dir=a") == 1
    says(capsys.readouterr().err, "no sbatch")
    assert not list(tmp_path.iterdir())


@needs_slurm
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("queue='man'", "main"),
        ("nodes=3", "3 partition main 2"),
        ("cpus=5", "1 5 partition 2 CPUs"),
        ("gpus=1", "0 large enough"),
    ],
)
def test_more_than_the_cluster_has_is_refused(cluster, tmp_path, capsys, setting, said):
    arguments = ["--mode=train", *CONFIG, "--model_dir=a", f"--gin.LaunchConfig.{setting}"]
    assert launched(*arguments, WORKERS) == 2
    says(capsys.readouterr().err, said)
    assert not list(tmp_path.iterdir())


def state(job):
    facts = output("scontrol", "show", "job", "--oneliner", job)
    return dict(part.partition("=")[::2] for part in facts.split())["JobState"]


@needs_slurm
def test_a_preempted_job_starts_again_and_ends_with_the_same_bits(cluster, tmp_path, capsys):
    assert launched("--mode=train", *CONFIG, "--model_dir=run") == 0
    told = json.loads(capsys.readouterr().out)
    wait_for(lambda: reached(tmp_path / "run") > 0, cluster)
    subprocess.run(["scancel", "--signal=TERM", "--batch", told["job"]], check=True)
    assert main.main(["--mode=train", *CONFIG, "--model_dir=alone"]) == 0
    log = Path(told["log"])
    wait_for(lambda: state(told["job"]) == "COMPLETED", cluster)
    assert log.read_text().count("new run in") == 1
    assert log.read_text().count("resumed at step") == 1
    assert status.read(tmp_path / "run").state == "done"
    parts = comparison.compare(tmp_path / "run", tmp_path / "alone")
    assert not [each for each in parts if each.differing]


@needs_slurm
def test_the_log_is_where_it_is_said_to_be(cluster, tmp_path, capsys, monkeypatch):
    there = tmp_path / 'work "#1"'
    there.mkdir()
    monkeypatch.chdir(there)
    assert launched("--mode=status", "--model_dir=%j 'a' $(b)") == 0
    told = json.loads(capsys.readouterr().out)
    wait_for(lambda: state(told["job"]) in ("COMPLETED", "FAILED"), cluster)
    assert "has no run" in Path(told["log"]).read_text()
    assert Path(told["log"]).parent == there / "%j 'a' $(b)" / "launch"
    assert sorted(path.name for path in there.iterdir()) == ["%j 'a' $(b)"]


@pytest.fixture
def submitted(cluster, tmp_path):
    """Submits `code` as a command of a job, with options of sbatch, and words before it."""

    def submit(code, *options, before=()):
        command = [sys.executable, "-m", "runner.launch.start", "--launcher=slurm"]
        command += [f"--logs={tmp_path}", f"--folder={tmp_path}", "--tries=2", "--", *before]
        command = shlex.join([*command, sys.executable, "-c", code])
        script = f"#!/bin/bash\nexec {command}\n"
        first = ["sbatch", "--parsable", "--requeue", "--open-mode=append", *options]
        log = tmp_path / "log"
        return output(*first, f"--output={log}", write(tmp_path / "script", script)), log

    return submit


def write(path, text):
    path.write_text(text)
    return str(path)


@needs_slurm
def test_a_job_that_never_makes_a_step_is_given_up(cluster, submitted):
    job, log = submitted("raise SystemExit(143)")
    wait_for(lambda: state(job) == "FAILED", cluster)
    says(log.read_text(), f"{job} preempted queued")
    says(log.read_text(), "2 preempted step")


@needs_slurm
def test_a_cancelled_job_does_not_start_again(cluster, submitted, tmp_path):
    job, log = submitted("import time; open('begun', 'w'); time.sleep(600)")
    wait_for((tmp_path / "begun").exists, cluster)
    subprocess.run(["scancel", job], check=True)
    wait_for(lambda: state(job) == "CANCELLED", cluster)
    time.sleep(1)
    assert state(job) == "CANCELLED"
    assert "again" not in log.read_text()


@needs_slurm
def test_only_the_preempted_task_of_an_array_starts_again(cluster, submitted, tmp_path):
    code = (
        "import os; task = os.environ['SLURM_ARRAY_TASK_ID'];"
        "open(task, 'a').write('x');"
        "raise SystemExit(143 if task == '1' and os.path.getsize(task) < 2 else 0)"
    )
    job, _ = submitted(code, "--array=0-1")
    sizes = [tmp_path / "0", tmp_path / "1"]
    wait_for(lambda: [len(each.read_text()) for each in sizes if each.exists()] == [1, 2], cluster)
    wait_for(lambda: state(f"{job}_1") == "COMPLETED", cluster)


@needs_slurm
def test_exclusive_jobs_of_an_array_have_a_node_each(cluster, submitted, tmp_path):
    code = (
        "import os, time; node = os.environ['SLURMD_NODENAME']; open(node, 'w').close()\n"
        "while not (os.path.exists('n1') and os.path.exists('n2')): time.sleep(0.1)"
    )
    job, _ = submitted(code, "--array=0-1", "--exclusive")
    wait_for(lambda: {state(f"{job}_{task}") for task in (0, 1)} == {"COMPLETED"}, cluster)


WORKER = """
import os, signal, socket, sys, time
from runner.devices import cluster

def save(number, frame):
    open(f'saved-{found.index}', 'w')
    time.sleep(0.5)
    sys.exit(143)

found = cluster.find(os.environ)
place = tuple(found.hosts[1].split(':'))
if found.index:
    with socket.create_server(('', int(place[1]))) as server:
        server.accept()
while not found.index:
    try:
        socket.create_connection(place).close()
        break
    except OSError:
        time.sleep(0.1)
if not os.path.exists(f'saved-{found.index}'):
    signal.signal(signal.SIGTERM, save)
    open(f'met-{found.index}', 'w')
    time.sleep(600)
"""


@needs_slurm
@pytest.mark.skipif(bool(slurm_cluster.not_apart()), reason=slurm_cluster.not_apart())
def test_workers_on_two_nodes_meet_and_all_may_save_before_they_start_again(
    cluster, submitted, tmp_path
):
    nodes = ["--nodes=2", "--ntasks-per-node=1"]
    job, log = submitted(WORKER, *nodes, before=["srun", *nodes, "--kill-on-bad-exit=0"])
    met, saved = ([tmp_path / f"{what}-{n}" for n in (0, 1)] for what in ("met", "saved"))
    wait_for(lambda: all(each.exists() for each in met), cluster)
    subprocess.run(["scancel", "--signal=TERM", "--batch", job], check=True)
    wait_for(lambda: state(job) in ("COMPLETED", "FAILED"), cluster)
    assert all(each.exists() for each in saved), log.read_text()
    assert state(job) == "COMPLETED"
