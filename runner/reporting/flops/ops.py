"""Multiply-adds of single operations: matrix products, convolutions, and the gradients of both."""

import functools
import math
from collections.abc import Callable, Mapping

import tensorflow as tf


class UncountableError(Exception):
    """An operation's work cannot be determined from the graph. The message gives the reason."""


def multiply_adds(op: tf.Operation) -> int:
    """Returns the multiply-adds of one run of `op`, or 0 for other kinds of operations.

    Raises:
        UncountableError: a shape is not fixed, or the graph does not show the operation's work.
    """
    if op.type.startswith(_OUT_OF_SIGHT):
        raise UncountableError(f"'{op.name}' ({op.type}) does work that the graph does not show")
    rule = _RULES.get(op.type)
    return rule(op) if rule else 0


def _dims(tensor: tf.Tensor) -> list[int]:
    if not tensor.shape.is_fully_defined():
        raise UncountableError(f"the shape of '{tensor.op.name}' is not fixed: {tensor.shape}")
    return tensor.shape.as_list()


def _size(tensor: tf.Tensor) -> int:
    return math.prod(_dims(tensor))


def _matrix_product(op: tf.Operation, *, transposed: str) -> int:
    """Each element of the result is a sum over the columns of the left operand."""
    columns = _dims(op.inputs[0])[-2 if op.get_attr(transposed) else -1]
    return _size(op.outputs[0]) * columns


def _einsum(op: tf.Operation) -> int:
    """Counts one multiply-add per combination of all labels, or 0 for a single operand."""
    terms = op.get_attr("equation").decode().split("->")[0].split(",")
    if len(terms) == 1:
        return 0
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, op.inputs, strict=True):
        dims = _dims(operand)
        # Digits name the dimensions of an ellipsis, from the right because they broadcast.
        broadcast = range(len(dims) - len(term.replace("...", "")))
        labels = term.replace("...", "".join(str(digit) for digit in reversed(broadcast)))
        for label, size in zip(labels, dims, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    return math.prod(sizes.values())


# A convolution and its two gradients visit the same pairs of an input and an output, through the
# same taps. A kernel is (*window, inputs of a group, outputs). A depthwise kernel is (*window,
# inputs, multiplier). An output sums over all its dimensions except the last, or the last two.


def _convolution(op: tf.Operation, *, end: int = -1) -> int:
    return _size(op.outputs[0]) * math.prod(_dims(op.inputs[1])[:end])


def _input_gradient(op: tf.Operation, *, end: int = -1) -> int:
    return _size(op.inputs[2]) * math.prod(_dims(op.inputs[1])[:end])


def _kernel_gradient(op: tf.Operation, *, end: int = -1) -> int:
    return _size(op.inputs[2]) * math.prod(_dims(op.outputs[0])[:end])


_RULES: Mapping[str, Callable[[tf.Operation], int]] = {
    "MatMul": functools.partial(_matrix_product, transposed="transpose_a"),
    "SparseMatMul": functools.partial(_matrix_product, transposed="transpose_a"),
    "BatchMatMul": functools.partial(_matrix_product, transposed="adj_x"),
    "BatchMatMulV2": functools.partial(_matrix_product, transposed="adj_x"),
    "BatchMatMulV3": functools.partial(_matrix_product, transposed="adj_x"),
    "Einsum": _einsum,
    "Conv": _convolution,
    "Conv2D": _convolution,
    "Conv2DBackpropInput": _input_gradient,
    "Conv2DBackpropInputV2": _input_gradient,
    "Conv2DBackpropFilter": _kernel_gradient,
    "Conv2DBackpropFilterV2": _kernel_gradient,
    "Conv3D": _convolution,
    "Conv3DBackpropInputV2": _input_gradient,
    "Conv3DBackpropFilterV2": _kernel_gradient,
    "DepthwiseConv2dNative": functools.partial(_convolution, end=-2),
    "DepthwiseConv2dNativeBackpropInput": functools.partial(_input_gradient, end=-2),
    "DepthwiseConv2dNativeBackpropFilter": functools.partial(_kernel_gradient, end=-2),
}

# Prefixes of operations that are, or may be, products that the graph does not show fully.
_OUT_OF_SIGHT = (
    "BlockLSTM",
    "CudnnRNN",
    "EagerPyFunc",
    "Enter",  # a loop of TensorFlow 1
    "GRUBlockCell",
    "LSTMBlockCell",
    "PyFunc",
    "Quantized",
    "SparseMatrix",
    "SparseTensorDenseMatMul",
    "UniformQuantized",
    "XlaCallModule",
    "XlaConv",
    "XlaCustomCall",
    "XlaDot",
)
