"""Trains a small network on CIFAR-10 with the runner and with Keras `fit`."""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.bench import rounds
from scripts.bench.comparison import Comparison, Ratio

_NAMES = ("runner", "keras")


def cifar(options: argparse.Namespace) -> Iterator[Comparison]:
    """Compares training on CIFAR-10's files with Keras `fit`, with another seed in each round.

    Both train the network of cifar10_small.gin with its schedule and augmentation, in separate
    processes that take turns. Keras reads the images through `tf.data` as its guides recommend.
    Images per second cover only training, without the first epoch. The accuracy is measured on all
    test images after the last epoch. If the images differ from CIFAR-10's, the scores are not
    comparable with published ones.
    """
    case = {"train": options.train, "test": options.test, "epochs": options.epochs}
    results: rounds.Rounds = {name: [] for name in _NAMES}
    for seed in range(options.repeats):
        for name, trained in results.items():
            start = time.perf_counter()
            result = rounds.once("cifar", f"with_{name}", **case, seed=seed)
            trained.append({**result, "s in total": time.perf_counter() - start})
    ratio = Ratio("runner", ("keras",))
    for unit in results["runner"][0]:
        figures = {name: [result[unit] for result in trained] for name, trained in results.items()}
        yield Comparison(f"CIFAR-10, {options.epochs} epochs", unit, figures, [ratio])


def _experiment(case: dict[str, Any]) -> Any:
    """Loads the experiment that both train."""
    import runner

    return runner.load(
        "cifar10_small.gin",
        [
            f"TRAIN = {case['train']!r}",
            f"TEST = {case['test']!r}",
            "train/ImageData.subset = ''",
            "validation/ImageData.subset = ''",
            f"EPOCHS = {case['epochs']}",
            f"RunConfig.seed = {case['seed']}",
        ],
    )


def with_runner(folder: Path, pause: rounds.Pause, **case: Any) -> None:
    """Trains with the runner, as a user would."""
    import runner

    config = _experiment(case)
    results = runner.run(config, folder / "run", "train_and_eval")
    rows = [json.loads(line) for line in (folder / "run" / "train.jsonl").open()]
    speed = statistics.mean(row["steps_per_second"] for row in rows[1:])
    batch = config.task.train_data.global_batch_size
    pause({"accuracy": results["metrics"]["accuracy"], "images/s": speed * batch})


def with_keras(_: Path, pause: rounds.Pause, **case: Any) -> None:
    """Trains the same model with the same optimizer by `fit`."""
    import numpy as np
    import tensorflow as tf
    import tf_keras
    from official.core import base_task

    from runner import config as experiments
    from tasks import image_classification

    config = _experiment(case)
    experiments.resolve(config)
    tf_keras.utils.set_random_seed(config.run.seed)
    data, scored = config.task.train_data, config.task.validation_data
    arrays, test_arrays = np.load(data.input_path), np.load(scored.input_path)
    size, batch, pad = len(arrays["labels"]), data.global_batch_size, data.augment.pad

    def scale(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.cast(image, tf.float32) / 255, label

    def augment(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        padded = tf.pad(image, [[pad, pad], [pad, pad], [0, 0]])
        return tf.image.random_flip_left_right(tf.image.random_crop(padded, image.shape)), label

    train = tf.data.Dataset.from_tensor_slices((arrays["images"], arrays["labels"]))
    train = train.shuffle(size).repeat().map(scale, tf.data.AUTOTUNE)
    train = train.map(augment, tf.data.AUTOTUNE).batch(batch, drop_remainder=True)
    test = tf.data.Dataset.from_tensor_slices((test_arrays["images"], test_arrays["labels"]))
    test = test.map(scale, tf.data.AUTOTUNE).batch(scored.global_batch_size)

    started, seconds = [], []
    clock = tf_keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda *_: started.append(time.perf_counter())
    )
    clock.on_test_begin = lambda *_: seconds.append(time.perf_counter() - started[-1])
    model = image_classification.ImageClassificationTask(config.task).build_model()
    model.compile(
        base_task.Task.create_optimizer(config.trainer.optimizer_config),
        tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        ["accuracy"],
    )
    history = model.fit(
        train.prefetch(tf.data.AUTOTUNE),
        steps_per_epoch=size // batch,
        epochs=config.trainer.train_steps // (size // batch),
        validation_data=test.prefetch(tf.data.AUTOTUNE),
        verbose=0,
        callbacks=[clock],
    )
    speed = size // batch * batch / statistics.mean(seconds[1:])
    pause({"accuracy": history.history["val_accuracy"][-1], "images/s": speed})
