"""Writes a training checkpoint's averaged weights, or the mean of several, as a checkpoint.

A model restored from it by any means scores as in the run's evaluations, which use the averages.
It has no optimizer, so training cannot resume from it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from runner.checkpoints import checkpoint_files, extra_state, integrity
from runner.core import files
from runner.errors import ConfigError
from runner.internals import tensorflow as tf_internals

_SLOT = "average"  # the name in Model Garden's ExponentialMovingAverage
_OF_TRAINING = ("optimizer", *extra_state.NAMES)


def write(source: Path, target: Path) -> None:
    """Writes the averages in the checkpoint `source` to `target`, as the model's weights.

    Weights without an average are copied.

    Raises:
        OSError, tensorflow.errors.OpError: reading `source` or writing `target` failed.
    """
    tensors, graph = _evaluated(source)
    in_place(target, lambda path: tf_internals.write_tensors(tensors, graph, path))


def mean(sources: Sequence[Path], target: Path) -> None:
    """Writes the mean of the weights that several checkpoints of a run are evaluated with.

    The mean is computed in double precision. Values that are not floats come from the last
    checkpoint.

    Raises:
        ConfigError: one of them has other weights than the last.
        OSError, tensorflow.errors.OpError: reading or writing failed.
    """
    tensors, graph = _evaluated(sources[-1])
    floats = {name: each.dtype for name, each in tensors.items() if each.dtype.is_floating}
    totals: dict[str, Any] = dict.fromkeys(floats, 0.0)
    for source in sources:
        found, _ = _evaluated(source)
        for name in floats:
            if name not in found or found[name].shape != tensors[name].shape:
                raise ConfigError(f"{source} and {sources[-1]} have different weights")
            totals[name] = totals[name] + tf.cast(found[name], tf.float64)
    means = {name: tf.cast(each / len(sources), floats[name]) for name, each in totals.items()}
    written = {**tensors, **means}
    in_place(target, lambda path: tf_internals.write_tensors(written, graph, path))


def in_place(target: Path, write: Callable[[str], object]) -> None:
    """Calls `write` with a path in a directory that marks an unfinished save, then moves it."""
    beside = target.with_name(target.name + tf_internals.UNFINISHED) / target.name
    files.make_folder(beside.parent)
    write(str(beside))
    checkpoint_files.remove(target)
    checkpoint_files.move(beside, target)
    checkpoint_files.flush(str(target))
    beside.parent.rmdir()


def _evaluated(source: Path) -> tuple[dict[str, tf.Tensor], Any]:
    """The values that evaluations of a checkpoint use, by key, and the reduced object graph."""
    reader = checkpoint_files.open_reader(source)
    graph: Any = tf_internals.object_graph(reader)
    averages = dict(_averages(graph))
    kept = _reduce(graph)
    tensors = {}
    types = reader.get_variable_to_dtype_map()
    for node in kept:
        for attribute in graph.nodes[node].attributes:
            key = attribute.checkpoint_key
            for name in _names(key, types):
                value = reader.get_tensor(averages.get(node, name))
                tensors[name] = tf.cast(value, types[name])
    return tensors, graph


def stand_alone(path: Path) -> bool:
    """Whether the checkpoint at `path` can be read, and holds weights without averages."""
    try:
        names = checkpoint_files.open_reader(path).get_variable_to_dtype_map()
    except integrity.READ_ERRORS:
        return False
    return not any(tf_internals.is_slot(name, _SLOT) for name in names)


def _averages(graph: Any) -> Iterator[tuple[int, str]]:
    """The node of each variable that has an average, and the average's key."""
    for node in graph.nodes:
        for slot in node.slot_variables:
            if slot.slot_name == _SLOT:
                (attribute,) = graph.nodes[slot.slot_variable_node_id].attributes
                yield slot.original_variable_node_id, attribute.checkpoint_key


def _reduce(graph: Any) -> set[int]:
    """Removes the parts that only training needs. Returns the remaining nodes."""
    root = graph.nodes[0]
    children = [child for child in root.children if child.local_name not in _OF_TRAINING]
    del root.children[:]
    root.children.extend(children)
    left, queue = {0}, [0]
    while queue:
        node = graph.nodes[queue.pop()]
        del node.slot_variables[:]
        new = {child.node_id for child in node.children} - left
        left |= new
        queue.extend(new)
    for number, node in enumerate(graph.nodes):
        if number not in left:
            node.Clear()
    return left


def _names(key: str, types: Mapping[str, tf.DType]) -> Iterable[str]:
    """The tensors of one attribute. A lookup table has several."""
    return [key] if key in types else [name for name in types if name.startswith(f"{key}-")]
