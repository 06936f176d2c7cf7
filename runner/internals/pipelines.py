"""Takes apart a tf.data pipeline that a task has built, so that it can read other records."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.data.util import structure
from tensorflow.python.framework import op_def_registry

from runner.internals import stateless_random

_READING = (
    *("_TensorSliceDataset", "_ShuffleDataset", "_RepeatDataset", "_ShardDataset"),
    *("_InterleaveDataset", "_ParallelInterleaveDataset", "_FlatMapDataset", "TFRecordDatasetV2"),
    *("_OptionsDataset", "_PrefetchDataset", "_TakeDataset"),
)
_ORDERING = ("_ShuffleDataset", "_RepeatDataset", "_CacheDataset", "CacheDataset")
_MAPS = ("_MapDataset", "_ParallelMapDataset")
_BATCHES = ("_BatchDataset", "_ParallelBatchDataset")
_UNCHANGED = ("_OptionsDataset", "_PrefetchDataset")
_HARMLESS = (  # stateful by name, but their results do not depend on earlier calls
    *("ReadFile", "ReadVariableOp", "LookupTableFindV2", "LookupTableSizeV2"),
    *("Assert", "CheckNumerics", "CheckNumericsV2"),
)

_RECORD = tf.TensorSpec([], tf.string)


class UnsupportedError(ValueError):
    """A pipeline has elements that do not follow from their positions. The message says why."""


class Batched(NamedTuple):
    """Combines a number of examples into an element."""

    size: int


class Mapped(NamedTuple):
    """Maps an element to another.

    Attributes:
        call: Takes an element and a seed, [2] int64.
        is_random: Whether it uses the seed.
    """

    call: Callable[[Any, tf.Tensor], Any]
    is_random: bool


class Pipeline(NamedTuple):
    """The parts of a pipeline.

    Attributes:
        files: The TFRecord files that it reads.
        steps: The processing of their records, in order.
        options: The options of the whole pipeline.
    """

    files: tuple[str, ...]
    steps: tuple[Batched | Mapped, ...]
    options: tf.data.Options


def taken_apart(dataset: tf.data.Dataset) -> Pipeline:
    """Returns the parts of a pipeline over the records of files.

    Raises:
        UnsupportedError: if its elements do not follow from their positions, or are not records.
    """
    steps: list[Batched | Mapped] = []
    part = dataset
    while not (part.element_spec == _RECORD and type(part).__name__ in _READING):
        kind = type(part).__name__
        if kind in _MAPS:
            steps.append(_mapped(part))
        elif kind in _BATCHES:
            steps.append(Batched(int(part._batch_size)))
        elif kind not in (*_UNCHANGED, *_ORDERING):
            raise UnsupportedError(f"{_readable(kind)} does not support indexed inputs")
        inputs = part._inputs()
        if len(inputs) != 1:
            raise UnsupportedError(f"{_readable(kind)} reads {len(inputs)} data sets")
        part = inputs[0]
    return Pipeline(tuple(_files(part)), tuple(reversed(steps)), dataset.options())


class Skipping(NamedTuple):
    """A pipeline without its first elements.

    Attributes:
        dataset: The pipeline.
        records: How many records it skips below its maps.
    """

    dataset: tf.data.Dataset
    records: int


def skipping(dataset: Any, elements: int) -> Skipping:
    """Returns a pipeline without its first elements, which it does not map.

    Raises:
        UnsupportedError: if that saves nothing, or would change later elements.
    """
    part, count, above = dataset, elements, []
    while isinstance(part, tf.data.Dataset) and type(part).__name__ in (
        *_MAPS,
        *_BATCHES,
        *_UNCHANGED,
    ):
        kind = type(part).__name__
        if kind in _BATCHES:
            count *= int(part._batch_size)
        if kind in _MAPS and _has_state(part._map_func.function):
            break
        above.append(part)
        (part,) = part._inputs()
    if not any(type(each).__name__ in _MAPS for each in above):
        raise UnsupportedError("it has no maps after the ops that set the order")
    result = part.skip(count)
    for each in reversed(above):
        result = _again(each, result)
    return Skipping(result.with_options(dataset.options()), count)


def has_state(dataset: tf.data.Dataset) -> bool:
    """Returns whether a pipeline calls Python, or ops whose results depend on earlier calls.

    TensorFlow itself finds out only when it saves a position, and only in parts already in use.
    """
    return any(_has_state(wrapper.function) for wrapper in dataset._functions()) or any(
        map(has_state, dataset._inputs())
    )


def _has_state(function: Any) -> bool:
    """Returns whether the results of a function may depend on how often it was called."""
    definition = function.graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    ops = {node.op for node in nodes} - {*_HARMLESS, *stateless_random.CALLS}
    known = [op_def_registry.get(op) for op in ops if "Dataset" not in op]
    return any(op.is_stateful for op in known if op)


def _again(part: Any, dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a map, batch or prefetch of a pipeline over another dataset."""
    kind = type(part).__name__
    if kind in _MAPS:
        call, whole = _mapped(part).call, type(part._map_func._input_structure) is not tuple
        unused = tf.zeros([2], tf.int64)

        @tf.autograph.experimental.do_not_convert
        def mapped(*elements: Any) -> Any:
            return call(elements[0] if whole else elements, unused)

        parallel = {}
        if kind == "_ParallelMapDataset":
            parallel["num_parallel_calls"] = int(part._num_parallel_calls)
        return dataset.map(mapped, **parallel)
    if kind in _BATCHES:
        return dataset.batch(int(part._batch_size), drop_remainder=bool(part._drop_remainder))
    return dataset.prefetch(int(part._buffer_size)) if kind == "_PrefetchDataset" else dataset


def _readable(kind: str) -> str:
    return kind.strip("_").removesuffix("V2").removesuffix("Dataset") or kind


def _mapped(part: Any) -> Mapped:
    wrapper = part._map_func
    given, returned = wrapper._input_structure, wrapper.output_structure
    try:
        drawing = stateless_random.seeded(wrapper.function)
    except stateless_random.UnsupportedError as error:
        raise UnsupportedError(str(error)) from error

    @tf.autograph.experimental.do_not_convert
    def call(element: Any, seed: tf.Tensor) -> Any:
        flat = structure.to_tensor_list(given, element)
        results = drawing(flat, seed) if drawing else _as_list(wrapper.function(*flat))
        return structure.from_compatible_tensor_list(returned, results)

    return Mapped(call, drawing is not None)


def _as_list(results: Any) -> list[tf.Tensor]:
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _files(part: tf.data.Dataset) -> list[str]:
    """Returns the files that the reading part of a pipeline reads, in unshuffled order."""
    reads = False
    while True:
        kind = type(part).__name__
        if kind not in _READING:
            raise UnsupportedError(
                f"its records come from {_readable(kind)}, not from TFRecord files"
            )
        reads |= kind == "TFRecordDatasetV2"
        if kind == "TFRecordDatasetV2":
            _check_compression(part._compression_type)
            if "_filenames" in vars(part) and isinstance(part._filenames, tf.data.Dataset):
                part = part._filenames
                continue
        for wrapper in part._functions():
            reads |= _reads_records(wrapper.function)
        if not (inputs := part._inputs()):
            break
        part = inputs[0]
    if type(part).__name__ != "_TensorSliceDataset" or not reads:
        raise UnsupportedError("its records do not come from a list of TFRecord files")
    names = part._tensors[0].numpy()
    return [name.decode() for name in names.tolist()]


def _check_compression(kind: Any) -> None:
    if kind is not None and tf.get_static_value(tf.convert_to_tensor(kind)) not in (b"", None):
        raise UnsupportedError("its files are compressed")


def _reads_records(function: Any) -> bool:
    """Returns whether a function opens TFRecord files, which must not be compressed."""
    definition = function.graph.as_graph_def()
    bodies = [definition.node, *(f.node_def for f in definition.library.function)]
    nodes = {node.name: node for body in bodies for node in body}
    readers = [node for node in nodes.values() if node.op.startswith("TFRecordDataset")]
    for node in nodes.values():
        if node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum:
            values = node.attr["value"].tensor.string_val
            if readers and any(value in (b"GZIP", b"ZLIB") for value in values):
                raise UnsupportedError("its files are compressed")
    return bool(readers)
