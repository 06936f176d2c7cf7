"""The contenders of `workers`: two workers that train together, on loopback.

Each contender is the chief, and starts the other worker, which runs the same code.
"""

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras

from scripts.bench import loops, rounds
from scripts.bench import task as tasks

_STRATEGY = "multi_worker_mirrored"


def runner(folder: Path, pause: rounds.Pause, **case: Any) -> None:
    """Trains with the runner as users start it, on two workers."""
    with _another("runner", folder, case):
        _run(folder, pause, strategy=_STRATEGY, **case)


def bare(folder: Path, pause: rounds.Pause, **case: Any) -> None:
    """Trains with a `tf.function` of the same steps under MultiWorkerMirroredStrategy."""
    with _another("bare", folder, case):
        _loop(pause, **case)


def follow(_: Path, __: rounds.Pause, *, kind: str, chief: str, **case: Any) -> None:
    """Trains as the second worker of `runner` or `bare`."""

    def pause(_: Any) -> None:
        """Does not wait, because the chief's pauses are sufficient."""

    if kind == "bare":
        _loop(pause, **case)
    else:
        _run(Path(chief), pause, strategy=_STRATEGY, **case)


def one_worker(folder: Path, pause: rounds.Pause, **case: Any) -> None:
    """Trains with the runner, on one worker under the strategy."""
    _run(folder, pause, strategy=_STRATEGY, **case)


def no_strategy(folder: Path, pause: rounds.Pause, **case: Any) -> None:
    """Trains with the runner without a strategy."""
    _run(folder, pause, strategy="off", **case)


def _run(
    folder: Path, pause: rounds.Pause, *, strategy: str, model: str, loop: int, seconds: float
) -> None:
    import runner

    config = loops.experiment(model, loop)
    config.override({"runtime": {"distribution_strategy": strategy}})
    clock = loops.Clock(pause, loop=loop, seconds=seconds)
    runner.run(config, folder, "train", train_actions=[clock])


def _loop(pause: rounds.Pause, *, model: str, loop: int, seconds: float) -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        train = _bare_training(strategy, model, loop)
    clock = loops.Clock(pause, loop=loop, seconds=seconds)
    while True:
        train()
        clock()


def _bare_training(
    strategy: tf.distribute.Strategy, model: str, loop: int
) -> Callable[[], dict[str, tf.Tensor]]:
    task = tasks.StepTask(tasks.task_config(model))
    network, optimizer, metrics = task.build_model(), tasks.optimizer(), task.build_metrics()
    loss = tf_keras.metrics.Mean("loss")
    endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    data = strategy.distribute_datasets_from_function(
        lambda context: task.build_inputs(task.task_config.train_data, context).apply(endless)
    )

    def step(batch: Any) -> None:
        logs = task.train_step(batch, network, optimizer, metrics)
        loss.update_state(logs["loss"])

    @tf.function
    def train(iterator: Any, steps: tf.Tensor) -> dict[str, tf.Tensor]:
        for _ in tf.range(steps):
            strategy.run(step, args=(next(iterator),))
        results = {metric.name: metric.result() for metric in [*metrics, loss]}
        with tf.control_dependencies(list(results.values())):
            for metric in [*metrics, loss]:
                metric.reset_state()
        return results

    iterator, steps = iter(data), tf.constant(loop)
    return lambda: train(iterator, steps)


@contextmanager
def _another(name: str, folder: Path, case: dict[str, Any]) -> Iterator[None]:
    """Runs a second worker with the same code during the block."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("", 0))) for _ in range(2)]
        hosts = [f"localhost:{listening.getsockname()[1]}" for listening in sockets]
    configs = [
        json.dumps({"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}})
        for index in range(2)
    ]
    os.environ["TF_CONFIG"] = configs[0]
    with rounds.Contender("workers", "follow", TF_CONFIG=configs[1]) as other:
        other.begin(kind=name, chief=str(folder), **case)
        try:
            yield
        finally:
            other.kill()
