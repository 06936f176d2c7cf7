"""The signatures of an exported model: its inputs and outputs by name."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from official.core import base_task

from runner.errors import ConfigError

MODEL = "model"
"""The signature with the model's own inputs and outputs."""
SERVING = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
"""The signature to serve: `MODEL`, or the signature that a task's `serving` adds."""

Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
"""Maps a model's inputs to its outputs, by name."""

_TEXT = re.compile(r"String|Regex|Unicode|Lookup|HashTable|Wordpiece|Tokeni|SentencePiece", re.I)


class ModelSignature(NamedTuple):
    """A model's own inputs and outputs.

    Attributes:
        inputs: The specification of each, by name, in the order of `tf.nest`, with any batch size.
        nested: The structure of the inputs in the model's call.
        outputs: The specification of each output, by name.
        nested_outputs: The structure of the outputs in the model's call.
        function: Computes it.
    """

    inputs: dict[str, tf.TensorSpec]
    nested: Any
    outputs: dict[str, tf.TensorSpec]
    nested_outputs: Any
    function: Any


class Servable:
    """The object to save: the functions of the signatures, and their dependencies.

    It hides the model itself from TensorFlow, which would also save it as a Keras model, and trace
    each of its layers several times.

    Args:
        task: May add a signature with its method `serving`.
        model: The model.
        own: Its signature.

    Attributes:
        root: The root object to save.
        signatures: The functions by name.
    """

    def __init__(self, task: base_task.Task, model: Any, own: ModelSignature) -> None:
        self.root = tf.Module()
        self.root.parts = _parts(model)
        self.root.served = _serving(task, model)
        self.signatures = {SERVING: own.function, MODEL: own.function}
        if self.has_own_serving:
            self.signatures |= self.root.served.get_inference_signatures({"serve": SERVING})

    @property
    def has_own_serving(self) -> bool:
        """Whether the task has added a signature, which includes its preprocessing."""
        return self.root.served is not None

    def inputs(self, signature: str) -> dict[str, Any]:
        """Returns the specification of each input of a signature, by name."""
        parameters = self.signatures[signature].function_type.parameters
        return {name: each.type_constraint for name, each in parameters.items()}

    def text_ops(self) -> list[str]:
        """Lists the ops of all signatures that only text needs, such as `StringSplitV2`."""
        found: set[str] = set()
        for function in self.signatures.values():
            graph = function.graph.as_graph_def()
            nodes = [graph.node, *(each.node_def for each in graph.library.function)]
            found.update(node.op for part in nodes for node in part)
        return sorted(op for op in found if _TEXT.search(op))


def _parts(model: Any) -> list[Any]:
    """Returns the variables and lookup tables of a model, or of the Keras 3 model in it."""
    kinds = (tf.Variable, tf.saved_model.experimental.TrackableResource)
    roots = [model, *([model.network] if hasattr(model, "network") else [])]
    tracked = [part for root in roots for part in tf.train.TrackableView(root).descendants()]
    variables = [v if isinstance(v, tf.Variable) else v.value for v in model.variables]
    items = getattr(model, "checkpoint_items", {})  # seeds and states, which layers may change
    variables += tf.nest.flatten(list(items.values()))
    both = [*variables, *(part for part in tracked if isinstance(part, kinds))]
    return list({id(part): part for part in both}.values())


def of_model(model: Any, features: Any) -> ModelSignature:
    """Returns a model's signature, from the declared inputs of a functional or Sequential model.

    Args:
        model: A Keras model, built.
        features: The specification of a batch that the task evaluates, for other models.

    Raises:
        ConfigError: it takes ragged or sparse tensors.
    """
    declared, nested = _declared(model)
    nested = nested if declared else features
    names = _names(nested, [each.name for each in declared], "inputs")
    specs = {
        name: _any_batch(_dense(part, model), name, is_declared=bool(declared))
        for name, part in zip(names, tf.nest.flatten(nested), strict=True)
    }
    traced: list[Any] = []

    def call(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        given = tf.nest.pack_sequence_as(nested, [inputs[name] for name in names])
        outputs = model(given, training=False)
        traced.append(outputs)
        return dict(zip(_output_names(model, outputs), tf.nest.flatten(outputs), strict=True))

    function = tf.function(call).get_concrete_function(**specs)
    outputs = {
        name: tf.TensorSpec(each.shape, each.dtype, name)
        for name, each in zip(
            _output_names(model, traced[-1]), tf.nest.flatten(traced[-1]), strict=True
        )
    }
    return ModelSignature(specs, nested, outputs, traced[-1], function)


def _declared(model: Any) -> tuple[Sequence[Any], Any]:
    """Returns the inputs that a model declares, and their structure, or () and None."""
    if inputs := getattr(model, "inputs", None):
        return inputs, model.input
    network: Any = getattr(model, "network", None)  # a model of Keras 3, or one with its own steps
    try:
        nested = network.input if getattr(network, "inputs", None) else None
    except (AttributeError, ValueError):  # a subclass
        nested = None
    if nested is None:
        return (), None

    def spec(part: Any) -> tf.TensorSpec:
        return tf.TensorSpec(part.shape, part.dtype, part.name)

    specs = tf.nest.map_structure(spec, nested)
    return tf.nest.flatten(specs), specs


def named(inputs: Any, own: ModelSignature) -> dict[str, tf.Tensor]:
    """Returns a model's inputs by the names of its signature, in its types and ranks."""
    if isinstance(inputs, Mapping):
        nested = own.nested
        names = nested if isinstance(nested, Mapping) else [x.name for x in tf.nest.flatten(nested)]
        if all(name in inputs for name in names):  # as Keras does, which ignores others
            chosen = {name: inputs[name] for name in names}
            inputs = chosen if isinstance(nested, Mapping) else list(chosen.values())
    flat = tf.nest.flatten(inputs)
    return {
        name: _fitted(tensor, spec)
        for (name, spec), tensor in zip(own.inputs.items(), flat, strict=True)
    }


def _fitted(tensor: Any, spec: tf.TensorSpec) -> tf.Tensor:
    """Casts a tensor and adds or drops a last axis of one, as a functional model does."""
    tensor = tf.cast(tensor, spec.dtype)
    more = (tensor.shape.rank or 0) - (spec.shape.rank or 0)
    if more == 1 and tensor.shape[-1] == 1:
        return tf.squeeze(tensor, -1)
    return tensor[..., tf.newaxis] if more == -1 and spec.shape[-1] == 1 else tensor


def _serving(task: base_task.Task, model: Any) -> Any:
    make = getattr(task, "serving", None)
    return make(model) if make else None


@tf.autograph.experimental.do_not_convert
def _output_names(model: Any, outputs: Any) -> list[str]:
    known = [str(name) for name in getattr(model, "output_names", None) or ()]
    return _names(outputs, known, "outputs")


def _names(nested: Any, known: Sequence[str], otherwise: str) -> list[str]:
    """Returns a name for each tensor of a structure: its key, the layer's name, or a number."""
    flat = tf.nest.flatten(nested)
    if isinstance(nested, Mapping) and len(flat) == len(nested):
        names = sorted(nested)
    elif len(known) == len(flat):
        names = list(known)
    else:
        names = [otherwise] if len(flat) == 1 else [f"{otherwise}_{n}" for n in range(len(flat))]
    return [re.sub(r"\W", "_", str(name)) for name in names]


def _dense(part: Any, model: Any) -> Any:
    kind = getattr(part, "type_spec", part)
    if isinstance(kind, tf.TypeSpec) and not isinstance(kind, tf.TensorSpec):
        raise ConfigError(
            f"{type(model).__name__} takes a {kind.value_type.__name__}, which a signature cannot: "
            "give the task a method `serving` (docs/guides/exporting.md)"
        )
    return part


def _any_batch(part: Any, name: str, *, is_declared: bool) -> tf.TensorSpec:
    """Returns a specification with the declared batch size, or with any batch size."""
    first, *rest = tuple(part.shape)
    return tf.TensorSpec([first if is_declared else None, *rest], tf.as_dtype(part.dtype), name)
