"""Kills experiments of Model Garden that read TFRecords by index, and measures late resumes.

    python -m scripts.chaos garden --kills=20

Each experiment is made small and reads synthetic examples in its real format, all different. It is
killed at random moments as by `run.py`. Then its inputs are built at step 10^6 and at step 0, and
the CPU seconds to the first batch are compared.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import yaml
from official.common import registry_imports  # noqa: F401, registers the experiments
from official.core import exp_factory

from runner.configuration import task_contract
from runner.data import pipeline
from scripts.chaos import run as runs
from scripts.model_garden import data as garden_data
from scripts.model_garden import small

EXPERIMENTS = {
    "resnet_imagenet": "images",
    "bert/pretraining": "tokens",
    "retinanet_resnetfpn_coco": "boxes",
}
_EXAMPLES, _SHARDS = 40, 4
_LATE = 10**6  # steps
_REPEATS = 5


def garden(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Kills each experiment. Returns the problems."""
    made = flags.folder / "data"
    garden_data.generate(made)
    wrong = []
    for name in flags.names.split(",") if flags.names else EXPERIMENTS:
        kind = EXPERIMENTS[name]
        _vary(made / kind)
        folder = flags.folder / name.replace("/", "_")
        folder.mkdir()
        values = _overrides(name, made, f"{made / kind}-*")
        (folder / "small.yaml").write_text(yaml.safe_dump(values))
        own = (
            f"--experiment={name}",
            f"--config_file={folder / 'small.yaml'}",
            "--gin.RunConfig.inputs=indexed",
        )
        print(f"{name}:", flush=True)
        given = argparse.Namespace(**{**vars(flags), "folder": folder, "mode": "train_and_eval"})
        wrong += [f"{name}: {problem}" for problem in runs.run(given, list(own))]
        late, early = _first_batches(name, values)
        print(
            f"{name}: first batch at step {_LATE:,} {late:.2f} s, at step 0 {early:.2f} s of CPU, "
            f"ratio {late / early:.2f}",
            flush=True,
        )
    return wrong


def _overrides(name: str, made: Path, pattern: str) -> dict[str, Any]:
    """The overrides that make an experiment small, with 120 steps in short intervals."""
    values = small.small(exp_factory.get_exp_config(name), made)
    lengths = {"train_steps": 120, "validation_interval": 40, "checkpoint_interval": 10}
    values["trainer"] |= {**lengths, "summary_interval": 5}
    values["task"]["train_data"] |= {"input_path": pattern, "shuffle_buffer_size": 10}
    return values


def _vary(path: Path) -> None:
    """Writes shards with examples that differ, made from the only one in a file."""
    (example, *_) = map(_parsed, tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    for shard in range(_SHARDS):
        name = f"{path}-{shard:05}-of-{_SHARDS:05}"
        with tf.io.TFRecordWriter(name) as file:
            for number in range(shard, _EXAMPLES, _SHARDS):
                file.write(_varied(example, number).SerializeToString())


def _parsed(record: bytes) -> tf.train.Example:
    return tf.train.Example.FromString(record)


def _varied(example: tf.train.Example, number: int) -> tf.train.Example:
    """Changes the image, the tokens and the class of an example."""
    chance = np.random.default_rng(number)
    made = tf.train.Example()
    made.CopyFrom(example)
    features = made.features.feature
    if "image/encoded" in features:
        side = garden_data.SIDE
        pixels = tf.constant(chance.integers(0, 256, (side, side, 3)), tf.uint8)
        features["image/encoded"].bytes_list.value[:] = [tf.io.encode_jpeg(pixels).numpy()]
        features["image/source_id"].bytes_list.value[:] = [b"%d" % number]
    if "image/class/label" in features:
        features["image/class/label"].int64_list.value[:] = [number % 5]
    if "input_ids" in features:
        ids = chance.integers(5, len(garden_data.WORDS), garden_data.LENGTH)
        features["input_ids"].int64_list.value[:] = ids.tolist()
    return made


def _first_batches(name: str, values: dict[str, Any]) -> tuple[float, float]:
    """CPU seconds to the first batch at a late step and at step 0, medians of alternating turns."""
    params = exp_factory.get_exp_config(name)
    params.override({"task": values["task"]}, is_strict=False)
    task = task_contract.build_task(params.task, "")

    def seconds(step: int) -> float:
        start = time.process_time()
        built = pipeline.training(task, params.task.train_data, step=step, by_index=True)
        next(iter(built))
        return time.process_time() - start

    def turns() -> Iterator[tuple[float, float]]:
        for _ in range(_REPEATS + 1):
            yield seconds(_LATE), seconds(0)

    _, *measured = turns()  # the first turn traces
    late, early = (statistics.median(column) for column in zip(*measured, strict=True))
    return late, early
