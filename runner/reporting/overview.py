"""A model's parameters by layer, and the multiply-adds and FLOPs of its steps.

Rows are computed first and rendered last, as in CLU's parameter overview.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tf_keras
from rich.text import Text

from runner.core import text
from runner.internals import keras as keras_internals
from runner.reporting import table
from runner.reporting.flops import ops
from runner.reporting.flops.graph import multiply_adds

_SHOWN_ROWS = 40


@dataclasses.dataclass(frozen=True)
class ParameterRow:
    """The parameters that a layer owns itself, without those of its sublayers.

    Attributes:
        layer: Names from the model down, as in `backbone/conv1`.
        kind: The layer's class.
        shapes: One per variable.
        trainable: The number of parameters that gradients change.
        not_trainable: The number of other parameters: frozen weights, running statistics.
    """

    layer: str
    kind: str
    shapes: tuple[tuple[int, ...], ...]
    trainable: int
    not_trainable: int


@dataclasses.dataclass(frozen=True)
class Count:
    """A number of multiply-adds, or None with the reason why it is `unknown`."""

    multiply_adds: int | None = None
    unknown: str = ""

    @property
    def flops(self) -> int | None:
        """Floating-point operations: two for each multiply-add."""
        return None if self.multiply_adds is None else 2 * self.multiply_adds

    def __str__(self) -> str:
        if self.multiply_adds is None:
            return f"unknown, because {self.unknown}"
        adds, flops = text.short(self.multiply_adds), text.short(2 * self.multiply_adds)
        return f"{adds} multiply-adds, {flops} FLOPs"


@dataclasses.dataclass(frozen=True)
class Overview:
    """A model's parameters, the cost of one example's forward pass and that of a training step."""

    rows: Sequence[ParameterRow]
    forward: Count
    training_step: Count
    frozen: int = 0  # of the non-trainable parameters, how many are in frozen variable groups

    @property
    def trainable(self) -> int:
        """The number of parameters that gradients change."""
        return sum(row.trainable for row in self.rows)

    @property
    def not_trainable(self) -> int:
        """The number of other parameters."""
        return sum(row.not_trainable for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Returns the contents of overview.json, with a reason in place of an unknown figure."""
        forward, step = self.forward, self.training_step
        return {
            "parameters": self.trainable + self.not_trainable,
            "trainable_parameters": self.trainable,
            "not_trainable_parameters": self.not_trainable,
            "frozen_parameters": self.frozen,
            "forward_multiply_adds_per_example": _or_reason(forward.multiply_adds, forward),
            "forward_flops_per_example": _or_reason(forward.flops, forward),
            "training_step_multiply_adds": _or_reason(step.multiply_adds, step),
            "training_step_flops": _or_reason(step.flops, step),
            "layers": [dataclasses.asdict(row) for row in self.rows],
        }


def build(
    model: tf_keras.Model,
    *,
    forward: Count,
    training_step: Count,
    frozen: Sequence[tf.Variable] = (),
) -> Overview:
    """Returns the overview of a built model. The counts come from the functions below."""
    kept = sum(variable.shape.num_elements() for variable in frozen)
    return Overview(parameters(model), forward, training_step, kept)


def parameters(model: tf_keras.Model) -> list[ParameterRow]:
    """Returns a row per layer that owns variables. A shared variable belongs to its first layer.

    Raises:
        ValueError: the model has no variables yet, as it has not been built.
    """
    trainable = {id(variable) for variable in model.trainable_variables}
    return list(_rows(model, (), trainable, set()))


def forward(model_call: Callable[..., Any], batch_spec: Any, *others: Any) -> Count:
    """Counts the forward pass of one example.

    `model_call` is traced, not run. The model must already have its variables. Otherwise, tracing
    would create them.

    Args:
        model_call: Computes anything from a batch of features.
        batch_spec: The features' nested structure of `tf.TypeSpec`, as in a dataset's
            `element_spec`. The batch size, fixed or not, is replaced by one.
        others: Further arguments of `model_call`.
    """
    one_example = tf.nest.map_structure(_one_example, batch_spec)
    try:
        graph = tf.function(model_call).get_concrete_function(one_example, *others).graph
    # The model is user code and may raise any exception. The run continues without this figure.
    except Exception as error:
        return Count(unknown=_reason(error))
    return count(graph)


def count(graph: tf.Graph) -> Count:
    """Counts one call of a concrete function, given its graph: `runner.reporting.flops.graph`."""
    try:
        return Count(multiply_adds(graph))
    except ops.UncountableError as error:
        return Count(unknown=str(error))


def render(overview: Overview, *, width: float = math.inf) -> Text:
    """Formats a table of the layers, with at most about 40 lines, and the totals in words.

    Args:
        overview: The overview to render.
        width: The width of the terminal, in characters, that the table must fit into.
    """
    rows = _grouped(overview.rows)
    cells = [("layer", "kind", "shapes", "trainable", "not trainable")]
    cells += [
        (row.layer, row.kind, _shapes(row), f"{row.trainable:,}", f"{row.not_trainable:,}")
        for row in rows
    ]
    head, *lines = table.aligned(cells, left=3, width=width)
    if len(rows) > _SHOWN_ROWS:
        half = _SHOWN_ROWS // 2
        lines[half:-half] = [f"... {len(rows) - 2 * half} more rows in overview.json"]
    total = overview.trainable + overview.not_trainable
    frozen = f", {overview.frozen:,} of them frozen" if overview.frozen else ""
    lines += [
        f"parameters: {text.short(total)} ({overview.trainable:,} trainable, "
        f"{overview.not_trainable:,} not trainable{frozen})",
        f"forward pass of one example: {overview.forward}",
        f"training step: {overview.training_step}",
    ]
    return Text("\n").join([Text(head, style="bold"), *map(Text, lines)])


def _rows(
    layer: tf_keras.layers.Layer, path: tuple[str, ...], trainable: set[int], seen: set[int]
) -> Iterator[ParameterRow]:
    inside: list[ParameterRow] = []
    for child in keras_internals.sublayers(layer):
        inside += _rows(child, (*path, child.name), trainable, seen)
    own = [variable for variable in keras_internals.weights(layer) if id(variable) not in seen]
    seen |= {id(variable) for variable in own}
    if own:
        sizes = {id(variable): int(tf.size(variable)) for variable in own}
        in_training = sum(size for key, size in sizes.items() if key in trainable)
        yield ParameterRow(
            layer="/".join(path) or layer.name,
            kind=type(layer).__name__,
            shapes=tuple(tuple(variable.shape) for variable in own),
            trainable=in_training,
            not_trainable=sum(sizes.values()) - in_training,
        )
    yield from inside


def _grouped(rows: Sequence[ParameterRow]) -> list[ParameterRow]:
    """Combines the rows of inner layers if there are too many to print."""
    deepest = max((row.layer.count("/") for row in rows), default=0)
    for depth in range(deepest + 1, 0, -1):
        groups = _to_depth(rows, depth)
        if len(groups) <= _SHOWN_ROWS:
            break
    return groups


def _to_depth(rows: Sequence[ParameterRow], depth: int) -> list[ParameterRow]:
    groups = []
    for path, members in itertools.groupby(rows, lambda row: row.layer.split("/")[:depth]):
        first, *others = members
        if others:
            first = ParameterRow(
                layer="/".join(path),
                kind=f"{1 + len(others)} layers",
                shapes=(),
                trainable=sum(row.trainable for row in (first, *others)),
                not_trainable=sum(row.not_trainable for row in (first, *others)),
            )
        groups.append(first)
    return groups


def _shapes(row: ParameterRow) -> str:
    """Formats shapes such as `3x3x64x128, 2 of 128`, with equal shapes listed once."""
    words = ["x".join(map(str, shape)) or "scalar" for shape in row.shapes]
    equal = [(word, len(list(group))) for word, group in itertools.groupby(words)]
    return ", ".join(f"{number} of {word}" if number > 1 else word for word, number in equal)


def _or_reason(figure: int | None, count: Count) -> int | str:
    return str(count) if figure is None else figure


def _one_example(spec: tf.TypeSpec) -> tf.TypeSpec:
    """Sets the batch size to one, except in scalars and specs of other kinds."""
    if not isinstance(spec, tf.TensorSpec | tf.SparseTensorSpec | tf.RaggedTensorSpec):
        return spec
    if not spec.shape.rank:
        return spec
    shape = tf.TensorShape([1]).concatenate(spec.shape[1:])
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensorSpec(shape, spec.dtype, spec.ragged_rank, spec.row_splits_dtype)
    return type(spec)(shape, spec.dtype)


def _reason(error: Exception) -> str:
    """Returns one line with the innermost of the errors that AutoGraph and Keras nest."""
    name = type(error).__name__
    told = re.findall(rf"^\s*(?:\w+Error|{name}):(.*)$", str(error), flags=re.MULTILINE)
    line = told[-1] if told else next(iter(str(error).splitlines()), "")
    return line.strip() or name
