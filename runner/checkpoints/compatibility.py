"""Compares a model's variables with a checkpoint's: missing, unexpected, differently shaped.

Like TensorFlow, this matches two object graphs by the names of their edges: a layer is
`layer_with_weights-3` of its model, regardless of its name. A variable's path is the shortest one.
"""

import collections
import dataclasses
import itertools
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from runner.checkpoints import checkpoint_files
from runner.errors import ConfigError
from runner.internals import checkpoint_keys
from runner.internals import tensorflow as tf_internals

_VALUE = checkpoint_keys.VALUE.rpartition("/")[2]
_COUNTER = "save_counter"  # the writer's counter, not state
_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class Report:
    """How the variables of a model and of a checkpoint match, with a line of text for each.

    Attributes:
        matched: The number of variables in both, with the same shape and type.
        missing: Variables in the model only.
        unexpected: Variables in the checkpoint only.
        different: Variables in both, with another shape or type.
    """

    matched: int
    missing: list[str]
    unexpected: list[str]
    different: list[str]

    def render(self, *, unexpected: bool = True) -> str:
        """The differences, at most ten of each kind. `unexpected` can be left out."""
        kinds = [
            ("missing (in the model, not in the checkpoint)", self.missing),
            ("unexpected (in the checkpoint, not in the model)", self.unexpected),
            ("differently shaped", self.different),
        ]
        if not unexpected:
            del kinds[1]
        lines: list[str] = []
        for title, names in kinds:
            if names:
                lines += [f"  {title}: {len(names)}", *(f"    {name}" for name in names[:_SHOWN])]
            if len(names) > _SHOWN:
                lines.append(f"    ... and {len(names) - _SHOWN} more")
        return "\n".join(lines)


def compare(root: tf.train.Checkpoint, path: Path) -> Report:
    """Describes how the variables and slots of `root` match the checkpoint at `path`."""
    saved = Saved(path)
    return report(saved, {"": root}, saved.match({0: root}), below=[0])


@dataclasses.dataclass(frozen=True)
class Pair:
    """A variable of the model, its tensor's key, and their difference ("" if they fit)."""

    variable: tf.Variable
    key: str
    difference: str


class Saved:
    """A checkpoint: its tensors and their object graph."""

    def __init__(self, path: Path) -> None:
        self.reader = checkpoint_files.open_reader(path)
        graph = tf_internals.object_graph(self.reader)
        if graph is None:
            raise ConfigError(f"{path} is a TensorFlow 1 checkpoint: it has no object graph")
        self._nodes = graph.nodes
        self._shapes = self.reader.get_variable_to_shape_map()
        self._types = self.reader.get_variable_to_dtype_map()

    def starts(self, roots: Mapping[str, Any]) -> dict[int, Any]:
        """The nodes of `roots`, by the names of the root's children. '' is the root itself."""
        children = {child.local_name: child.node_id for child in self._nodes[0].children}
        children[""] = 0
        return {children[name]: root for name, root in roots.items() if name in children}

    def match(self, starts: Mapping[int, Any]) -> dict[int, Any]:
        """The model's object for each node, found by following edges of the same name."""
        found = dict(starts)
        queue = collections.deque(starts)
        while queue:
            node = queue.popleft()
            children = tf.train.TrackableView.children(found[node])
            for child in self._nodes[node].children:
                if child.local_name in children and child.node_id not in found:
                    found[child.node_id] = children[child.local_name]
                    queue.append(child.node_id)
        for node, optimizer in list(found.items()):
            for slot in self._nodes[node].slot_variables:
                variable = found.get(slot.original_variable_node_id)
                value = _slot(optimizer, variable, slot.slot_name)
                if value is not None:
                    found[slot.slot_variable_node_id] = value
        return found

    def pairs(self, found: Mapping[int, Any]) -> Iterator[Pair]:
        """Yields the matched variables, each with its tensor."""
        for node, variable in found.items():
            for attribute in self._nodes[node].attributes:
                if isinstance(variable, tf.Variable) and attribute.name == _VALUE:
                    key = attribute.checkpoint_key
                    yield Pair(variable, key, self._difference(variable, key))

    def describe(self, starts: Iterable[int], *, without: Container[int] = ()) -> list[str]:
        """A line for each tensor of the nodes reachable from `starts`."""
        seen, queue = set(starts), collections.deque(starts)
        while queue:
            node = self._nodes[queue.popleft()]
            reached = [child.node_id for child in node.children if child.local_name != _COUNTER]
            reached += [slot.slot_variable_node_id for slot in node.slot_variables]
            queue.extend(new for new in dict.fromkeys(reached) if new not in seen)
            seen.update(reached)
        return [
            self._line(attribute.checkpoint_key, attribute.full_name)
            for node in sorted(seen)
            if node not in without
            for attribute in self._nodes[node].attributes
        ]

    def _line(self, key: str, name: str) -> str:
        return _named(tf_internals.readable_key(key), name) + self._kind(key)

    def _difference(self, variable: tf.Variable, key: str) -> str:
        same_type = variable.dtype == self._types[key]
        if same_type and variable.shape.is_compatible_with(self._shapes[key]):
            return ""
        name = _named(tf_internals.readable_key(key), variable.name)
        return f"{name}:{self._kind(key)} in the checkpoint,{_kind(variable)} in the model"

    def _kind(self, key: str) -> str:
        if key not in self._types:  # a lookup table has several tensors
            return ""
        return f" {self._types[key].name} {tf.TensorShape(self._shapes[key])}"


def report(
    saved: Saved, roots: Mapping[str, Any], found: Mapping[int, Any], *, below: Iterable[int]
) -> Report:
    """Describes how the variables of `roots` match the checkpoint's below the nodes `below`."""
    pairs = list(saved.pairs(found))
    known = {id(pair.variable) for pair in pairs}
    return Report(
        matched=sum(not pair.difference for pair in pairs),
        missing=[describe(path, each) for path, each in variables(roots) if id(each) not in known],
        unexpected=saved.describe(below, without=found),
        different=[pair.difference for pair in pairs if pair.difference],
    )


def variables(roots: Mapping[str, Any]) -> list[tuple[str, tf.Variable]]:
    """Every variable reachable from `roots`, with its path, then optimizers' slots."""
    objects = {id(root): (name, root) for name, root in roots.items()}
    queue = collections.deque(objects.values())
    while queue:
        path, parent = queue.popleft()
        for name, child in tf.train.TrackableView.children(parent).items():
            if id(child) not in objects and (path or name != _COUNTER):
                objects[id(child)] = (f"{path}/{name}".lstrip("/"), child)
                queue.append(objects[id(child)])
    found = [(path, each) for path, each in objects.values() if isinstance(each, tf.Variable)]
    return found + _slots(list(objects.values()), found)


def _slots(
    objects: list[tuple[str, Any]], variables: list[tuple[str, tf.Variable]]
) -> list[tuple[str, tf.Variable]]:
    slots: dict[int, tuple[str, tf.Variable]] = {}  # a loss scale also lists its optimizer's
    for path, optimizer in objects:
        names = optimizer.get_slot_names() if "get_slot_names" in dir(optimizer) else []
        for name, (place, variable) in itertools.product(names, variables):
            slot = _slot(optimizer, variable, name)
            if slot is not None:
                slots.setdefault(id(slot), (f"{path}'s {name} of {place}", slot))
    return list(slots.values())


def _slot(optimizer: Any, variable: Any, name: str) -> tf.Variable | None:
    """A legacy optimizer's slot for a variable, if there is one."""
    try:
        return optimizer.get_slot(variable, name)
    except (AttributeError, KeyError):
        return None


def describe(path: str, variable: tf.Variable) -> str:
    """A line for a variable of the model."""
    return _named(path, variable.name) + _kind(variable)


def _named(path: str, name: str) -> str:
    """A path, and the variable's own name if it adds information."""
    own = name.partition(":")[0]
    return path if own == "Variable" or path.endswith(own) else f"{path} ({own})"


def _kind(variable: tf.Variable) -> str:
    return f" {variable.dtype.name} {variable.shape}"
