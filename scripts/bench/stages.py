"""The contenders for saving, evaluating, predicting, reading inputs, and memory."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras

from runner.core import files
from scripts.bench import growth, inputs, loops, memory, rounds
from scripts.bench import task as tasks

_ENDLESS = 10**8  # steps; the benchmark ends the run earlier
_SAVES = 3  # per round, because the durations of steps near a checkpoint vary
_WARM_UP = 200  # evaluations, about as many as the runner does before it times its inputs
_EVALUATED = {"mlp": 4000, "cnn": 750, "bert": 50}  # batches: at most half a second


class Stall:
    """Ends a round midway between two checkpoints, and reports a checkpoint's median cost.

    Args:
        pause: Ends a round.
        interval: Steps between checkpoints; each loop is one step.
    """

    def __init__(self, pause: rounds.Pause, interval: int) -> None:
        self._pause = pause
        self._half = interval // 2
        self._step = 0
        self._seconds: list[float] = []
        self._costs: list[dict[str, float]] = []
        self._last = time.perf_counter()

    def __call__(self, _: Any) -> None:
        """Called after a step, before the checkpoint that may be due."""
        self._seconds.append(time.perf_counter() - self._last)
        self._step += 1
        if self._step % (2 * self._half) == self._half and self._step > self._half:
            self._costs.append(self._cost(self._seconds[-2 * self._half :]))
        if len(self._costs) == _SAVES:
            costs, self._costs = self._costs, []
            self._pause({what: statistics.median(c[what] for c in costs) for what in costs[0]})
        self._last = time.perf_counter()

    def _cost(self, seconds: list[float]) -> dict[str, float]:
        """How long a checkpoint blocks training, and what training loses until all is written.

        The step before a checkpoint ends with a check of all variables. The step after it begins
        with the copy and, like the next three, runs while the files are written.
        """
        usual = statistics.median(seconds[: self._half - 1])
        before, after, *beside = seconds[self._half - 1 :]
        lost = sum(each - usual for each in (before, after, *beside))
        return {"stall": before - usual + after - statistics.median(beside[:3]), "in all": lost}


def save_by_runner(folder: Path, pause: rounds.Pause) -> None:
    """Saves asynchronous checkpoints of 23 million parameters and Adam's slots."""
    import runner

    interval = tasks.MODELS["wide"].epoch
    config = tasks.experiment(
        "wide",
        train_steps=_ENDLESS,
        steps_per_loop=1,
        summary_interval=_ENDLESS,
        checkpoint_interval=interval,
        validation_interval=interval,
        max_to_keep=1,
    )
    runner.run(config, folder, "train", train_actions=[Stall(pause, interval)])


def save_synchronously(folder: Path, pause: rounds.Pause) -> None:
    """Saves the same with `tf.train.Checkpoint.write`, while training waits."""
    task, optimizer = tasks.StepTask(tasks.task_config("wide")), tasks.optimizer()
    network = task.build_model()
    batch = next(iter(task.build_inputs(task.task_config.train_data)))
    tf.function(lambda: task.train_step(batch, network, optimizer))()
    checkpoint = tf.train.Checkpoint(model=network, optimizer=optimizer)
    checkpoint.write(str(folder / "checkpoint"))
    pause(None)
    while True:
        start = time.perf_counter()
        checkpoint.write(str(folder / "checkpoint"))
        pause(time.perf_counter() - start)


def evaluate_by_runner(folder: Path, pause: rounds.Pause, *, model: str) -> None:
    """Measures the examples per second of the runner's evaluations, one after each step.

    The checkpoint is written before, not concurrently, because `checkpoints` measures that cost.
    """
    import runner

    examples = _EVALUATED[model] * tasks.MODELS[model].batch
    config = tasks.experiment(
        model,
        evaluated=examples,
        train_steps=_ENDLESS,
        steps_per_loop=1,
        summary_interval=_ENDLESS,
        checkpoint_interval=1,
        validation_interval=1,
    )
    config.override({"run": {"async_checkpoints": False}})

    def ends(_: Any) -> None:
        *_, row = files.read_json_lines(folder / "history.jsonl")
        pause(examples / row["seconds"])

    runner.run(config, folder, "train_and_eval", eval_actions=[ends])


def evaluate_barely(_: Path, pause: rounds.Pause, *, model: str) -> None:
    """Measures the examples per second of a `tf.function` that evaluates all batches."""
    examples = _EVALUATED[model] * tasks.MODELS[model].batch
    task = tasks.StepTask(tasks.task_config(model, evaluated=examples))
    evaluate = _bare_evaluation(task, task.build_model())
    evaluate()
    pause(None)
    while True:
        pause(examples / rounds.seconds(evaluate))


def _bare_evaluation(task: tasks.StepTask, network: tf_keras.Model) -> Callable[[], Any]:
    metrics, loss = task.build_metrics(), tf_keras.metrics.Mean("loss")
    dataset = task.build_inputs(task.task_config.validation_data)

    @tf.function
    def evaluate(dataset: tf.data.Dataset) -> dict[str, tf.Tensor]:
        for metric in [*metrics, loss]:
            metric.reset_state()
        for features, labels in dataset:
            logs = task.validation_step((features, labels), network, metrics)
            loss.update_state(logs["loss"], sample_weight=tf.shape(labels)[0])
        return {metric.name: metric.result() for metric in [*metrics, loss]}

    return lambda: evaluate(dataset)


def predict_by_runner(folder: Path, pause: rounds.Pause, *, model: str, kind: str) -> None:
    """Measures the examples per second of a prediction, from its first batch to the file."""
    import runner

    examples = _EVALUATED[model] * tasks.MODELS[model].batch
    config = tasks.experiment(
        model, evaluated=examples, train_steps=1, steps_per_loop=1, validation_interval=1
    )
    runner.run(config, folder, "train")
    while True:
        results = runner.run(
            config, folder, "predict", output=folder / f"predicted.{kind}", overwrite=True
        )
        pause(results["examples_per_second"])


def predict_barely(_: Path, pause: rounds.Pause, *, model: str, kind: str) -> None:
    """Measures the examples per second of `model(x)` for each batch, with outputs in NumPy."""
    del kind  # it writes no file
    examples = _EVALUATED[model] * tasks.MODELS[model].batch
    task = tasks.StepTask(tasks.task_config(model, evaluated=examples))
    network, dataset = task.build_model(), task.build_inputs(task.task_config.validation_data)

    def predict() -> None:
        for features, _ in dataset:
            network(features, training=False).numpy()

    pause(None)
    while True:
        pause(examples / rounds.seconds(predict))


def read_inputs(_: Path, pause: rounds.Pause, *, batches: int) -> None:
    """Measures the batches per second of index-based inputs, and of a shuffle buffer."""
    images = inputs.Images(50_000, 128)
    indexed = inputs.reader(images.indexed(), batches)
    buffered = inputs.reader(images.buffered(), batches)
    reads = {"indexed": indexed, "shuffle buffer": buffered}
    pause(None)
    while True:
        pause({name: batches / rounds.seconds(read) for name, read in reads.items()})


def begin_inputs(_: Path, pause: rounds.Pause, *, steps: list[int]) -> None:
    """Measures the seconds to the first batch of index-based inputs that start at each step."""
    images = inputs.Images(50_000, 128)

    def seconds(step: int) -> float:
        return rounds.seconds(lambda: next(iter(images.indexed(step))))

    while True:
        pause({f"at step {step:,}": seconds(step) for step in steps})


def remember(folder: Path, pause: rounds.Pause, *, evaluations: int) -> None:
    """Measures resident memory in MiB after each of many evaluations, four loops apart.

    The first measurement follows after the runner has timed its waits for inputs, which needs a new
    graph.
    """
    import runner

    config = tasks.experiment(
        "mlp",
        train_steps=_ENDLESS,
        steps_per_loop=1,
        summary_interval=4,
        checkpoint_interval=4,
        validation_interval=4,
    )
    resident: list[float] = []

    def take(_: Any) -> str | None:
        *_, row = files.read_json_lines(folder / "train.jsonl") if not resident else [{}]
        if resident or "input_wait" in row:
            resident.append(memory.resident_mib())
        return "enough" if len(resident) == evaluations else None

    runner.run(config, folder, "train_and_eval", eval_actions=[take])
    pause(resident)


def remember_barely(folder: Path, pause: rounds.Pause, *, evaluations: int) -> None:
    """Measures the same for bare loops with TensorFlow's own asynchronous checkpoint manager."""
    task, optimizer = tasks.StepTask(tasks.task_config("mlp")), tasks.optimizer()
    network = task.build_model()
    train = loops.bare_training(task, network, optimizer, loop=1)
    evaluate = _bare_evaluation(task, network)
    train()
    checkpoint = tf.train.Checkpoint(model=network, optimizer=optimizer)
    manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=5)
    resident: list[float] = []
    while len(resident) < _WARM_UP + evaluations:
        for _ in range(4):
            train()
        evaluate()
        manager.save(options=tf.train.CheckpointOptions(enable_async=True))
        resident.append(memory.resident_mib())
    checkpoint.sync()
    pause(resident[_WARM_UP:])


def keep_histories(folder: Path, pause: rounds.Pause, *, lengths: list[int]) -> None:
    """Measures the CPU seconds to load histories of these lengths, and to add an evaluation."""
    histories = [growth.LongHistory(folder / str(length), length) for length in lengths]
    pause(None)
    while True:
        pause([{"open": history.open(), "record": history.record()} for history in histories])
