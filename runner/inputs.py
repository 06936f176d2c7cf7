"""Deterministic, index-based inputs: global batch n depends only on (data, seed, n).

    images, labels = tf.constant(...), tf.constant(...)

    def load(index):  # [batch] int64, which examples
        return tf.gather(images, index), tf.gather(labels, index)

    train = inputs.place(len(labels), load, config=config.train_data)
    evaluate = inputs.in_order(len(labels), load, config=config.validation_data)

For data in files, a source finds the examples, and a function parses what the source reads:

    records = inputs.source("data/train-*.tfrecord")
    train = inputs.place(records, parse, config=config.train_data)

`inputs.mixture` makes one source of several, and `inputs.packed` packs short sequences into rows.

If the configuration of the data is a `FoldedData`, its method `chosen` selects the examples.

Positions in the training data are counted from the first example of step 0, without end. The epoch
of a position is `position // size`. Its example is the image of `position % size` under a
permutation that is keyed by seed and epoch. The pipeline has no shuffle buffer and no state: every
epoch is a full shuffle, any step can be reached at once, and every input pipeline computes its own
share of the same global batch.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from official.core import config_definitions

from runner.configuration.settings import PACE, SIZE, STEPS, number, one_of, setting
from runner.core import user_code
from runner.data import mixing, order, permutation
from runner.data.folds import Fold
from runner.data.sources.mixture import Mixture
from runner.data.sources.mixture import mixture as mixture  # part of this module's interface
from runner.data.sources.opening import source as source  # part of this module's interface
from runner.data.sources.packed import packed as packed  # part of this module's interface
from runner.data.sources.source import DamagedExampleError, Source
from runner.errors import ConfigError
from runner.internals import tensorflow as tf_internals

Load = Callable[[Any], Any]
"""Returns the examples at these indices: [batch] int64 -> a structure of [batch, ...] tensors.

If the examples are a `Source`, the function gets what the source reads instead of indices (see
`inputs.source`).
"""

Augment = Callable[[Any, tf.Tensor], Any]
"""Randomly changes what `load` returned, using seeds [batch, 2] int64."""

_BLOCKS = 1024  # the number of parts into which a source without blocks is cut
_DEALT = 32  # how many batches `bucketed` sorts by length at a time

# Fields that Model Garden's pipelines read but that have no meaning for data found by index.
_UNUSED = (
    "shuffle_buffer_size",
    "cache",
    "cycle_length",
    "block_length",
    "sharding",
    "enable_tf_data_service",
    "tf_data_service_address",
    "tf_data_service_job_name",
)

_OF_FOLDS = ("fold", "fold_seed", "fold_part")


@dataclasses.dataclass
class DataConfig(config_definitions.DataConfig):
    """Model Garden's DataConfig for deterministic, index-based inputs.

    `seed`: None is 0. `prefetch_buffer_size`: None lets TensorFlow choose. The fields for shuffle
    buffers, caches, file interleaving and the tf.data service have no meaning here. Setting one of
    them or `deterministic=False` is an error. The batches are the same for every choice.
    """

    start_step: int = setting(0, "The step of the first batch. Not for users: the trainer sets it.")
    augmentation_seed: int = setting(
        -1,
        "Seeds the random changes to examples. -1: `seed`. Not for users: "
        "`RunConfig.augmentation_seed` sets it.",
    )
    repeated_steps: int = setting(
        0,
        "Training repeats the batches of the first N steps, where N is this value. 0: no "
        "repetition. Not for users: `RunConfig.limit_train` sets it.",
    )
    drop_remainder: bool = setting(
        False,
        "Whether an evaluation drops the last examples if they do not fill a batch. Training "
        "data repeat without end, so they have no remainder.",
    )
    num_examples: int = setting(
        0,
        "Number of examples, for lengths in epochs if the data's configuration cannot count "
        "them. 0: not set.",
        resume=STEPS,
    )
    num_parallel_calls: int = setting(
        0,
        "Number of batches to load and augment in parallel. 0: TensorFlow chooses.",
        resume=PACE,
    )
    shuffle: str = setting(
        "",
        "The order of training examples from a source. `full` permutes all examples. `blocks` "
        "permutes blocks of neighboring examples, then the examples of each 16 blocks. `none` "
        "keeps the order of the source in every epoch. Empty: the order in which the source is "
        "read best.",
        allowed=one_of("", "full", "blocks", "none"),
    )
    autotune: bool = setting(
        True,
        "Whether TensorFlow keeps adapting the values it has chosen, with `autotune_algorithm` "
        "and up to `ram_budget` GB.",
        resume=PACE,
    )

    def check(self) -> None:
        """Checks for mistakes before any file is read or fetched, for subclasses to override.

        Raises:
            ConfigError: if a value is out of range or contradicts another.
        """

    def size(self) -> int | None:
        """Returns the number of examples, or None if unknown.

        Subclasses that can count them override this method.

        Raises:
            ConfigError: if the examples cannot be counted.
        """
        return self.stated() or None

    def stated(self) -> int:
        """Returns the number of examples given by `num_examples`, or 0 if it is not set."""
        return self.num_examples


@dataclasses.dataclass
class FoldedData(DataConfig):
    """A DataConfig for cross-validation: one of `folds` parts validates and the others train.

    `task.train_data` and `task.validation_data` read the same source and have the same `folds`,
    `fold` and `fold_seed`. `num_examples` counts both sides. A task calls `chosen`.
    """

    # The fields that identify the examples. In a study with folds, the validation data take them
    # from the training data. Subclasses add theirs.
    SOURCE_FIELDS: ClassVar[tuple[str, ...]] = (
        "input_path",
        "tfds_name",
        "tfds_split",
        "tfds_data_dir",
        "num_examples",
        "fold_seed",
    )

    folds: int = setting(
        0,
        "Number of parts into which the examples are divided for cross-validation. 0: no division.",
        allowed=number(at_least=2, also={0: "for no folds"}),
    )
    fold: int = setting(0, "Index of the part that validates, from 0.", allowed=SIZE)
    fold_seed: int = setting(
        0, "Seeds the division into folds. It is independent of the run's seed.", allowed=SIZE
    )
    fold_part: str = setting(
        "",
        "`validation` reads the part `fold`, and `train` reads all others. Empty: depends on "
        "`is_training`.",
        allowed=one_of("", "train", "validation"),
    )

    def side(self) -> Fold | None:
        """Returns which examples are read, or None for all.

        Raises:
            ConfigError: if there is no such fold.
        """
        name = type(self).__name__
        if not self.folds:
            refuse(self, _OF_FOLDS, f"{name}.folds is 0", FoldedData)
            return None
        if not 0 <= self.fold < self.folds:
            raise ConfigError(
                f"{name}.fold={self.fold}: of folds={self.folds}, the last is {self.folds - 1}"
            )
        validates = self.reads() == "validation"
        return Fold(self.folds, self.fold, self.fold_seed, validates)

    def reads(self) -> str:
        """Returns `train` or `validation`."""
        return self.fold_part or ("train" if self.is_training else "validation")

    def chosen(
        self,
        size: int,
        *,
        labels: np.ndarray | None = None,
        groups: np.ndarray | None = None,
    ) -> np.ndarray:
        """Returns the indices of the examples to read, [n] int64, in order (all without folds).

        Args:
            size: The number of examples, both sides together.
            labels: [size] Classes, which are spread evenly over the parts. None: not taken into
                account.
            groups: [size] Numbers or strings. Examples of the same group stay together.

        Raises:
            ConfigError: if there is no such fold, or there are fewer examples or groups than folds.
        """
        side = self.side()
        return side.members(size, labels=labels, groups=groups) if side else np.arange(size)

    def once(self) -> "FoldedData":
        """Returns the configuration for one pass over the same examples in order."""
        return self.replace(is_training=False, **self.same_side())

    def same_side(self) -> dict[str, str]:
        """Returns values for `replace` that keep the examples when `is_training` changes."""
        side = self.side()
        return {"fold_part": "validation" if side.validates else "train"} if side else {}

    def stated(self) -> int:
        """Returns the number of examples on this side, except that it cannot count groups."""
        side = self.side()
        return side.count(self.num_examples) if side and self.num_examples else self.num_examples


def place(
    examples: int | Source,
    load: Load,
    *,
    config: DataConfig,
    input_context: tf.distribute.InputContext | None = None,
    augment: Augment | None = None,
) -> tf.data.Dataset:
    """Returns endless training data, reshuffled every epoch, starting at `config.start_step`.

    With `config.shuffle = 'none'`, every epoch has the order of the examples.

    Args:
        examples: the number of examples, or a source of them. Of a mixture, each source has its
            own order and epochs.
        load: finds examples by index, or parses what the source reads.
        config: batch size, seed, first step.
        input_context: the context from `distribute_datasets_from_function`, or None for one
            replica.
        augment: changes what was loaded. Its seeds depend only on (seed, epoch, example). They can
            be passed to `uniform` and, one at a time, to `tf.random.stateless_*`.

    Returns:
        Batches for the pipeline's replicas in turn, each of `global_batch_size / replicas`
        examples. Replica by replica, pipeline by pipeline, they form the global batch in order.

    Raises:
        ConfigError: if there are no examples, no batch size, the replicas cannot share a batch, or
            `load` rejects the first examples of a source.
    """
    size = _size(examples)
    share = _share(size, config, input_context, "training")
    chosen = _order(examples, config)
    if isinstance(examples, Source):
        order.record(order.Placement(chosen, share.batch, examples))
    drawn, read = share.drawn(chosen), _reading(examples, load)
    dataset = _training(size, drawn, read, share, config, augment, block=share.block)
    if isinstance(examples, Source):
        _check_parser(examples, load, share.examples)
    return dataset


def bucketed(
    lengths: np.ndarray,
    load: Load,
    *,
    config: DataConfig,
    input_context: tf.distribute.InputContext | None = None,
    augment: Augment | None = None,
) -> tf.data.Dataset:
    """Returns training data as from `place`, in batches of similar lengths to reduce padding.

    The examples that `place` would put into 32 batches (or into an epoch, if that is less) are
    sorted by length and cut into new batches, and the order of the batches is permuted. An epoch's
    last examples may therefore come after the first examples of the next epoch.

    Args:
        lengths: [size] integers, the length of each example.
        load: finds examples by index and pads them to the longest of the batch.
        config: as for `place`, like the result and the errors.
        input_context: as for `place`.
        augment: as for `place`.
    """
    size = len(lengths)
    share = _share(size, config, input_context, "training")
    dealt = max(1, min(_DEALT, size // share.batch))
    key = permutation.key(config.seed or 0, order.DEAL)
    shuffle = order.Shuffle(size, config.seed or 0)
    by_index = tf.constant(lengths, tf.int64)

    def drawn(element: tf.Tensor) -> tf.Tensor:
        deal = element[0] // share.replicas // dealt
        position = deal * dealt * share.batch + tf.range(dealt * share.batch, dtype=tf.int64)
        serial = shuffle.serial(position)
        sorted_by_length = tf.argsort(tf.gather(by_index, serial % size), stable=True)
        batches = tf.reshape(tf.gather(serial, sorted_by_length), [dealt, share.batch])
        places = tf.range(dealt, dtype=tf.int64)
        trades = permutation.permute(places, tf.fill([dealt], deal), size=dealt, key=key)
        return share.of(tf.gather(batches, trades))

    read = _reading(size, load)
    return _training(size, drawn, read, share, config, augment, block=dealt * share.replicas)


def in_order(
    examples: int | Source,
    load: Load,
    *,
    config: DataConfig,
    input_context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Returns evaluation data: every example once and in order, the last batch partial.

    Arguments and errors are those of `place`. If the last global batch is partial, its last
    replicas get fewer examples or none.
    """
    size = _size(examples)
    share = _share(size, config, input_context, "evaluation")
    if isinstance(examples, Source):
        order.record(order.Placement(order.Shuffle(size), share.batch, examples))
    whole, rest = divmod(size, share.batch)
    if config.drop_remainder:
        rest = 0
    end = whole * share.batch + rest
    if not end:
        raise ConfigError(
            f"drop_remainder leaves nothing of {size} examples in batches of {share.batch}"
        )

    read = _reading(examples, load)

    @tf.autograph.experimental.do_not_convert
    def batch(element: tf.Tensor) -> Any:
        start = share.position(element)
        # Do not give it a static shape: tf.distribute would then drop what not all replicas get.
        return read(tf.range(start, tf.minimum(start + share.examples, end)))

    partial = sum(share.position(replica) < rest for replica in range(share.replicas))
    return _pipeline(tf.data.Dataset.range(whole * share.replicas + partial), batch, config)


def one_source(train: object, validation: object) -> str:
    """Returns the message for folds of training and validation data from different sources."""
    return (
        f"task.train_data reads {train}, task.validation_data {validation}: with folds, validation"
        " data are a part of the training data, so both must read the same (other data can be"
        " tested at the end: TestConfig.data)"
    )


def uniform(seeds: tf.Tensor, count: int) -> tf.Tensor:
    """Returns random numbers in [0, 1) for every example of a batch, from its seeds alone.

    Args:
        seeds: [batch, 2] int64, as `place` passes them to `augment`.
        count: how many numbers each example gets.

    Returns:
        [batch, count] float32.
    """
    key = tf.pad(seeds, [[0, 0], [0, 1]])
    bits = permutation.random(tf.zeros_like(seeds[:, 0]), count, key=key)
    return tf.cast(bits // 2**39, tf.float32) / 2**24  # 24 bits, the precision of float32


def refuse(
    config: DataConfig, fields: Sequence[str], why: str, kind: type[DataConfig] = DataConfig
) -> None:
    """Rejects values that would have no effect.

    Args:
        config: the data's configuration.
        fields: names of fields that must keep their defaults.
        why: the reason why they have no effect.
        kind: the class that declares the fields.

    Raises:
        ConfigError: if one of them was set.
    """
    standard = _defaults(kind)  # type: ignore[arg-type]
    for field in fields:
        value = getattr(config, field)
        if value != getattr(standard, field):
            raise ConfigError(f"{type(config).__name__}.{field}={value!r} has no effect: {why}")


@functools.cache
def _defaults(kind: type[DataConfig]) -> DataConfig:
    """Returns the defaults, cached because they take milliseconds to make."""
    return kind()


def _size(examples: int | Source) -> int:
    return len(examples) if isinstance(examples, Source) else examples


def _order(examples: int | Source, config: DataConfig) -> order.Order:
    """Returns the order of training data."""
    seed = config.seed or 0
    if not isinstance(examples, Mixture):
        return _shuffle(examples, config, seed)
    orders = [
        _shuffle(source, config, mixing.seed_of(seed, name))
        for name, source in examples.sources.items()
    ]
    return mixing.Mix(len(examples), tuple(orders), tuple(examples.slots.values()), seed)


def _shuffle(examples: int | Source, config: DataConfig, seed: int) -> order.Shuffle:
    """Returns the order of the examples of one source, in blocks if it reads best that way."""
    size = _size(examples)
    block = examples.block if isinstance(examples, Source) else 1
    wanted = getattr(config, "shuffle", "")  # any Config may describe data
    if wanted == "blocks":
        block = block if block > 1 else max(1, size // _BLOCKS)
    if wanted == "none":
        return order.Shuffle(size, seed, keeps_order=True)
    return order.Shuffle(size, seed, 1 if wanted == "full" else block)


def _reading(examples: int | Source, load: Load) -> Load:
    """Returns the function from indices to examples, converted for use in a graph."""
    load_in_graph = tf_internals.converted(load)
    if isinstance(examples, Source):
        return lambda index: load_in_graph(examples.load(index))
    return load_in_graph


def _check_parser(source: Source, load: Load, batch: int) -> None:
    """Parses the first example, and a batch if that fails, which shows mistakes before training."""
    for count in (1, min(batch, len(source))):
        try:
            rows = source.read(np.arange(count, dtype=np.int64))
        except DamagedExampleError:  # it may be left out
            return
        try:
            tf.data.Dataset.from_tensors(rows).map(load).get_single_element()
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            said = user_code.summary(error)
        else:
            return
    raise ConfigError(f"{source.identity(0)}: the task cannot parse it: {said}")


def _share(
    size: int, config: DataConfig, context: tf.distribute.InputContext | None, what: str
) -> order.Share:
    """Returns one pipeline's share of the `what` data.

    Raises:
        ConfigError: if the data cannot be divided into batches.
    """
    context = context or tf.distribute.InputContext()
    batch, replicas = config.global_batch_size, context.num_replicas_in_sync
    if size < 1:
        raise ConfigError(f"the {what} data are empty")
    # Data that Python or YAML overrides may be any Config with these fields.
    stated = config.stated() if isinstance(config, DataConfig) else config.num_examples
    if stated not in (0, size):
        side = getattr(config, "folds", 0) and config.side()
        part = f" ({stated} in {side})" if side else ""
        raise ConfigError(
            f"num_examples={config.num_examples}{part} of the {what} data: there are {size}"
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
    for field in ("num_parallel_calls", "prefetch_buffer_size"):
        if (getattr(config, field) or 0) < 0:
            raise ConfigError(
                f"{field}={getattr(config, field)} of the {what} data: must be 1 or more, or left"
                " to TensorFlow"
            )
    refuse(config, _UNUSED, "examples are found by index, without buffers or files to interleave")
    if config.deterministic is False:
        raise ConfigError("deterministic=False: indexed inputs are always deterministic")
    return order.Share(batch, batch // replicas, fed, context.input_pipeline_id * fed)


def _training(
    size: int,
    drawn: Callable[[tf.Tensor], tf.Tensor],
    read: Load,
    share: order.Share,
    config: DataConfig,
    augment: Augment | None,
    *,
    block: int,
) -> tf.data.Dataset:
    """Returns endless batches of the examples `drawn`, given as epoch * size + example."""
    augment_in_graph = tf_internals.converted(augment) if augment else None

    @tf.autograph.experimental.do_not_convert
    def batch(index: tf.Tensor, *seeds: tf.Tensor) -> Any:
        loaded = read(index)
        return augment_in_graph(loaded, *seeds) if augment_in_graph else loaded

    augmentation_seed = getattr(config, "augmentation_seed", -1)  # any Config may describe data
    elements = order.elements(
        drawn,
        share,
        size=size,
        seed=augmentation_seed if augmentation_seed >= 0 else config.seed or 0,
        start_step=config.start_step,
        repeated_steps=config.repeated_steps,
        block=block,
        seeded=augment is not None,
    )
    return _pipeline(elements, batch, config)


def _pipeline(
    elements: tf.data.Dataset, batch: Callable[..., Any], config: DataConfig
) -> tf.data.Dataset:
    calls = config.num_parallel_calls or tf.data.AUTOTUNE
    batches = elements.map(batch, num_parallel_calls=calls, deterministic=True)
    return batches.prefetch(config.prefetch_buffer_size or tf.data.AUTOTUNE)
