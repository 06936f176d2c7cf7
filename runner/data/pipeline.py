"""A task's inputs starting at any batch, for a run that resumes or skips a bad batch.

Index-based training inputs (`runner.inputs`) can start at any step. For others, the position of the
iterator goes into the checkpoint if TensorFlow can save it. Otherwise the inputs are built from the
start. They skip the records of earlier batches before their first map, if that is equivalent, or
else all earlier batches are drawn and dropped. Both give the same batches in the same order.
"""

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import orbit
import tensorflow as tf
from official.core import base_task, config_definitions

from runner.configuration import task_contract
from runner.data import batches, indexed, iterators, order, windows
from runner.data.determinism import Determinism
from runner.devices import strategy, team
from runner.errors import ConfigError
from runner.internals import pipelines

_REPEATED = "repeated_steps"  # a field of `inputs.DataConfig`
_ALL = windows.Reading()


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Training inputs. Iterating over them gives the batches from the requested step on.

    Attributes:
        dataset: The batches, distributed over the replicas.
        is_placed: Whether it can start at any step at no cost.
        is_whole: Whether it is the same dataset as that from step 0, so that positions fit both.
        behind: How many of its first batches come before the requested step.
        records: How many records it skips before they are mapped.
    """

    dataset: Any
    is_placed: bool = False
    is_whole: bool = True
    behind: int = 0
    records: int = 0

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self.dataset), self.behind, None)


def training(
    task: base_task.Task,
    data: config_definitions.DataConfig,
    *,
    step: int = 0,
    reading: windows.Reading = _ALL,
    limit: int = 0,
    seed: int = 0,
    augmentation_seed: int = -1,
    threads: int | None = None,
    determinism: Determinism | None = None,
    by_index: bool = False,
    max_bad_examples: int = 0,
) -> Inputs:
    """Returns the training inputs from `step` on, distributed over the replicas in scope.

    Args:
        task: Builds the inputs.
        data: Describes them.
        step: The training step whose batch comes first.
        reading: What to read from the data.
        limit: Repeats this many first batches, or 0 for no limit.
        seed: Used if `data` has none, and as TensorFlow's seed.
        augmentation_seed: As for `RunConfig`.
        threads: The size of a private thread pool. None uses TensorFlow's.
        determinism: Records whether determinism was kept, and the placements of the inputs.
        by_index: Whether to find TFRecords by index if the task reads them in its own pipeline.
        max_bad_examples: How many damaged examples of sources may be left out.

    Raises:
        ConfigError: if `data` or `threads` have values that tf.data does not allow.
    """
    if reading.seed is not None:
        seed = reading.seed
    if augmentation_seed >= 0 and hasattr(data, "augmentation_seed"):
        data = data.replace(augmentation_seed=augmentation_seed)
    if getattr(data, "seed", 0) is None or (reading.seed is not None and hasattr(data, "seed")):
        data = data.replace(seed=seed)
    kept = determinism or Determinism()
    made = _Training(task, data, limit, seed, kept, by_index=by_index)
    ranges = windows.segments(step, reading.skipped)
    made.ranges = [(max(first - reading.begins, 0), count) for first, count in ranges]
    options = _options(data, threads)
    with order.recorded() as kept.placements:
        dataset = kept.spare(lambda: _distributed(task, made.build, options, made.is_read_on_host))
    if max_bad_examples and not kept.placements:
        raise ConfigError(
            f"RunConfig.max_bad_examples = {max_bad_examples} has no effect: the task does not "
            "read its training data from a runner.inputs.source or from indexed records"
        )
    for placement in kept.placements:
        placement.source.max_faults = max_bad_examples
    is_whole = not reading.skipped and not made.records
    return Inputs(dataset, made.is_placed, is_whole, made.behind, made.records)


def validation(
    task: base_task.Task,
    data: config_definitions.DataConfig,
    *,
    threads: int | None = None,
    examples: int | None = None,
    start: int = 0,
    determinism: Determinism | None = None,
) -> Any:
    """Returns inputs to evaluate, distributed over the replicas of the strategy in scope.

    Args:
        task: Builds the inputs.
        data: Describes them.
        threads: As for `training`.
        examples: How many of the first examples to read, or None for all. Input pipelines share
            them.
        start: The batch to start with. Those before it are read and dropped.
        determinism: Records whether determinism was kept. None makes a new one for evaluations.

    Raises:
        ConfigError: as for `training`.
    """

    def build(context: tf.distribute.InputContext) -> Any:
        dataset = inputs_of(task, whole(data), context)
        own = None
        if examples is not None:
            own, more = divmod(examples, context.num_input_pipelines)
            own += context.input_pipeline_id < more
        elements = start * context.num_replicas_in_sync // context.num_input_pipelines

        def cut(part: tf.data.Dataset) -> tf.data.Dataset:
            part = part if own is None else batches.first(part, own)
            return part.skip(elements) if elements else part

        return tf.nest.map_structure(cut, dataset)

    options = _options(data, threads)
    return (determinism or Determinism.of_evaluations()).spare(
        lambda: _distributed(task, build, options)
    )


def whole(data: config_definitions.DataConfig) -> config_definitions.DataConfig:
    """Returns `data` with the last, partial batch, which Model Garden drops by default."""
    on_tpu = isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)
    if getattr(data, "drop_remainder", False) and not on_tpu:  # a TPU needs batches of one shape
        return data.replace(drop_remainder=False)
    return data


def inputs_of(
    task: base_task.Task,
    data: config_definitions.DataConfig,
    context: tf.distribute.InputContext | None,
) -> Any:
    """Returns the dataset that the task builds, of global batches if it takes no context."""
    return task_contract.build_inputs(task, data, *([context] if takes_context(task) else []))


def is_placed(data: config_definitions.DataConfig, task: base_task.Task | None = None) -> bool:
    """Returns whether inputs of this kind can start at any step at no cost.

    Args:
        data: Describes them.
        task: Builds them. If its `streams` is true, it reads them sequentially, however they are
            described.
    """
    return hasattr(data, "start_step") and not getattr(task, "streams", False)


def advice(data: config_definitions.DataConfig) -> str:
    """Suggests options that may help if training waits for inputs of this kind."""
    fields = [field.name for field in dataclasses.fields(data)]  # no value is read: see unread.py
    name = type(data).__name__
    wanted = ["num_parallel_calls"] if is_placed(data) else ["cycle_length", "cache"]
    may_help = [f"{name}.{each}" for each in (*wanted, "prefetch_buffer_size") if each in fields]
    return (
        f"{', '.join(['RuntimeConfig.dataset_num_private_threads', *may_help])} may help; "
        "a profile shows which op waits (RunConfig.profile_every)"
    )


class _Training:
    """Builds the parts of training inputs, and records how they reach their first batch.

    Attributes:
        ranges: The batches to read: the first, and their number or None for all.
        behind, records: As in `Inputs`.
        is_placed: Whether the inputs can start at any step.
    """

    def __init__(
        self,
        task: base_task.Task,
        data: Any,
        limit: int,
        seed: int,
        kept: Determinism,
        *,
        by_index: bool,
    ) -> None:
        self._task, self._data, self._limit, self._seed = task, data, limit, seed
        self._kept, self._by_index = kept, by_index
        self.ranges: list[tuple[int, int | None]] = []
        self.behind = self.records = 0
        self.is_placed = False

    def build(self, context: tf.distribute.InputContext) -> Any:
        """Returns all parts, cut for the replicas of this pipeline."""
        parts: list[Any] = []
        self.behind = self.records = 0
        for first, count in self.ranges:
            strategy.set_seed(self._seed)  # an unseeded shuffle gets the same seed in each build
            parts.append(self._part(context, first, count, is_first=not parts))
        return tf.nest.map_structure(_joined, *parts)

    def _part(
        self, context: tf.distribute.InputContext, first: int, count: int | None, *, is_first: bool
    ) -> Any:
        """Returns `count` global batches from `first` on, each cut for the replicas.

        A limit repeats the first batches, and holds inputs that are not index-based in memory.
        """
        data, limit = self._data, self._limit
        replicas = context.num_replicas_in_sync // context.num_input_pipelines
        dataset = self._placed(context, first)
        self.is_placed = dataset is not None
        if dataset is None:
            dataset = inputs_of(self._task, data, context)
            if self._by_index:
                try:
                    dataset = _by_index(dataset, data, context, first, limit)
                    self.is_placed = True
                except pipelines.UnsupportedError as error:
                    self._kept.not_indexed = str(error)
        if self.is_placed:
            first = limit = 0
        if limit:
            dataset = tf.nest.map_structure(
                lambda part: part.take(limit * replicas).cache().repeat(), dataset
            )
            first %= limit
        if first and is_first:
            dataset, first, count = self._begun(dataset, first, count, replicas)

        def cut(part: tf.data.Dataset) -> tf.data.Dataset:
            part = part.skip(first * replicas) if first else part
            return part if count is None else part.take(count * replicas)

        return tf.nest.map_structure(cut, dataset)

    def _placed(self, context: tf.distribute.InputContext, first: int) -> Any | None:
        """Returns the task's inputs from a step on, or None if it has not placed them itself."""
        if not is_placed(self._data, self._task):
            return None
        if self._limit and not hasattr(self._data, _REPEATED):
            return None
        repeated = {_REPEATED: self._limit} if self._limit else {}
        data = self._data.replace(start_step=first, **repeated)
        with order.starts() as steps:
            dataset = inputs_of(self._task, data, context)
        parts = getattr(self._task, "tasks", [self._task])
        return dataset if len(steps) >= len(parts) else None

    def _begun(
        self, dataset: Any, first: int, count: int | None, replicas: int
    ) -> tuple[Any, int, int | None]:
        """Skips the records of the batches before the first, or leaves these to the caller."""
        try:
            found = pipelines.skipping(dataset, first * replicas)
        except pipelines.UnsupportedError:
            self.behind = first
            return dataset, 0, None if count is None else first + count
        self.records = found.records
        return found.dataset, 0, count

    def is_read_on_host(self, dataset: Any) -> bool:
        """Returns whether a plain iterator reads what `build` returned, for several devices.

        On CPUs it takes less time than TensorFlow's iterators for devices. On GPUs, which those
        copy to in advance, it is used if TensorFlow can save its position and that is needed.
        """
        devices = tf.distribute.get_strategy().extended.worker_devices
        if all("CPU" in device for device in devices):
            return True
        if self.is_placed:
            return False
        return iterators.can_be_saved(tf.nest.map_structure(iter, dataset))


def _by_index(
    dataset: Any,
    data: config_definitions.DataConfig,
    context: tf.distribute.InputContext,
    first: int,
    limit: int,
) -> tf.data.Dataset:
    """Returns a task's own pipeline with its records found by index."""
    if not isinstance(dataset, tf.data.Dataset):
        raise pipelines.UnsupportedError("the task reads several data sets")
    return indexed.rebuilt(dataset, data, context, first=first, repeated=limit)


def _joined(first: tf.data.Dataset, *others: tf.data.Dataset) -> tf.data.Dataset:
    for other in others:
        first = first.concatenate(other)
    return first


def takes_context(task: base_task.Task) -> bool:
    """Returns whether the task divides its inputs itself, so that no global batches are split."""
    return "input_context" in inspect.signature(task.build_inputs).parameters


def _distributed(
    task: base_task.Task,
    build: Callable[[tf.distribute.InputContext], Any],
    options: tf.data.Options,
    is_read_on_host: Callable[[Any], bool] | None = None,
) -> Any:
    """Returns what `build` returns, distributed over the replicas of the strategy in scope.

    Args:
        task: Builds the inputs.
        build: Returns those of one input pipeline.
        options: The options of each.
        is_read_on_host: For training data, which have no end.
    """
    several = team.current().size > 1

    def with_options(input_context: tf.distribute.InputContext) -> Any:
        dataset = build(input_context)
        if several and is_read_on_host:
            dataset = tf.nest.map_structure(_said_endless, dataset)
        if options == tf.data.Options():
            return dataset
        return tf.nest.map_structure(lambda part: part.with_options(options), dataset)

    def shared(input_context: tf.distribute.InputContext) -> Any:
        whole = with_options(tf.distribute.InputContext())
        return tf.nest.map_structure(lambda part: share(part, input_context), whole)

    devices = tf.distribute.get_strategy()
    if strategy.is_one_cpu(devices):  # TensorFlow's iterator for devices takes as long as a step
        return with_options(tf.distribute.InputContext())
    if is_read_on_host and strategy.is_in_one_process(devices):
        context = tf.distribute.InputContext(num_replicas_in_sync=devices.num_replicas_in_sync)
        made = (with_options if takes_context(task) else shared)(context)
        if is_read_on_host(made):
            return tf.nest.map_structure(lambda part: iterators.HostDataset(part, devices), made)
    if takes_context(task):
        return orbit.utils.make_distributed_dataset(devices, with_options)
    if several:
        return orbit.utils.make_distributed_dataset(devices, shared)
    return tf.nest.map_structure(
        lambda part: orbit.utils.make_distributed_dataset(devices, part),
        with_options(tf.distribute.InputContext()),
    )


def _said_endless(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Marks training data as endless, so workers need not ask each other before each batch."""
    return dataset.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))


def share(dataset: tf.data.Dataset, context: tf.distribute.InputContext) -> tf.data.Dataset:
    """Returns the parts of each global batch for this worker's replicas, one element each."""
    replicas = context.num_replicas_in_sync
    local = replicas // context.num_input_pipelines
    first = context.input_pipeline_id * local

    def parts(*batch: Any) -> tf.data.Dataset:
        batch = batch if len(batch) > 1 else batch[0]
        size = -(-batches.examples(batch) // replicas)

        def part(replica: tf.Tensor) -> Any:
            return batches.part(batch, replica * size, size)

        numbers = tf.range(first, first + local)
        return tf.data.Dataset.from_tensor_slices(numbers).map(part)

    shared = dataset.flat_map(parts).prefetch(tf.data.AUTOTUNE)
    return _said_endless(shared) if batches.is_endless(dataset) else shared


def _options(data: Any, threads: int | None) -> tf.data.Options:
    """Returns threads and autotuning as configured. A task's own configuration may lack fields."""
    options = tf.data.Options()
    if threads:
        if threads < 0:
            raise ConfigError(
                f"RuntimeConfig.dataset_num_private_threads={threads}: must be 1 or more, or None"
            )
        options.threading.private_threadpool_size = threads
    given = {field: getattr(data, field, None) for field in ("autotune_algorithm", "ram_budget")}
    for field, value in given.items():
        if value and getattr(data, "autotune", None) is False:
            raise ConfigError(f"{_named(data, field)} has no effect without autotune")
    if getattr(data, "autotune", None) is False:
        options.autotune.enabled = False
    if algorithm := given["autotune_algorithm"]:
        known = tf.data.experimental.AutotuneAlgorithm.__members__
        if algorithm not in known:
            raise ConfigError(f"{_named(data, 'autotune_algorithm')}: must be {', '.join(known)}")
        options.autotune.autotune_algorithm = known[algorithm]
    if budget := given["ram_budget"]:
        if budget < 0:
            raise ConfigError(f"{_named(data, 'ram_budget')}: must be 1 or more, in GB, or None")
        options.autotune.ram_budget = budget * 2**30
    return options


def _named(data: Any, field: str) -> str:
    """Returns `ImageData.ram_budget=-1`."""
    return f"{type(data).__name__}.{field}={getattr(data, field)!r}"
