"""Studies on a Ray cluster of two nodes, of which one is killed; most trials only play."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import played_trial
import pytest
from wording import says

from runner import main
from runner.core import layout, signals
from runner.launch import ray_connection
from runner.studies import trial

STORE = 80_000_000
STUDY = ["--mode=study", "--launch=ray", "--gin_file=digits.gin", "--model_dir=study"]


@pytest.fixture(scope="module")
def cluster():
    """Two nodes for two trials each."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray import cluster_utils

    options = {"num_cpus": 2, "object_store_memory": STORE}
    made = cluster_utils.Cluster(initialize_head=True, head_node_args=options)
    made.options = options
    made.second = made.add_node(**options)
    yield made
    made.shutdown()


@pytest.fixture(autouse=True)
def own_sigterm():
    """A node that a test has added takes SIGTERM, and would end this process."""
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def address(cluster):
    return f"--gin.LaunchConfig.address='{cluster.address}'"


@pytest.fixture
def played(monkeypatch):
    """Trials only play, each until a file is there."""
    from runner.launch import ray

    def plays(until=""):
        monkeypatch.setattr(ray.Cluster, "program", [played_trial.__file__])
        return f"--gin.LaunchConfig.environment=('PLAYED_UNTIL={until}',)"

    return plays


def rows():
    path = Path("study") / played_trial.PLAYED
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def soon(condition, then):
    """Does something as soon as a condition holds, beside the test."""

    def wait():
        end = time.monotonic() + 600
        while not condition():
            if time.monotonic() > end:
                return
            time.sleep(0.05)
        then()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_a_killed_node_loses_no_trial_and_none_is_done_twice(cluster, address, played, capsys):
    def kill():
        cluster.remove_node(cluster.second, allow_graceful=False)
        while sum(Path(f"/proc/{row['pid']}/comm").exists() for row in rows()) > 2:
            time.sleep(0.05)
        Path("study", "killed").touch()

    killed = soon(lambda: len(rows()) >= 4, kill)
    assert main.main([*STUDY, "--seeds=6", address, played("killed")]) == 0
    killed.join()
    cluster.second = cluster.add_node(**cluster.options)
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["trials"] == {"done": 6}
    ends = [row["trial"] for row in rows() if row["what"] == "end"]
    assert sorted(ends) == [each.name for each in layout.trials(Path("study"))]
    starts = [row for row in rows() if row["what"] == "start"]
    assert len(starts) > 6, "some were started again"
    assert all(row["step"] % 10 == 0 for row in starts), "from what they had saved"


def test_a_sigterm_has_all_trials_save_and_the_same_command_goes_on(address, played):
    soon(lambda: len(rows()) >= 2, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(signals.Interrupted) as ended:
        main.main([*STUDY, "--seeds=2", address, played("never")])
    assert ended.value.exit_code == 143
    assert {each.state for each in trial.all_of(Path("study"))} == {"preempted"}
    assert main.main([*STUDY, "--seeds=2", address, played()]) == 0
    starts = [row["step"] for row in rows() if row["what"] == "start"]
    assert all(starts[2:]), "they go on"
    assert {each.state for each in trial.all_of(Path("study"))} == {"done"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("gpus=3", "LaunchConfig.gpus 3 node Ray cluster 0"),
        ("cpus=64", "LaunchConfig.cpus 64 node Ray cluster 2"),
        ("memory_gb=1e6", "LaunchConfig.memory_gb 1000000.0 node Ray cluster"),
    ],
)
def test_what_no_node_has_is_refused(address, given, said, capsys):
    assert main.main([*STUDY, "--seeds=2", address, f"--gin.LaunchConfig.{given}"]) == 2
    says(capsys.readouterr().err, said)


def test_another_mode_is_one_task_whose_answer_and_code_are_the_commands(
    address, monkeypatch, capsys
):
    from runner.launch import ray

    code = (
        "import json, os, sys; print('on the way', file=sys.stderr); print(json.dumps({'step': 3, "
        "'seen': [each for each in ('GIVEN', 'OWN', 'API_TOKEN') if each in os.environ]})); "
        "sys.exit(3 * ('--mode=train' in sys.argv))"
    )
    monkeypatch.setattr(ray.Cluster, "program", ["-c", code])
    for name in ("API_TOKEN", "OWN"):
        monkeypatch.setenv(name, "here alone")
    given = ["--gin_file=digits.gin", "--model_dir=run", address]
    given.append("--gin.LaunchConfig.environment=('GIVEN=1',)")
    assert main.main(["--mode=train_and_eval", "--launch=ray", *given]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {"step": 3, "seen": ["GIVEN"]}, "nothing else was sent"
    assert "on the way" in said.err
    assert main.main(["--mode=train", "--launch=ray", *given]) == 3
    said = capsys.readouterr()
    assert json.loads(said.out)["step"] == 3
    (log, _) = sorted(Path("run", "launch").glob("*.log"))
    assert log.read_text() == "on the way\n"
    killed = "import os; print('half', flush=True); os.kill(os.getpid(), 9)"
    monkeypatch.setattr(ray.Cluster, "program", ["-c", killed])
    assert main.main(["--mode=train", "--launch=ray", *given]) == 137
    said = capsys.readouterr()
    assert said.out.startswith("half\n")
    says(said.err, "killed SIGKILL see")


def test_trials_train_on_the_cluster(address, capsys):
    steps = {"train_steps": 20, "steps_per_loop": 10, "validation_interval": 20}
    flags = [f"--gin.TrainerConfig.{name}={value}" for name, value in steps.items()]
    flags.append("--gin.RunConfig.tensorboard=False")
    assert main.main([*STUDY, "--seeds=2", address, *flags]) == 0
    said = capsys.readouterr()
    assert "2 nodes, 4 CPUs" in said.err
    assert json.loads(said.out)["trials"] == {"done": 2}
    assert all(each.best["accuracy"] > 0.1 for each in trial.all_of(Path("study")))


def test_a_dry_run_says_what_would_run_and_needs_no_cluster(capsys):
    config = ["--gin.LaunchConfig.gpus=2", "--gin.LaunchConfig.address='10.0.0.1:6379'"]
    assert main.main([*STUDY, "--seeds=2", *config, "--dry_run"]) == 0
    first, second, command = capsys.readouterr().out.splitlines()
    says(first, "# Ray 10.0.0.1:6379 trial 1 CPU 2 GPUs")
    assert second == f"cd {Path.cwd()}"
    assert "--mode=study" in command
    assert not Path("study").exists()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "LaunchConfig.address 127.0.0.1:1 Ray cluster answers"),
        ("nowhere", "LaunchConfig.address nowhere Ray answers"),
        ("ray://10.0.0.1:10001", "address itself 10.0.0.1:6379"),
    ],
)
def test_no_cluster_at_the_address(address, said, capsys):
    given = [*STUDY, "--seeds=2", f"--gin.LaunchConfig.address='{address}'"]
    assert main.main(given) == 2
    says(capsys.readouterr().err, said)
    assert not Path("study").exists()


def test_something_else_at_the_address_is_no_cluster(monkeypatch, capsys):
    monkeypatch.setattr(ray_connection, "_PATIENCE_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        given = f"--gin.LaunchConfig.address='{address}'"
        assert main.main([*STUDY, "--seeds=2", given]) == 2
    said = capsys.readouterr().err
    assert f"LaunchConfig.address = '{address}'" in said
    assert "no Ray cluster" in said


def test_a_cluster_of_other_versions_is_named(monkeypatch, capsys):
    import ray

    def init(**_):
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 1.0\n")

    monkeypatch.setattr(ray, "init", init)
    assert main.main([*STUDY, "--seeds=2"]) == 2
    said = "runner: --launch=ray: Version mismatch: The cluster was started with: Ray: 1.0\n"
    assert said in capsys.readouterr().err


def test_without_ray_the_answer_is_the_line_that_installs_it(monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "ray" else find(name)
    )
    assert main.main([*STUDY, "--seeds=2"]) == 2
    said = capsys.readouterr().err
    assert "pip install" in said
    assert "[ray]" in said


HEADLESS = f"""
import sys
from runner import main
from runner.launch import ray
ray.Cluster.program = [{played_trial.__file__!r}]
sys.argv[0] = "runner"
main.console()
"""


def test_a_lost_head_ends_the_command_with_a_line_and_its_answer(cluster):
    """The last test: it takes the cluster's head away."""
    address = cluster.address
    flags = [
        f"--gin.LaunchConfig.address='{address}'",
        "--gin.LaunchConfig.environment=('PLAYED_UNTIL=never',)",
    ]
    environment = {**os.environ, "RAY_gcs_rpc_server_reconnect_timeout_s": "5"}
    command = [sys.executable, "-c", HEADLESS, *STUDY, "--seeds=2", *flags]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as study:
        killed = soon(lambda: len(rows()) >= 2, cluster.head_node.kill_gcs_server)
        out, said = study.communicate()
    killed.join()
    assert study.returncode == 1
    assert json.loads(out)["status"] == "failed"
    says(said, f"Ray {address} answered")
    assert "Traceback" not in said
