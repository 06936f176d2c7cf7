"""Counts the multiply-adds of a traced function, without running it or freezing its weights.

Only matrix products, convolutions and their gradients are counted, because they are nearly all of
the work. Element-wise operations, reductions, lookups, Fourier transforms and factorizations are
left out. A convolution counts every tap of its kernel at every position of its output, including
those over the padding, as published figures do.

Functions, branches and loops are followed in place. Operations that no result depends on are left
out, because TensorFlow prunes them before it runs the graph. Only the most expensive of several
branches is counted. A loop is counted with all its iterations, even if it may end early.
"""

import contextlib
import functools
import graphlib
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from runner.internals import tensorflow as tf_internals
from runner.reporting.flops import ops, trip_counts

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
_LOOPS = ("While", "StatelessWhile")

# Multiply-adds spent, and the wanted results by their index, in the graph of copies.
_Outcome = tuple[int, dict[int, tf.Tensor]]


def multiply_adds(graph: tf.Graph) -> int:
    """Returns the multiply-adds of one call of a concrete function, given its `graph`.

    Raises:
        UncountableError: a required shape or count is not fixed or not visible. The message names
            it.
    """
    with contextlib.suppress(ops.UncountableError):
        return _traced_multiply_adds(graph, range(len(graph.outputs)))
    with tf.Graph().as_default():
        arguments = [_stand_in(argument, argument.shape) for argument in graph.inputs]
        work, _ = _Expansion().call(graph, arguments, range(len(graph.outputs)))
    return work


def _traced_multiply_adds(graph: tf.Graph, wanted: Iterable[int]) -> int:
    """Counts the given outputs and the side effects by the shapes that tracing has found.

    A copy finds more shapes, but takes 0.3 ms per operation.

    Raises:
        UncountableError: there is a loop, or these shapes are not fixed.
    """
    operations, used = _needed(graph, [graph.outputs[index] for index in wanted])
    total = 0
    for op in operations:
        bodies = _functions(op)
        if not bodies:
            total += ops.multiply_adds(op)
        elif op.type in _CALLS + _BRANCHES:
            results = _indices(op.outputs, used)
            total += max(_traced_multiply_adds(body, results) for body in bodies)
        else:
            raise ops.UncountableError(f"'{op.name}' ({op.type}) may be a loop")
    return total


class _Expansion:
    """Copies a function, operation by operation, into the default graph, with all calls inlined.

    The copy never runs. It infers shapes again, because a function may be traced for any batch size
    and called with a fixed one, as within Keras's functional models. It also propagates integers
    from where they are made to where they are used, such as the number of iterations that the
    gradient of a loop takes from the loop.
    """

    def __init__(self) -> None:
        # The tensor that each iteration pushes to a list for the loop's gradient, by the list's
        # ref().
        self._listed: dict[Any, tf.Tensor] = {}

    def call(
        self, graph: tf.Graph, operands: Sequence[tf.Tensor], wanted: Iterable[int]
    ) -> _Outcome:
        """Copies one call of a function, for the given outputs and its side effects."""
        outputs = {index: graph.outputs[index] for index in wanted}
        operations, used = _needed(graph, outputs.values())
        copies = {arg.ref(): operand for arg, operand in zip(graph.inputs, operands, strict=True)}
        work = 0
        for op in operations:
            if op.type == "Placeholder" and op.outputs[0].ref() in copies:
                continue
            inputs = [copies[tensor.ref()] for tensor in op.inputs]
            spent, results = self._operation(op, inputs, _indices(op.outputs, used))
            work += spent
            copies |= {op.outputs[index].ref(): result for index, result in results.items()}
        return work, {index: copies[output.ref()] for index, output in outputs.items()}

    def _operation(
        self, op: tf.Operation, inputs: Sequence[tf.Tensor], wanted: set[int]
    ) -> _Outcome:
        bodies = _functions(op)
        if op.type in _LOOPS:
            return self._loop(op, inputs, wanted)
        if op.type in _CALLS:
            with tf.name_scope(op.name):
                return self.call(bodies[0], inputs, wanted)
        if op.type in _BRANCHES:
            ways = [self.call(body, inputs[1:], wanted) for body in bodies]
            results = {
                index: _chosen(inputs[0], [copies[index] for _, copies in ways]) for index in wanted
            }
            return max(work for work, _ in ways), results
        if bodies:
            return self._unfollowed(op, bodies)
        copy = _copy(op, inputs)
        results = dict(enumerate(copy.outputs))
        if op.type == "TensorListPopBack" and inputs[0].ref() in self._listed:
            results[1] = self._listed[inputs[0].ref()]
        return ops.multiply_adds(copy), results

    def _unfollowed(self, op: tf.Operation, bodies: Iterable[tf.Graph]) -> _Outcome:
        """Handles an operation that calls functions in another way, such as one of a data set."""
        for body in bodies:
            operands = [_stand_in(argument, argument.shape) for argument in body.inputs]
            work, _ = self.call(body, operands, range(len(body.outputs)))
            if work:
                raise ops.UncountableError(
                    f"how often '{op.name}' ({op.type}) calls its function is not known"
                )
        return 0, {index: _stand_in(t, t.shape) for index, t in enumerate(op.outputs)}

    def _loop(self, op: tf.Operation, inputs: Sequence[tf.Tensor], wanted: set[int]) -> _Outcome:
        condition, body = _functions(op)
        live = _live_variables(condition, body, wanted)
        try:
            variables, turn, after = self._turn(body, inputs, live, like=inputs)
        except ops.UncountableError:
            # Some shape changes between iterations. The shapes of the traced loop do not.
            variables, turn, after = self._turn(body, inputs, live, like=body.inputs)
        test, outcome = self.call(condition, variables, [0])
        counters = {}
        for index, tensor in after.items():
            if counter := trip_counts.counter(variables[index], inputs[index], tensor):
                counters[variables[index].ref()] = counter
        turns = trip_counts.turns(outcome[0], counters)
        if turns is None and turn + test > 0:
            raise ops.UncountableError(f"loop '{op.name}' has no fixed number of iterations")
        results = {}
        for index in wanted:
            counter = counters.get(variables[index].ref())
            if counter and turns is not None:
                final = counter.start + counter.step * turns
                results[index] = tf.constant(final, inputs[index].dtype)
            elif variables[index] is inputs[index]:
                results[index] = inputs[index]
            else:
                results[index] = self._last(inputs[index], after[index])
        return (turns or 0) * (turn + test) + test, results

    def _turn(
        self,
        body: tf.Graph,
        inputs: Sequence[tf.Tensor],
        live: set[int],
        *,
        like: Sequence[tf.Tensor],
    ) -> tuple[list[tf.Tensor], int, dict[int, tf.Tensor]]:
        """Copies one iteration of a loop, whose variables have the same shapes as `like`.

        Returns:
            The variables, the work of the iteration, and the new values of the `live` variables.

        Raises:
            UncountableError: the iteration cannot be counted, or changes the shapes of variables.
        """
        variables = list(inputs)
        for index, (before, after) in enumerate(zip(body.inputs, body.outputs, strict=True)):
            if trip_counts.unwrapped(after) is not before:
                variables[index] = _stand_in(inputs[index], like[index].shape)
                if inputs[index].ref() in self._listed:
                    self._listed[variables[index].ref()] = self._listed[inputs[index].ref()]
        work, results = self.call(body, variables, live)
        for index, result in results.items():
            shape = variables[index].shape
            if shape.most_specific_compatible_shape(result.shape) != shape:
                raise ops.UncountableError(f"the shape of '{result.op.name}' is not fixed")
        return variables, work, results

    def _last(self, before: tf.Tensor, after: tf.Tensor) -> tf.Tensor:
        """Returns the final value of a loop variable, given its values before and after."""
        result = _either(before, after)
        push = trip_counts.unwrapped(after).op
        if push.type == "TensorListPushBack":
            self._listed[result.ref()] = push.inputs[1]
        return result


def _functions(op: tf.Operation) -> list[tf.Graph]:
    """Returns the graphs of all functions that an operation may call, in attribute order."""
    names: list[str] = []
    for attribute in op.op_def.attr:
        if attribute.type == "func":
            names.append(op.get_attr(attribute.name).name)
        elif attribute.type == "list(func)":
            names += [function.name for function in op.get_attr(attribute.name)]
    return [tf_internals.function_graph(op.graph, name) for name in names if name]


def _needed(
    graph: tf.Graph, outputs: Iterable[tf.Tensor]
) -> tuple[Iterable[tf.Operation], set[Any]]:
    """Finds the dependencies of these outputs and of the graph's side effects.

    Returns:
        The operations, each after its inputs' operations, and `Tensor.ref()` of every tensor used.
    """
    used = {tensor.ref() for tensor in outputs}
    pending = [*graph.control_outputs, *(reference.deref().op for reference in used)]
    sources: dict[tf.Operation, list[tf.Operation]] = {}
    while pending:
        op = pending.pop()
        if op not in sources:
            sources[op] = [tensor.op for tensor in op.inputs]
            used |= {tensor.ref() for tensor in op.inputs}
            pending += [*op.control_inputs, *sources[op]]
    # Not in graph order: taking a loop's gradient gives the loop inputs that are newer than it.
    return graphlib.TopologicalSorter(sources).static_order(), used


def _live_variables(condition: tf.Graph, body: tf.Graph, results: Iterable[int]) -> set[int]:
    """Returns the loop variables on which these results, or the number of iterations, depend."""
    _, used = _needed(condition, condition.outputs)
    live = {*results, *_indices(condition.inputs, used)}
    while True:
        _, used = _needed(body, [body.outputs[index] for index in live])
        more = _indices(body.inputs, used)
        if more <= live:
            return live
        live |= more


def _indices(tensors: Iterable[tf.Tensor], used: set[Any]) -> set[int]:
    return {index for index, tensor in enumerate(tensors) if tensor.ref() in used}


def _copy(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> tf.Operation:
    """Copies an operation with other inputs, and infers its shapes from these."""
    attributes = op.node_def.attr.items()
    try:
        copy = tf.compat.v1.get_default_graph().create_op(
            op.type,
            inputs,
            [tensor.dtype for tensor in op.outputs],
            name=op.name,
            attrs={key: value for key, value in attributes if not key.startswith("_")},
            op_def=op.op_def,
        )
        # Shapes found by tracing are valid too. Only they include the shapes in resources.
        for new, old in zip(copy.outputs, op.outputs, strict=True):
            new.set_shape(old.shape)
    except ValueError as error:
        raise ops.UncountableError(str(error)) from error
    return copy


def _stand_in(tensor: tf.Tensor, shape: tf.TensorShape) -> tf.Tensor:
    return tf.compat.v1.placeholder(tensor.dtype, shape, name=tensor.op.name)


def _chosen(selector: tf.Tensor, ways: Sequence[tf.Tensor]) -> tf.Tensor:
    """Represents the result of branches. AutoGraph writes `a and b` as `b if a else False`."""
    if selector.dtype.is_bool and ways[0].dtype.is_bool and trip_counts.value(ways[1]) == 0:
        return tf.logical_and(selector, ways[0])
    return _either(*ways)


def _either(*tensors: tf.Tensor) -> tf.Tensor:
    """Represents any one of the tensors."""
    shapes = [tensor.shape for tensor in tensors]
    shape = functools.reduce(tf.TensorShape.most_specific_compatible_shape, shapes)
    return _stand_in(tensors[0], shape)
