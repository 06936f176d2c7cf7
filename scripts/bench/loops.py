"""The training loops to compare, each in its own process.

All train the same model with the same optimizer, loss and accuracy on the same batches, and check
the clock after each inner loop. All save a checkpoint every `Model.epoch` steps except "bare". This
is minimal code: one `tf.function` for the steps, and one to read and reset the metrics. "keras3"
has its own Adam.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras

from scripts.bench import rounds
from scripts.bench import task as tasks

_ENDLESS = 10**8  # steps; the benchmark ends the run earlier
_STEPS = {"mlp": 2000, "cnn": 200, "bert": 20}  # in a short round
_SUMMARY = 100  # steps between two rows of history and TensorBoard


class Clock:
    """Ends a round after the loop in which its time runs out, and reports the steps per second.

    Args:
        pause: Ends a round. The result of the first round, which warms up, is dropped.
        loop: Steps per inner loop.
        seconds: The minimum duration of a round.
    """

    def __init__(self, pause: rounds.Pause, *, loop: int, seconds: float) -> None:
        self._pause = pause
        self._loop = loop
        self._seconds = seconds
        self._begin()

    def _begin(self) -> None:
        self._steps = 0
        self._start = time.perf_counter()

    def __call__(self, _: Any = None) -> None:
        """Called after each loop."""
        self._steps += self._loop
        seconds = time.perf_counter() - self._start
        if seconds >= self._seconds:
            self._pause(self._steps / seconds)
            self._begin()


def bare(_: Path, pause: rounds.Pause, *, model: str, loop: int, seconds: float) -> None:
    """Trains with a `tf.function` of `loop` steps, which reads and resets the metrics."""
    train, clock = bare_loop(model, loop), Clock(pause, loop=loop, seconds=seconds)
    while True:
        train()
        clock()


def bare_loop(model: str, loop: int) -> Callable[[], Any]:
    """Returns a minimal training loop."""
    task = tasks.StepTask(tasks.task_config(model))
    return bare_training(task, task.build_model(), tasks.optimizer(), loop)


def bare_training(
    task: tasks.StepTask,
    network: tf_keras.Model,
    optimizer: tf_keras.optimizers.Optimizer,
    loop: int,
) -> Callable[[], Any]:
    """Returns a `tf.function` that trains `loop` steps, and reads and resets the metrics."""
    metrics = task.build_metrics()
    loss = tf_keras.metrics.Mean("loss")

    @tf.function
    def train(iterator: tf.data.Iterator, steps: tf.Tensor) -> dict[str, tf.Tensor]:
        for _ in tf.range(steps):
            logs = task.train_step(next(iterator), network, optimizer, metrics)
            loss.update_state(logs["loss"])
        results = {metric.name: metric.result() for metric in [*metrics, loss]}
        with tf.control_dependencies(list(results.values())):
            for metric in [*metrics, loss]:
                metric.reset_state()
        return results

    iterator = iter(task.build_inputs(task.task_config.train_data))
    steps = tf.constant(loop)
    return lambda: train(iterator, steps)


def runner(folder: Path, pause: rounds.Pause, *, model: str, loop: int, seconds: float) -> None:
    """Trains with the runner as users start it: history, TensorBoard, checkpoints, progress."""
    _train(folder, pause, experiment(model, loop), loop, seconds)


def rechecked(folder: Path, pause: rounds.Pause, *, model: str, loop: int, seconds: float) -> None:
    """Does the same, and repeats every hundredth step."""
    config = experiment(model, loop)
    config.override({"run": {"recheck_every": 100}})
    _train(folder, pause, config, loop, seconds)


def unsaved(folder: Path, pause: rounds.Pause, *, model: str, loop: int, seconds: float) -> None:
    """Does the same without checkpoints."""
    config = experiment(model, loop)
    never = {"checkpoint_interval": _ENDLESS, "validation_interval": _ENDLESS}
    config.override({"trainer": never})
    _train(folder, pause, config, loop, seconds)


def continuous(folder: Path, pause: rounds.Pause, *, model: str, loop: int, seconds: float) -> None:
    """Saves as often as two percent of the time allow."""
    config = experiment(model, loop)
    never = {"checkpoint_interval": _ENDLESS, "validation_interval": _ENDLESS}
    config.override({"trainer": never, "run": {"checkpoint_seconds": "continuous"}})
    _train(folder, pause, config, loop, seconds)


def _train(folder: Path, pause: rounds.Pause, config: Any, loop: int, seconds: float) -> None:
    import runner

    clock = Clock(pause, loop=loop, seconds=seconds)
    runner.run(config, folder, "train", train_actions=[clock])


def mirrored(
    folder: Path, pause: rounds.Pause, *, model: str, loop: int, seconds: float, url: str
) -> None:
    """Does the same with a copy in a bucket, and measures the CPU time of the copying threads."""
    import runner

    since = time.perf_counter(), _copying()

    def measured(rate: float) -> None:
        nonlocal since
        share = (_copying() - since[1]) / (time.perf_counter() - since[0])
        pause({"rate": rate, "share": share})
        since = time.perf_counter(), _copying()

    clock = Clock(measured, loop=loop, seconds=seconds)
    config = experiment(model, loop)
    config.override({"run": {"mirror": f"{url}/{folder.name}"}})
    runner.run(config, folder, "train", train_actions=[clock])


def _copying() -> float:
    """Returns the CPU seconds of the threads that copy."""
    names = ("mirror", "fsspecIO", "heartbeat in ")
    return sum(
        time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        for thread in threading.enumerate()
        if thread.name.startswith(names) and thread.ident
    )


def fit(folder: Path, pause: rounds.Pause, *, model: str, loop: int, seconds: float) -> None:
    """Trains with the runner's `fit`, on the same data and with the same intervals."""
    import runner

    data, network = tasks.arrays(model), tasks.MODELS[model].build(tf_keras)
    _compile(tf_keras, network, tf_keras.optimizers.Adam(1e-3))
    trainer = experiment(model, loop).trainer
    names = ("steps_per_loop", "summary_interval", "checkpoint_interval", "validation_interval")
    runner.fit(
        network,
        data,
        model_dir=folder,
        train_steps=_ENDLESS,
        batch_size=tasks.MODELS[model].batch,
        gin_params=[f"TrainerConfig.{name} = {getattr(trainer, name)}" for name in names],
        train_actions=[Clock(pause, loop=loop, seconds=seconds)],
    )


def side_by_side(folder: Path, pause: rounds.Pause, *, model: str, loop: int) -> None:
    """Measures steps per second of the runner's loop and the bare loop, both in this process.

    This excludes the runner's work outside its loops, and differences between processes. Both run
    without deterministic ops, because that setting applies to a whole process.
    """
    from runner.runs import build
    from runner.runs.call import Call

    config = tasks.experiment(
        model,
        train_steps=_ENDLESS,
        steps_per_loop=loop,
        summary_interval=_ENDLESS,
        checkpoint_interval=_ENDLESS,
        validation_interval=_ENDLESS,
    )
    config.override({"run": {"deterministic": False}})
    bare = bare_loop(model, loop)
    bare()  # traced before layers draw from generators, as in a separate process
    trainer, _ = build.build_trainer(Call(config, folder), step=0, evaluates=False)
    steps = tf.constant(loop)
    loops: dict[str, Callable[[], Any]] = {"runner": lambda: trainer.train(steps), "bare": bare}
    calls = max(1, _STEPS[model] // loop)
    loops["runner"]()
    pause(None)
    while True:
        loops = dict(reversed(loops.items()))
        pause({name: calls * loop / _seconds(train, calls) for name, train in loops.items()})


def _seconds(call: Callable[[], Any], times: int) -> float:
    return rounds.seconds(lambda: [call() for _ in range(times)])


def garden(folder: Path, pause: rounds.Pause, *, model: str, loop: int, seconds: float) -> None:
    """Trains with Model Garden's `run_experiment`."""
    from official.core import train_lib

    params, clock = experiment(model, loop), Clock(pause, loop=loop, seconds=seconds)
    train_lib.run_experiment(
        tf.distribute.get_strategy(),
        tasks.StepTask(params.task),
        "train",
        params,
        str(folder),
        train_actions=[clock],
    )


def keras(folder: Path, pause: rounds.Pause, *, model: str, loop: int, seconds: float) -> None:
    """Trains with Keras 2's `fit`."""
    _fit(tf_keras, folder, tasks.optimizer(), model, loop, Clock(pause, loop=loop, seconds=seconds))


def keras3(folder: Path, pause: rounds.Pause, *, model: str, loop: int, seconds: float) -> None:
    """Trains with Keras 3's `fit`."""
    import keras

    clock = Clock(pause, loop=loop, seconds=seconds)
    _fit(keras, folder, keras.optimizers.Adam(1e-3), model, loop, clock)


def _fit(library: Any, folder: Path, optimizer: Any, model: str, loop: int, clock: Clock) -> None:
    """Trains with TensorBoard and a checkpoint per epoch."""
    network = tasks.MODELS[model].build(library)
    _compile(library, network, optimizer, steps_per_execution=loop)
    watch = library.callbacks.LambdaCallback(on_train_batch_end=lambda *_, **__: clock())
    watch._supports_tf_logs = True  # otherwise Keras 2 reads all metrics for it
    config = tasks.task_config(model)
    network.fit(
        tasks.StepTask(config).build_inputs(config.train_data),
        steps_per_epoch=tasks.MODELS[model].epoch,
        epochs=_ENDLESS,
        verbose=2,
        callbacks=[
            library.callbacks.TensorBoard(str(folder / "board")),
            library.callbacks.ModelCheckpoint(
                str(folder / "model.weights.h5"), save_weights_only=True
            ),
            watch,
        ],
    )


def _compile(library: Any, network: Any, optimizer: Any, **options: int) -> None:
    loss = library.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"], **options)


def experiment(model: str, loop: int) -> Any:
    """Returns the configuration of all contenders, with `loop` steps per inner loop."""
    epoch = tasks.MODELS[model].epoch
    return tasks.experiment(
        model,
        train_steps=_ENDLESS,
        steps_per_loop=loop,
        summary_interval=_SUMMARY,
        checkpoint_interval=epoch,
        validation_interval=epoch,
    )
