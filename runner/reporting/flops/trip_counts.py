"""How often a `while` loop in a graph turns, read from its counters without running it."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Counter:
    """An integer that is `start` before the first turn and grows by `step` in each; 0 for fixed."""

    start: int
    step: int


def counter(variable: tf.Tensor, first: tf.Tensor, after: tf.Tensor) -> Counter | None:
    """The counter that a loop's variable is, or None.

    Args:
        variable: what the loop's body takes.
        first: the variable's value before the first turn.
        after: what the body returns in its place.
    """
    op = unwrapped(after).op
    if op.type not in _SIGNS:
        return None
    left, right = (unwrapped(operand) for operand in op.inputs)
    if right is variable and op.type != "Sub":
        left, right = right, left
    start, step = value(first), value(right)
    if left is not variable or start is None or step is None:
        return None
    return Counter(start, _SIGNS[op.type] * step)


def turns(condition: tf.Tensor, counters: Mapping[Any, Counter]) -> int | None:
    """The largest possible number of turns, or None where nothing fixed bounds it.

    Args:
        condition: a boolean; the loop goes on while it holds.
        counters: the counters among the loop's variables, by `Tensor.ref()`.
    """
    bounds = [_bound(comparison, counters) for comparison in _comparisons(condition)]
    return min((bound for bound in bounds if bound is not None), default=None)


def value(tensor: tf.Tensor) -> int | None:
    """The value of a scalar of integers if it is the same in every run, else None."""
    tensor = unwrapped(tensor)
    if tensor.shape.rank != 0 or not (tensor.dtype.is_integer or tensor.dtype.is_bool):
        return None
    fixed = tf.get_static_value(tensor)
    if fixed is not None:
        return int(fixed)
    if tensor.op.type == "StridedSlice":
        return _element(tensor.op)
    if tensor.op.type in _ARITHMETIC:
        operands = [value(operand) for operand in tensor.op.inputs]
        return None if None in operands else int(_ARITHMETIC[tensor.op.type](*operands))
    return None


def unwrapped(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor of which this one is a mere copy, in the same graph."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _comparisons(condition: tf.Tensor) -> Iterator[tf.Operation]:
    """Comparisons that must all hold for the condition to hold, as far as it is built of such."""
    op = unwrapped(condition).op
    if op.type == "LogicalAnd":
        for operand in op.inputs:
            yield from _comparisons(operand)
    elif op.type in ("Less", "LessEqual", "Greater", "GreaterEqual"):
        yield op


def _bound(comparison: tf.Operation, counters: Mapping[Any, Counter]) -> int | None:
    """The turns after which the comparison has ceased to hold."""
    lower, upper = (_side(operand, counters) for operand in comparison.inputs)
    if comparison.type.startswith("Greater"):
        lower, upper = upper, lower
    if lower is None or upper is None or lower.step <= upper.step:
        return None
    gap = upper.start - lower.start + comparison.type.endswith("Equal")
    return max(0, math.ceil(gap / (lower.step - upper.step)))


def _side(tensor: tf.Tensor, counters: Mapping[Any, Counter]) -> Counter | None:
    tensor = unwrapped(tensor)
    if tensor.ref() in counters:
        return counters[tensor.ref()]
    fixed = value(tensor)
    return None if fixed is None else Counter(fixed, 0)


def _element(op: tf.Operation) -> int | None:
    """The element of a fixed vector, a shape for example, that a `StridedSlice` picks."""
    vector, begin = (tf.get_static_value(operand) for operand in op.inputs[:2])
    return None if vector is None or begin is None or vector.ndim != 1 else int(vector[begin[0]])


_SIGNS = {"Add": 1, "AddV2": 1, "Sub": -1}

# On scalars: enough for a number of turns computed from `tf.shape` and `tf.range`.
_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "Add": np.add,
    "AddV2": np.add,
    "Cast": int,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Mul": np.multiply,
    "NotEqual": np.not_equal,
    "Sub": np.subtract,
}
