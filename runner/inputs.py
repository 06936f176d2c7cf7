"""Inputs placed by step: global batch n is a function of (data, seed, n), and of nothing else.

    images, labels = tf.constant(...), tf.constant(...)

    def load(index):  # [batch] int64, which examples
        return tf.gather(images, index), tf.gather(labels, index)

    train = inputs.place(len(labels), load, config=config.train_data)
    evaluate = inputs.in_order(len(labels), load, config=config.validation_data)

Training data have a position, counted from the first example of step 0 and without end. Its epoch
is `position // size`; its example is where a permutation, keyed by seed and epoch, sends
`position % size`. Nothing is buffered and nothing is remembered: every epoch is a full shuffle, any
step is reached at once, and every input pipeline computes its own share of the same global batch.

The permutation is TensorFlow's: the Simon block cipher, walked until it falls inside the range
(Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). Over 63 bits the same cipher
is a random number for every counter (Salmon et al., "Parallel random numbers: as easy as 1, 2,
3", 2011), which makes the keys of the permutations and the seeds of augmentation.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from official.core import config_definitions

from runner.errors import ConfigError

Load = Callable[[tf.Tensor], Any]
"""The examples at these indices: [batch] int64 -> a structure of [batch, ...] tensors."""

Augment = Callable[[Any, tf.Tensor], Any]
"""What `load` returned, and seeds [batch, 2] int64 -> the same, changed at random."""

# With 4 rounds, TensorFlow's default, and with 8, permutations of neighbouring keys correlate.
_ROUNDS = 12
_SHUFFLE, _AUGMENT = 0, 1

# Fields that official's pipelines read, and data that are found by index have no use for.
_UNUSED = (
    "shuffle_buffer_size",
    "cache",
    "cycle_length",
    "block_length",
    "ram_budget",
    "sharding",
    "enable_tf_data_service",
    "tf_data_service_address",
    "tf_data_service_job_name",
    "autotune_algorithm",
)


@dataclasses.dataclass
class DataConfig(config_definitions.DataConfig):
    """Official's DataConfig, for data that are placed by step.

    `seed`: None is 0. `prefetch_buffer_size`: None is chosen by TensorFlow. The fields for shuffle
    buffers, caches, file interleaving and the tf.data service have no meaning here; setting one is
    an error, and so is `deterministic=False`.

    Attributes:
        start_step: the step whose batch comes first. Not for users: the trainer sets it.
        drop_remainder: leave out the last examples of an evaluation when they do not fill a
            batch. Training data have no end and never a remainder.
        num_examples: how many examples there are, where lengths are given in epochs and the data's
            configuration cannot count them; 0: not said.
    """

    start_step: int = 0
    drop_remainder: bool = False
    num_examples: int = 0

    def size(self) -> int | None:
        """How many examples there are, None where nothing says it; for subclasses that can count.

        Raises:
            ConfigError: the examples cannot be counted.
        """
        return self.num_examples or None


def place(
    size: int,
    load: Load,
    *,
    config: DataConfig,
    input_context: tf.distribute.InputContext | None = None,
    augment: Augment | None = None,
) -> tf.data.Dataset:
    """Training data without end: shuffled anew every epoch, in place from `config.start_step` on.

    Args:
        size: the number of examples.
        load: finds examples by index.
        config: batch size, seed, first step.
        input_context: of `distribute_datasets_from_function`; None is one replica.
        augment: changes what was loaded. Its seeds depend on (seed, epoch, example) alone; they
            suit `uniform` and, one by one, `tf.random.stateless_*`.

    Returns:
        Batches for the pipeline's replicas in turn, each of `global_batch_size / replicas`
        examples: replica by replica, pipeline by pipeline, they are the global batch in order.

    Raises:
        ConfigError: no examples, no batch size, or a batch that the replicas cannot share.
    """
    share = _share(size, config, input_context, "training")
    seed = config.seed or 0

    def batch(element: tf.Tensor) -> Any:
        position = share.position(element) + tf.range(share.examples, dtype=tf.int64)
        epoch = position // size
        index = _permute(position % size, epoch, size=size, seed=seed)
        examples = load(index)
        if augment is None:
            return examples
        return augment(examples, _random(epoch * size + index, 2, key=_key(seed, _AUGMENT)))

    first = config.start_step * share.replicas
    return _pipeline(tf.data.Dataset.range(first, tf.int64.max), batch, config)


def in_order(
    size: int,
    load: Load,
    *,
    config: DataConfig,
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Evaluation data: every example once and in order, the last batch partial.

    Arguments and errors are those of `place`. Where the last global batch is partial, its last
    replicas get fewer examples or none.
    """
    share = _share(size, config, input_context, "evaluation")
    whole, rest = divmod(size, share.batch)
    if config.drop_remainder:
        rest = 0
    end = whole * share.batch + rest
    if not end:
        raise ConfigError(
            f"drop_remainder leaves nothing of {size} examples in batches of {share.batch}"
        )

    def batch(element: tf.Tensor) -> Any:
        start = share.position(element)
        # Never of static shape: of data that are, tf.distribute drops what not all replicas get.
        return load(tf.range(start, tf.minimum(start + share.examples, end)))

    partial = sum(share.position(replica) < rest for replica in range(share.replicas))
    return _pipeline(tf.data.Dataset.range(whole * share.replicas + partial), batch, config)


def uniform(seeds: tf.Tensor, count: int) -> tf.Tensor:
    """Random numbers in [0, 1) for every example of a batch, from its seeds alone.

    Args:
        seeds: [batch, 2] int64, as `place` hands them to `augment`.
        count: how many numbers an example gets.

    Returns:
        [batch, count] float32.
    """
    bits = _random(tf.zeros_like(seeds[:, 0]), count, key=tf.pad(seeds, [[0, 0], [0, 1]]))
    return tf.cast(bits // 2**39, tf.float32) / 2**24  # 24 bits: what float32 holds exactly


def refuse(config: DataConfig, fields: Sequence[str], why: str) -> None:
    """Stops a value that nothing would read.

    Args:
        config: of some data.
        fields: names that have to be left at their defaults.
        why: they have no effect.

    Raises:
        ConfigError: one of them was set.
    """
    standard = DataConfig()
    for field in fields:
        value = getattr(config, field)
        if value != getattr(standard, field):
            raise ConfigError(f"{type(config).__name__}.{field}={value!r} has no effect: {why}")


@dataclasses.dataclass(frozen=True)
class _Share:
    """What one input pipeline feeds of every global batch."""

    batch: int  # examples in a global batch
    examples: int  # of them, for each replica
    replicas: int  # fed by this pipeline
    first: int  # number of the first of these, counted over all pipelines

    def position(self, element: Any) -> Any:
        """The position of an element's first example; a number or a tensor, as given."""
        step, replica = element // self.replicas, element % self.replicas
        return step * self.batch + (self.first + replica) * self.examples


def _share(
    size: int, config: DataConfig, context: tf.distribute.InputContext | None, what: str
) -> _Share:
    """One pipeline's share of the `what` data; ConfigError where no batches can be made of them."""
    context = context or tf.distribute.InputContext()
    batch, replicas = config.global_batch_size, context.num_replicas_in_sync
    if size < 1:
        raise ConfigError(f"the {what} data are empty")
    if config.num_examples not in (0, size):
        raise ConfigError(
            f"num_examples={config.num_examples} of the {what} data: there are {size}"
        )
    if batch < 1:
        raise ConfigError(f"global_batch_size={batch} of the {what} data: must be above 0")
    if batch % replicas:
        raise ConfigError(
            f"global_batch_size={batch} of the {what} data cannot be shared evenly by {replicas}"
            f" replicas; {batch + replicas - batch % replicas} can"
        )
    fed, rest = divmod(replicas, context.num_input_pipelines)
    if rest or not fed:
        raise ConfigError(
            f"{context.num_input_pipelines} input pipelines cannot feed {replicas} replicas evenly"
        )
    refuse(config, _UNUSED, "examples are found by index, without buffers or files to interleave")
    if config.deterministic is False:
        raise ConfigError("deterministic=False: data that are placed by step cannot be otherwise")
    return _Share(batch, batch // replicas, fed, context.input_pipeline_id * fed)


def _pipeline(
    elements: tf.data.Dataset, batch: Callable[[tf.Tensor], Any], config: DataConfig
) -> tf.data.Dataset:
    batches = elements.map(batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return batches.prefetch(config.prefetch_buffer_size or tf.data.AUTOTUNE)


def _permute(place: tf.Tensor, epoch: tf.Tensor, *, size: int, seed: int) -> tf.Tensor:
    """Where each place goes in its own epoch's permutation of `size`; all [batch] int64."""
    # Small permutations use 8 bits of each word of the key, so seed and epoch cannot be the key.
    epochs = tf.range(epoch[0], epoch[-1] + 1)
    keys = _random(epochs, 3, key=_key(seed, _SHUFFLE))
    return _cipher(place, key=tf.gather(keys, epoch - epoch[0]), last=size - 1)


def _random(counter: tf.Tensor, count: int, *, key: tf.Tensor) -> tf.Tensor:
    """63 random bits, [batch, count] int64, from [batch] counters and a key, [3] or [batch, 3]."""
    counters = counter[:, tf.newaxis] * count + tf.range(count, dtype=tf.int64)
    if key.shape.rank == 2:
        key = tf.repeat(key, count, axis=0)
    bits = _cipher(tf.reshape(counters, [-1]), key=key, last=tf.int64.max)
    return tf.reshape(bits, [-1, count])


def _cipher(index: tf.Tensor, *, key: tf.Tensor, last: int) -> tf.Tensor:
    """A permutation of 0..last; of the key's three words the lower 32 bits count at most."""
    return tf.raw_ops.RandomIndexShuffle(
        index=index, seed=key, max_index=tf.constant(last, tf.int64), rounds=_ROUNDS
    )


def _key(seed: int, purpose: int) -> tf.Tensor:
    return tf.constant([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF, purpose], tf.int64)
