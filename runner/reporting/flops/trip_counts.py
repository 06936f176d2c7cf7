"""Finds the number of iterations of a `while` loop from its counters, without running it."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Counter:
    """An integer that is `start` at first and grows by `step` per iteration, 0 if constant."""

    start: int
    step: int


def counter(variable: tf.Tensor, first: tf.Tensor, after: tf.Tensor) -> Counter | None:
    """Returns the counter that a loop's variable implements, or None.

    Args:
        variable: The input of the loop's body.
        first: The variable's value before the first iteration.
        after: The new value that the body returns for it.
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
    """Returns the maximum number of iterations, or None if it has no fixed bound.

    Args:
        condition: A boolean. The loop continues while it is true.
        counters: The counters among the loop's variables, by `Tensor.ref()`.
    """
    bounds = [_bound(comparison, counters) for comparison in _comparisons(condition)]
    return min((bound for bound in bounds if bound is not None), default=None)


def value(tensor: tf.Tensor) -> int | None:
    """Returns the value of an integer scalar if it is the same in every run, otherwise None."""
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
    """Returns the original of an identity copy, in the same graph."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def _comparisons(condition: tf.Tensor) -> Iterator[tf.Operation]:
    """Yields comparisons that must all hold for the condition to hold, as far as found."""
    op = unwrapped(condition).op
    if op.type == "LogicalAnd":
        for operand in op.inputs:
            yield from _comparisons(operand)
    elif op.type in ("Less", "LessEqual", "Greater", "GreaterEqual"):
        yield op


def _bound(comparison: tf.Operation, counters: Mapping[Any, Counter]) -> int | None:
    """Returns the number of iterations after which the comparison no longer holds."""
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
    """Returns the element of a fixed vector, such as a shape, that a `StridedSlice` picks."""
    vector, begin = (tf.get_static_value(operand) for operand in op.inputs[:2])
    return None if vector is None or begin is None or vector.ndim != 1 else int(vector[begin[0]])


_SIGNS = {"Add": 1, "AddV2": 1, "Sub": -1}

# On scalars. Sufficient for iteration counts computed from `tf.shape` and `tf.range`.
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
