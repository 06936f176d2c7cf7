"""A task's own pipeline over TFRecords, with its records found by index.

The task builds its pipeline as usual. Its files and its processing of records (decoding, parsing,
batching) are kept. The part that reads, shuffles and repeats is replaced by records in an order
that is a function of (seed, epoch, n). Random ops in the kept part draw from a seed that is a
function of these and the example, so any step can be reached at once and is bit-exact.
"""

import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from official.core import config_definitions

from runner.core import user_code
from runner.data import order
from runner.data.sources import opening
from runner.data.sources.source import DamagedExampleError
from runner.data.sources.tfrecord import TFRecords
from runner.errors import ConfigError
from runner.internals import pipelines

_SALTS = (0x5851F42D4C957F2D, 0x14057B7EF767814F)  # for each stage


def rebuilt(
    dataset: tf.data.Dataset,
    data: config_definitions.DataConfig,
    context: tf.distribute.InputContext,
    *,
    first: int,
    repeated: int,
) -> tf.data.Dataset:
    """Returns the same training data from a step on, in an order that depends only on the step.

    Args:
        dataset: The pipeline that the task has built.
        data: Describes it.
        context: The replicas that it feeds.
        first: The step whose batch comes first.
        repeated: The number of first steps whose batches are repeated, or 0 to repeat none.

    Raises:
        pipelines.UnsupportedError: if its elements do not follow from their positions.
        ConfigError: if its files cannot be indexed.
    """
    parts = pipelines.taken_apart(dataset)
    share = _share(parts, data, context)
    files = tuple(sorted(parts.files))  # a glob has the order of the file system
    opening.check_numbers(_paths(data.input_path), [Path(file) for file in files])
    source = _records(files)
    _check_parser(parts, source)
    shuffle = order.Shuffle(len(source), getattr(data, "seed", None) or 0)
    order.record(order.Placement(shuffle, share.batch, source))
    elements = order.elements(
        share.drawn(shuffle),
        share,
        size=len(source),
        seed=shuffle.seed,
        start_step=first,
        repeated_steps=repeated,
        block=share.block,
        seeded=True,
    )

    @tf.autograph.experimental.do_not_convert
    def read(index: tf.Tensor, seeds: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return seeds, source.load(index)

    result = _parallel(elements, read).unbatch()
    for number, step in enumerate(parts.steps):
        if isinstance(step, pipelines.Batched):
            result = result.batch(step.size, drop_remainder=True)
            result = result.map(lambda seeds, batch: (seeds[0], batch))
        else:
            result = _parallel(result, functools.partial(_call, step, number))
    options = tf.data.Options()
    options.deterministic = True
    result = result.map(lambda _, element: element).with_options(parts.options)
    return result.with_options(options).prefetch(tf.data.AUTOTUNE)


def _paths(given: Any) -> list[str]:
    """The paths and patterns that Model Garden accepts as `input_path`."""
    if isinstance(given, str):
        return given.split(",")
    return list(given.as_dict().values() if hasattr(given, "as_dict") else given)


def _check_parser(parts: pipelines.Pipeline, source: TFRecords) -> None:
    """Parses the first record, which shows most mistakes before training."""
    try:
        (record,) = source.read(np.zeros(1, np.int64))
    except DamagedExampleError:  # it may be left out
        return
    dataset = tf.data.Dataset.from_tensors((tf.zeros([2], tf.int64), record))
    for step in itertools.takewhile(lambda step: isinstance(step, pipelines.Mapped), parts.steps):
        dataset = dataset.map(functools.partial(_call, step, 0))
    try:
        dataset.get_single_element()
    except tf.errors.InvalidArgumentError as error:
        raise ConfigError(
            f"{source.identity(0)}: the task cannot parse it: {user_code.summary(error)}"
        ) from error


@tf.autograph.experimental.do_not_convert
def _call(
    step: pipelines.Mapped, number: int, seed: tf.Tensor, element: Any
) -> tuple[tf.Tensor, Any]:
    salts = tf.constant([number * salt % 2**62 for salt in _SALTS], tf.int64)
    return seed, step.call(element, seed + salts)


def _parallel(dataset: tf.data.Dataset, function: Any) -> tf.data.Dataset:
    return dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _share(
    parts: pipelines.Pipeline,
    data: config_definitions.DataConfig,
    context: tf.distribute.InputContext,
) -> order.Share:
    """Returns one pipeline's share of the global batches."""
    sizes = [step.size for step in parts.steps if isinstance(step, pipelines.Batched)]
    replicas = context.num_replicas_in_sync
    if len(sizes) != 1 or sizes[0] * replicas != data.global_batch_size:
        raise pipelines.UnsupportedError(
            f"its batches of {' x '.join(map(str, sizes)) or 'unknown size'} are not a global batch"
            f" of {data.global_batch_size} for {replicas} replicas"
        )
    fed = replicas // context.num_input_pipelines
    return order.Share(data.global_batch_size, sizes[0], fed, context.input_pipeline_id * fed)


def _records(files: tuple[str, ...]) -> TFRecords:
    return TFRecords([Path(file) for file in files], _name(files))


def _name(files: tuple[str, ...]) -> str:
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
