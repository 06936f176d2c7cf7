"""Compares the runner with Keras `fit`: same small network, schedule, augmentation on CIFAR-10.

    python scripts/benchmark_cifar.py --train=train.npz --test=test.npz [--seeds=3] [--epochs=10]

Both train what cifar10_small.gin describes, each in its own process, taking turns, seed by seed.
Keras reads the images through `tf.data` as its guides recommend. Images per second cover only
training, without the first epoch; the accuracy is that on all test images after the last epoch.
Scores on images other than CIFAR-10's own cannot be compared with published ones.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

Result = dict[str, float]


def main() -> None:
    """Prints a line for each training, then a summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", required=True, help=".npz of training images and labels")
    parser.add_argument("--test", required=True, help=".npz of test images and labels")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--one", choices=CONTENDERS, help="train this one, once, and print JSON")
    parser.add_argument("--seed", type=int, default=0, help="for --one")
    flags = parser.parse_args()
    if flags.one:
        print(json.dumps(CONTENDERS[flags.one](experiment(flags))))
        return
    found: dict[str, list[Result]] = {name: [] for name in CONTENDERS}
    for seed in range(flags.seeds):
        for name, results in found.items():
            results.append(trained(name, seed))
            print(f"seed {seed}  {name:7} {described(results[-1])}", flush=True)
    pairs = list(zip(found["runner"], found["keras"], strict=True))
    ratios = [ours["images_per_second"] / theirs["images_per_second"] for ours, theirs in pairs]
    gains = [ours["accuracy"] - theirs["accuracy"] for ours, theirs in pairs]
    print(f"images per second, runner / keras: {spread(ratios)}")
    print(f"accuracy, runner - keras: {spread(gains)}, mean {statistics.mean(gains):+.4f}")


def trained(name: str, seed: int) -> Result:
    """One training run in its own process."""
    start = time.perf_counter()
    command = [sys.executable, *sys.argv, f"--one={name}", f"--seed={seed}"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return {**result, "seconds": time.perf_counter() - start}


def described(result: Result) -> str:
    """A result as text."""
    return (
        f"accuracy {result['accuracy']:.4f}  {result['images_per_second']:,.0f} images/s"
        f"  {result['seconds']:.0f} s in total"
    )


def spread(values: Iterable[float]) -> str:
    """Median, smallest and largest."""
    ordered = sorted(values)
    return f"{statistics.median(ordered):.3f} (from {ordered[0]:.3f} to {ordered[-1]:.3f})"


def experiment(flags: argparse.Namespace) -> Any:
    """The experiment that both train."""
    import runner

    return runner.load(
        "cifar10_small.gin",
        [
            f"TRAIN = {flags.train!r}",
            f"TEST = {flags.test!r}",
            "train/ImageData.subset = ''",
            "validation/ImageData.subset = ''",
            f"EPOCHS = {flags.epochs}",
            f"RunConfig.seed = {flags.seed}",
        ],
    )


def with_runner(config: Any) -> Result:
    """Trains as a user would."""
    import runner

    with tempfile.TemporaryDirectory() as folder:
        results = runner.run(config, folder, "train_and_eval")
        rows = [json.loads(line) for line in (Path(folder) / "train.jsonl").open()]
    rate = statistics.mean(row["steps_per_second"] for row in rows[1:])
    batch = config.task.train_data.global_batch_size
    return {"accuracy": results["metrics"]["accuracy"], "images_per_second": rate * batch}


def with_keras(config: Any) -> Result:
    """Trains the same model with the same optimizer, by `fit`."""
    import numpy as np
    import tensorflow as tf
    import tf_keras
    from official.core import base_task

    from runner import config as experiments
    from tasks import image_classification

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
    return {
        "accuracy": history.history["val_accuracy"][-1],
        "images_per_second": size // batch * batch / statistics.mean(seconds[1:]),
    }


CONTENDERS = {"runner": with_runner, "keras": with_keras}

if __name__ == "__main__":
    main()
