"""Functions of a tf.data pipeline whose random ops draw from a seed instead of hidden state.

TensorFlow's random ops keep a counter inside their kernel, so the draws of an augmentation depend
on how many examples came before. This module replaces every such op, also inside conditions, loops
and calls, by its stateless counterpart. A seed is passed down to it as one more argument.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2, types_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import op_def_registry

_SEED = "runner_seed"
_NEXT = "runner_next_seed"
_names = itertools.count()

# For each stateful op, its counterpart and the position of the seed among the inputs.
_STATELESS = {
    "RandomUniform": ("StatelessRandomUniform", 1),
    "RandomUniformInt": ("StatelessRandomUniformInt", 1),
    "RandomStandardNormal": ("StatelessRandomNormal", 1),
    "TruncatedNormal": ("StatelessTruncatedNormal", 1),
    "ParameterizedTruncatedNormal": ("StatelessParameterizedTruncatedNormal", 1),
    "RandomGamma": ("StatelessRandomGammaV2", 1),
    "RandomPoissonV2": ("StatelessRandomPoisson", 1),
    "Multinomial": ("StatelessMultinomial", 2),
    "SampleDistortedBoundingBoxV2": ("StatelessSampleDistortedBoundingBox", 3),
}

# If a counterpart has other names for attributes: its name, and that of the op.
_RENAMED = {
    "RandomUniformInt": {"dtype": "Tout"},
    "ParameterizedTruncatedNormal": {"S": "T"},
    "RandomGamma": {"T": "S", "dtype": "T"},
    "RandomPoissonV2": {"T": "S", "Rtype": "R"},
}
_RANDOM = {*_STATELESS, "RandomShuffle"}

# The attributes of each op that name functions, and its form without state.
CALLS = {
    "PartitionedCall": (("f",), "PartitionedCall"),
    "StatefulPartitionedCall": (("f",), "PartitionedCall"),
    "If": (("then_branch", "else_branch"), "StatelessIf"),
    "StatelessIf": (("then_branch", "else_branch"), "StatelessIf"),
    "Case": (("branches",), "StatelessCase"),
    "StatelessCase": (("branches",), "StatelessCase"),
    "While": (("cond", "body"), "StatelessWhile"),
    "StatelessWhile": (("cond", "body"), "StatelessWhile"),
}


class UnsupportedError(ValueError):
    """A function whose random ops cannot be given a seed."""


def seeded(function: Any) -> Callable[[list[tf.Tensor], tf.Tensor], list[tf.Tensor]] | None:
    """Makes a function of a dataset draw from a seed. Returns None if it has no random ops.

    Args:
        function: The concrete function.

    Returns:
        A function from its flat arguments and a seed, [2] int64, to its flat results.

    Raises:
        UnsupportedError: if an op calls a function in a way that takes no further argument.
    """
    main = function.function_def
    library = {f.signature.name: f for f in function.graph.as_graph_def().library.function}
    library[main.signature.name] = main
    rewriting = _Rewriting(library)
    if not rewriting.is_random(main.signature.name):
        return None
    name = rewriting.rewritten(main.signature.name)
    graph = graph_pb2.GraphDef()
    graph.library.function.extend(rewriting.functions.values())
    graph.versions.CopyFrom(function.graph.as_graph_def().versions)
    call = node_def_pb2.NodeDef(name="call", op=rewriting.call_of(name))
    call.attr["f"].func.name = name
    signature = rewriting.functions[name].signature
    for number, argument in enumerate(signature.input_arg):
        place = graph.node.add(name=f"argument_{number}", op="Placeholder")
        place.attr["dtype"].type = argument.type
        call.input.append(place.name)
        call.attr["Tin"].list.type.append(argument.type)
    call.attr["Tout"].list.type.extend(argument.type for argument in signature.output_arg)
    graph.node.append(call)
    for made in set(rewriting.functions) - set(library):
        context.context().add_function_def(rewriting.functions[made])  # importing does not add it
    captured = list(function.captured_inputs)
    results = [f"call:{number}" for number in range(len(signature.output_arg))]

    def drawing(arguments: list[tf.Tensor], seed: tf.Tensor) -> list[tf.Tensor]:
        values = [*arguments, *captured, seed]
        given = {f"argument_{n}": tf.convert_to_tensor(value) for n, value in enumerate(values)}
        return tf.graph_util.import_graph_def(graph, input_map=given, return_elements=results)

    return drawing


class _Rewriting:
    """The functions of a library, rewritten with a seed as needed."""

    def __init__(self, library: dict[str, function_pb2.FunctionDef]) -> None:
        self._library = library
        self._random: dict[str, bool] = {}
        self._renamed: dict[tuple[str, bool], str] = {}
        self.functions = dict(library)

    def is_random(self, name: str) -> bool:
        """Returns whether a function, or one that it calls, draws random numbers."""
        if name not in self._random:
            self._random[name] = False  # for a function that calls itself
            self._random[name] = any(
                node.op in _RANDOM or any(map(self.is_random, _called(node)))
                for node in self._library[name].node_def
            )
        return self._random[name]

    def rewritten(self, name: str, *, returns: bool = False) -> str:
        """Returns the name of a function's form that takes a seed, and may return the next seed."""
        if (name, returns) in self._renamed:
            return self._renamed[name, returns]
        new = f"{name}_seeded_{next(_names)}"
        self._renamed[name, returns] = new
        made = function_pb2.FunctionDef()
        made.CopyFrom(self._library[name])
        made.signature.name = new
        made.signature.input_arg.add(name=_SEED, type=types_pb2.DT_INT64)
        made.attr.pop("_input_shapes", None)
        nodes = list(made.node_def)
        del made.node_def[:]
        salts = itertools.count(1)
        for node in nodes:
            made.node_def.extend(self._replaced(node, salts))
        if returns:
            made.node_def.extend(_salted(_NEXT, next(salts)))
            made.signature.output_arg.add(name=_NEXT, type=types_pb2.DT_INT64)
            made.ret[_NEXT] = f"{_NEXT}:z:0"
        made.signature.is_stateful = any(map(self._keeps_state, made.node_def))
        self.functions[new] = made
        return new

    def call_of(self, name: str) -> str:
        """Returns the op that calls a function."""
        stateful = self.functions[name].signature.is_stateful
        return "StatefulPartitionedCall" if stateful else "PartitionedCall"

    def _replaced(
        self, node: node_def_pb2.NodeDef, salts: Iterator[int]
    ) -> Iterator[node_def_pb2.NodeDef]:
        seed = f"{node.name}/{_SEED}"
        if node.op in _RANDOM:
            yield from _salted(seed, next(salts))
            yield from (_shuffled if node.op == "RandomShuffle" else _drawn)(node, f"{seed}:z:0")
            return
        if not any(map(self.is_random, _called(node))):
            yield node
            return
        if node.op not in CALLS:
            raise UnsupportedError(f"a random op inside {node.op} cannot be given a seed")
        yield from _salted(seed, next(salts))
        attributes, stateless = CALLS[node.op]
        for attribute in attributes:
            for function in _functions(node.attr[attribute]):
                function.name = self.rewritten(function.name, returns=attribute == "body")
        data = [name for name in node.input if not name.startswith("^")]
        control = [name for name in node.input if name.startswith("^")]
        del node.input[:]
        node.input.extend([*data, f"{seed}:z:0", *control])
        loops = "body" in attributes
        node.attr["T" if loops else "Tin"].list.type.append(types_pb2.DT_INT64)
        if loops and node.attr["output_shapes"].list.shape:
            node.attr["output_shapes"].list.shape.add().dim.add(size=2)
        if not any(self.functions[name].signature.is_stateful for name in _called(node)):
            node.op = stateless
        yield node

    def _keeps_state(self, node: node_def_pb2.NodeDef) -> bool:
        if node.op in CALLS:
            return node.op != CALLS[node.op][1] or any(map(self._keeps_state_in, _called(node)))
        definition = op_def_registry.get(node.op)
        return definition is not None and definition.is_stateful

    def _keeps_state_in(self, name: str) -> bool:
        return bool(self.functions[name].signature.is_stateful)


def _functions(attribute: Any) -> list[Any]:
    """Returns the functions that an attribute names."""
    if attribute.HasField("func"):
        return [attribute.func]
    return list(attribute.list.func) if attribute.HasField("list") else []


def _called(node: node_def_pb2.NodeDef) -> list[str]:
    return [f.name for attribute in node.attr.values() for f in _functions(attribute)]


def _salted(name: str, salt: int) -> list[node_def_pb2.NodeDef]:
    """Returns nodes for the seed of one op: the function's seed plus a constant."""
    constant = node_def_pb2.NodeDef(name=f"{name}/salt", op="Const")
    constant.attr["dtype"].type = types_pb2.DT_INT64
    values = [
        (salt * odd + 2**63) % 2**64 - 2**63 for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
    ]
    constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(values, tf.int64))
    total = node_def_pb2.NodeDef(name=name, op="AddV2")
    total.input.extend([_SEED, f"{constant.name}:output:0"])
    total.attr["T"].type = types_pb2.DT_INT64
    return [constant, total]


def _drawn(node: node_def_pb2.NodeDef, seed: str) -> list[node_def_pb2.NodeDef]:
    """Returns the stateless counterpart of a random op."""
    new, place = _STATELESS[node.op]
    data = [name for name in node.input if not name.startswith("^")]
    control = [name for name in node.input if name.startswith("^")]
    made = node_def_pb2.NodeDef(name=node.name, op=new)
    made.input.extend([*data[:place], seed, *data[place:], *control])
    known = {attribute.name for attribute in op_def_registry.get(new).attr}
    for name, value in node.attr.items():
        if name in known:
            made.attr[name].CopyFrom(value)
    if "Tseed" in known:
        made.attr["Tseed"].type = types_pb2.DT_INT64
    for new_name, name in _RENAMED.get(node.op, {}).items():
        made.attr[new_name].CopyFrom(node.attr[name])
    return [made]


def _shuffled(node: node_def_pb2.NodeDef, seed: str) -> list[node_def_pb2.NodeDef]:
    """Returns nodes that put a tensor's rows into the order of random numbers."""
    value = node.input[0]
    control = [name for name in node.input if name.startswith("^")]
    kind = node.attr["T"].type

    def add(name: str, op: str, inputs: list[str], **types: int) -> node_def_pb2.NodeDef:
        made = node_def_pb2.NodeDef(name=f"{node.name}/{name}", op=op)
        made.input.extend(inputs)
        for attribute, number in types.items():
            made.attr[attribute].type = number
        return made

    def constant(name: str, number: Any) -> node_def_pb2.NodeDef:
        made = add(name, "Const", [], dtype=types_pb2.DT_INT32)
        made.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(number, tf.int32))
        return made

    at = f"{node.name}/"
    int32, float32 = types_pb2.DT_INT32, types_pb2.DT_FLOAT
    order = add("order", "TopKV2", [f"{at}random:output:0", f"{at}count:output:0"], T=float32)
    order.attr["sorted"].b = True
    order.attr["Tk"].type = order.attr["index_type"].type = int32
    count = add("count", "Squeeze", [f"{at}rows:output:0"], T=int32)
    gathered = node_def_pb2.NodeDef(name=node.name, op="GatherV2")
    gathered.input.extend([value, f"{at}order:indices:0", f"{at}zero:output:0", *control])
    for attribute, number in {"Tparams": kind, "Tindices": int32, "Taxis": int32}.items():
        gathered.attr[attribute].type = number
    return [
        add("shape", "Shape", [value], T=kind, out_type=int32),
        constant("begin", [0]),
        constant("size", [1]),
        constant("zero", 0),
        add(
            "rows",
            "Slice",
            [f"{at}shape:output:0", f"{at}begin:output:0", f"{at}size:output:0"],
            T=int32,
            Index=int32,
        ),
        add(
            "random",
            "StatelessRandomUniform",
            [f"{at}rows:output:0", seed],
            dtype=float32,
            T=int32,
            Tseed=types_pb2.DT_INT64,
        ),
        count,
        order,
        gathered,
    ]
