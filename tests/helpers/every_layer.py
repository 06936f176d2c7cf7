"""Every layer of a Keras that holds state beside its weights, such as a seed or a counter."""

import inspect
import math

import tensorflow as tf
import tf_keras

SIZE = 4  # of the batches
SHAPES = ((6, 6, 3), (6, 3), (3,), (5, 6, 6, 3), (2, 6, 6, 6, 3))
"""Of one example; a layer gets the first that it takes."""

WIDTH = math.prod(SHAPES[-1])

BROKEN = {("tf_keras", "SpectralNormalization")}
"""Layers that this version of their library cannot call."""

NEEDS_MORE = {
    "AbstractRNNCell",  # a base class
    "DenseFeatures",  # feature columns
    "FlaxLayer",  # a network of another library, as the next and TorchModuleWrapper
    "GRUCell",  # all cells are called by RNN
    "HashedCrossing",  # strings or whole numbers, as all lookups
    "Hashing",
    "InputLayer",
    "IntegerLookup",
    "JaxLayer",
    "LSTMCell",
    "Layer",
    "MelSpectrogram",  # a long signal, as the next
    "STFTSpectrogram",
    "SimpleRNNCell",
    "StackedRNNCells",
    "StringLookup",
    "TFSMLayer",
    "TextVectorization",
    "TorchModuleWrapper",
    "Wrapper",
}
"""Layers that cannot be called with one array of numbers, or not alone."""


def _arguments(kind, keras):
    layers = keras.layers
    by_name = {
        "activation": "relu",
        "axes": -1,
        "bin_boundaries": (0.3, 0.6),
        "cell": lambda: layers.StackedRNNCells(
            [cell(3, dropout=0.3, recurrent_dropout=0.3) for cell in _cells(layers)]
        ),
        "dims": (2, 1),
        "dropout": 0.3,
        "equation": "abc,cd->abd",
        "factor": 0.5,
        "filters": 2,
        "function": tf.identity,
        "groups": 1,
        "head_dim": 2,
        "height": 3,
        "height_factor": 0.2,
        "input_dim": 8,
        "kernel_size": 2,
        "key_dim": 2,
        "layer": lambda: layers.Dense(3),
        "layers": lambda: [layers.Dropout(0.3)],
        "max_number": 2,
        "n": 2,
        "num_bins": None,
        "num_heads": 2,
        "num_key_value_heads": 2,
        "num_query_heads": 2,
        "num_tokens": 4,
        "output_dim": 3,
        "output_shape": (None, 3),
        "output_size": 2,
        "pool_size": 2,
        "rate": 0.3,
        "recurrent_dropout": 0.3,
        "scale": 0.5,
        "stateful": True,
        "stddev": 0.1,
        "target_shape": (-1,),
        "units": 3,
        "width": 3,
        "width_factor": 0.2,
    }
    special = {
        ("Bidirectional", "layer"): lambda: layers.LSTM(3, dropout=0.3, stateful=True),
        ("RandomPosterization", "factor"): 4,
        ("SpectralNormalization", "layer"): lambda: layers.Conv1D(2, 2),
        ("TimeDistributed", "layer"): lambda: layers.Dropout(0.3),
    }
    wanted = {"bin_boundaries", "dropout", "groups", "num_tokens", "recurrent_dropout", "stateful"}
    named = {}
    for parent in kind.__mro__:
        named |= inspect.signature(parent.__init__).parameters
    own = inspect.signature(kind.__init__).parameters
    required = {name for name, each in own.items() if each.default is each.empty}
    for name in named:
        value = special.get((kind.__name__, name), by_name.get(name))
        if name in required | wanted and value is not None:
            yield name, value() if callable(value) and name != "function" else value


def _cells(layers):
    return (layers.GRUCell, layers.LSTMCell, layers.SimpleRNNCell)


def holding_state(keras, kinds=None):
    """The class of each layer that holds state, the shape it takes, and how it is called.

    Args:
        keras: The library.
        kinds: The classes to look at; None: all.

    Raises:
        AssertionError: a layer of this version is not known to this module.
    """
    unknown = []
    exported = dict.fromkeys(filter(inspect.isclass, vars(keras.layers).values()))
    for kind in kinds or exported:
        name = kind.__name__
        excluded = name in NEEDS_MORE or (keras.__name__, name) in BROKEN
        if not issubclass(kind, keras.layers.Layer) or excluded:
            continue
        how = _how(kind, keras)
        if how is None:
            unknown.append(name)
        elif how[-1]:
            yield kind, how[0], how[1]
    assert not unknown, f"{', '.join(unknown)}: add arguments or shapes above, or to NEEDS_MORE"


def model(keras, layers):
    """A model whose output depends on `layers`, from `holding_state`, for batches of SIZE."""
    x = keras.Input(batch_shape=(SIZE, WIDTH))
    outputs = []
    for kind, shape, call in layers:
        part = keras.layers.Reshape(shape)(x[:, : math.prod(shape)])
        outputs.append(_mean(call(_create(kind, keras), part), keras))
    both = keras.layers.Activation("tanh")(keras.layers.Concatenate()(outputs))
    return keras.Model(x, keras.layers.Dense(1)(both))


CALLS = (
    lambda layer, x: layer(x),
    lambda layer, x: layer([x, x]),
    lambda layer, x: layer(x, x),
)


def _how(kind, keras):
    """The shape and the call that a layer takes, and whether it then holds state."""
    for shape in SHAPES:
        for call in CALLS:
            x = tf.random.stateless_uniform((SIZE, *shape), (0, 0))
            try:
                layer = _create(kind, keras)
                call(layer, x)
            except Exception:
                continue
            return shape, call, bool(state(layer))
    return None


def _mean(output, keras):
    """One number for each example."""
    reshape, mean = (tf.reshape, tf.reduce_mean) if keras is tf_keras else _ops(keras)
    return mean(reshape(output, (SIZE, -1)), axis=1, keepdims=True)


def _ops(keras):
    return keras.ops.reshape, keras.ops.mean


def _create(kind, keras):
    """A layer of a class, with all randomness that its arguments turn on."""
    return kind(**dict(_arguments(kind, keras)))


def state(layer):
    """The TensorFlow variables that a layer, or a model, holds beside its weights."""
    inner = list(layer._flatten_layers())
    states = tf.nest.flatten([getattr(each, "states", None) for each in inner])
    generators = [getattr(each, "_random_generator", None) for each in inner]
    generators = [getattr(each, "_generator", None) for each in generators]
    held = [*layer.variables, *(each for each in states if hasattr(each, "assign"))]
    held += [each.state for each in generators if isinstance(each, tf.random.Generator)]
    trained = {id(variable) for variable in layer.trainable_variables}
    held = {id(each): each for each in held if id(each) not in trained}.values()
    return [each if isinstance(each, tf.Variable) else each.value for each in held]
