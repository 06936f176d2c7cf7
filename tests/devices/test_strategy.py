"""How a process is set up for a run."""

import socket
import subprocess
import sys
import threading
import types

import pytest
import tensorflow as tf
import tf_keras
from official.core import config_definitions as cfg
from trainers import trainer
from wording import saying, says

from runner.devices import strategy
from runner.errors import ConfigError, RunnerError


def test_a_process_computes_with_the_threads_that_are_configured():
    """In one of its own: numbers of threads are final once TensorFlow has started."""
    code = (
        "import tensorflow as tf; from runner.devices import strategy\n"
        "strategy.set_threads(intra_op=3, inter_op=5); tf.constant(1)\n"
        "strategy.set_threads(intra_op=3, inter_op=0)\n"  # a second run
        "found = tf.config.threading\n"
        "print(found.get_intra_op_parallelism_threads(), found.get_inter_op_parallelism_threads())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == ["3", "5"]


@pytest.mark.parametrize("field", ["intra_op_threads", "inter_op_threads"])
def test_threads_that_come_too_late_are_refused(tmp_path, field):
    tf.constant(1)
    with pytest.raises(ConfigError, match=saying(f"RunConfig.{field} 63 set TensorFlow")):
        trainer(tmp_path, {"run": {field: 63}})


@pytest.mark.parametrize("workers", ["a:1,b:2", "a:1,b:2,c:3"])
def test_what_one_process_does_refuses_several_workers(monkeypatch, workers):
    monkeypatch.setenv("TF_CONFIG", "{}")
    runtime = cfg.RuntimeConfig(
        distribution_strategy="multi_worker_mirrored", worker_hosts=workers, task_index=0
    )
    with pytest.raises(ConfigError, match=rf"names {workers.count(':')} workers"):
        strategy.build(runtime)


def test_a_strategy_for_one_process_refuses_several_workers():
    runtime = cfg.RuntimeConfig(distribution_strategy="mirrored", worker_hosts="a:1,b:2")
    runtime.task_index = 1
    with pytest.raises(ConfigError, match=saying("2 workers mirrored")):
        strategy.workers(runtime)


def test_a_slurm_step_is_one_run_only_for_the_strategy_of_several_workers(monkeypatch):
    step = {"NUM_TASKS": "2", "NODELIST": "n[1-2]", "TASKS_PER_NODE": "1(x2)"}
    for name, value in step.items():
        monkeypatch.setenv(f"SLURM_STEP_{name}", value)
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert strategy.workers(cfg.RuntimeConfig(distribution_strategy="off")) is None
    found = strategy.workers(cfg.RuntimeConfig(distribution_strategy="multi_worker_mirrored"))
    assert (found.size, found.index) == (2, 1)


def test_parameter_servers_are_refused():
    with pytest.raises(ConfigError, match=saying("parameter_server supported")):
        strategy.build(cfg.RuntimeConfig(distribution_strategy="parameter_server"))


@pytest.mark.parametrize("address", ["grpc://127.0.0.1:{port}", "a.name.that.is.not.there.invalid"])
def test_a_tpu_that_does_not_answer_is_named_soon(address):
    with socket.socket() as taken:  # and nobody listens
        taken.bind(("127.0.0.1", 0))
        runtime = cfg.RuntimeConfig(
            distribution_strategy="tpu", tpu=address.format(port=taken.getsockname()[1])
        )
        with pytest.raises(RunnerError, match=f"RuntimeConfig.tpu = '{runtime.tpu}' does not an"):
            strategy.build(runtime)
    with pytest.raises(ConfigError, match=saying("tpu needs address")):
        strategy.build(cfg.RuntimeConfig(distribution_strategy="tpu"))


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_something_else_at_the_address_of_a_tpu_is_no_tpu(answer, monkeypatch):
    monkeypatch.setattr(strategy, "_TPU_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as door:

        def reply():
            line, _ = door.accept()
            line.sendall(answer)
            taken.append(line)  # stays open

        taken = []
        threading.Thread(target=reply, daemon=True).start()
        address = f"grpc://127.0.0.1:{door.getsockname()[1]}"
        with pytest.raises(RunnerError, match=f"RuntimeConfig.tpu = '{address}': .* is no TPU"):
            strategy.build(cfg.RuntimeConfig(distribution_strategy="tpu", tpu=address))


def test_a_tpu_of_several_hosts_is_refused(monkeypatch):
    """There is none here: the strategy is a stand-in."""
    made = types.SimpleNamespace(extended=types.SimpleNamespace(num_hosts=4))
    monkeypatch.setattr(
        "official.common.distribute_utils.get_distribution_strategy", lambda *_, **__: made
    )
    runtime = cfg.RuntimeConfig(distribution_strategy="tpu", tpu="local")
    with pytest.raises(ConfigError, match=saying("local slice 4")):
        strategy.build(runtime)


@pytest.mark.parametrize(("gpus", "kind"), [(0, "One"), (1, "One"), (2, "Mirr")])
def test_one_worker_has_the_strategy_of_a_process_on_its_own(monkeypatch, gpus, kind):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["GPU"] * gpus)
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}')
    runtime = cfg.RuntimeConfig(distribution_strategy="multi_worker_mirrored")
    given = []

    class Given:
        def __init__(self, devices, cross_device_ops=None):
            given.append((devices, type(cross_device_ops).__name__))

    class One(Given):
        pass

    class Mirrored(Given):
        pass

    monkeypatch.setattr(tf.distribute, "OneDeviceStrategy", One)
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", Mirrored)
    for algorithm in (None, "ring", "nccl"):
        runtime.all_reduce_alg = algorithm
        assert strategy.name(strategy.build(runtime)).startswith(kind)
    two = ["device:GPU:0", "device:GPU:1"]
    expected = {
        0: [("device:CPU:0", "NoneType")] * 3,
        1: [("device:GPU:0", "NoneType")] * 3,
        2: [(two, "NoneType"), (two, "NoneType"), (two, "NcclAllReduce")],
    }
    assert given == expected[gpus]
    runtime.all_reduce_alg = "hierarchical_copy"
    with pytest.raises(ConfigError, match=saying("ring nccl")):
        strategy.build(runtime)


def test_all_gpus_of_a_machine_without_any_are_its_cpu():
    made = strategy.build(cfg.RuntimeConfig(num_gpus=-1))
    assert [each[-5:] for each in made.extended.worker_devices] == ["CPU:0"]
    with pytest.raises(ConfigError, match=r"num_gpus = 3: TensorFlow finds 0"):
        strategy.build(cfg.RuntimeConfig(num_gpus=3))


@pytest.mark.parametrize(
    ("cpus", "gpus", "said"),
    [
        (1, 0, "one CPU"),
        (2, 0, "2 CPUs"),
        (1, 2, "one CPU 2 GPUs idle"),
    ],
)
def test_where_a_model_is_and_what_that_leaves_idle_is_said(monkeypatch, cpus, gpus, said):
    runtime = cfg.RuntimeConfig(distribution_strategy="mirrored")
    made = strategy.build(runtime, logical_cpus=cpus)
    with made.scope():
        model = tf_keras.Sequential([tf_keras.Input((1,)), tf_keras.layers.Dense(1)])
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind] * gpus)
    shown = strategy.describe(made, model)
    says(shown, said)
    assert ("idle" in shown) == bool(gpus)
    takes_all = "distribution_strategy = 'mirrored'" in shown and "num_gpus = -1" in shown
    assert takes_all == bool(gpus)


@pytest.mark.parametrize("name", ["off", "one_device"])
def test_several_gpus_need_a_strategy_for_several(monkeypatch, name):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind] * 2)
    runtime = cfg.RuntimeConfig(distribution_strategy=name, num_gpus=-1)
    with pytest.raises(ConfigError, match=saying(f"2 GPUs {name} 'mirrored'")):
        strategy.build(runtime)


@pytest.mark.parametrize(
    ("name", "gpus", "found", "is_said"),
    [
        ("off", -1, 0, True),
        ("mirrored", -1, 0, True),
        ("mirrored", 0, 0, False),
        ("mirrored", -1, 1, False),
        ("tpu", -1, 0, False),
    ],
)
def test_a_gpu_that_was_asked_for_and_is_not_there_is_missed(
    monkeypatch, name, gpus, found, is_said
):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind] * found)
    line = strategy.lacking(cfg.RuntimeConfig(distribution_strategy=name, num_gpus=gpus))
    assert bool(line) == is_said
    assert not is_said or ("num_gpus = -1" in line and "CPU" in line)
