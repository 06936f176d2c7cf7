"""Recreates a Keras model from its configuration, here or in another process."""

import contextlib
import hashlib
import importlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from runner.core import user_code
from runner.errors import ConfigError
from runner.internals import keras as keras_internals
from runner.internals import keras3 as keras3_internals
from runner.models import keras3
from runner.models.compiled import mapped

_COMPILED = "compile_config"
_BUILT = ("build_config", "build_input_shape")
_PASSING = ("shared_object_id", "rng_type")  # depend on the process, not on the model
STRINGS = (
    "x has strings, but the model computes with them as with numbers: begin it with a "
    "TextVectorization or StringLookup layer, or give numbers"
)
_INSTEAD = (
    "give it get_config() and define its class in a module that can be imported, or pass a model "
    "of the same layers (runner.load_model(..., model=...))"
)


def library(model: Any, where: str = "model") -> Any:
    """The library of a model, `keras` or `tf_keras`.

    Raises:
        ConfigError: it is not a Keras model. `where` names it.
    """
    if keras3.is_keras3(model):
        import keras

        return keras
    if not isinstance(model, tf_keras.Model):
        raise ConfigError(f"{where}: expected a Keras model, got {type(model).__name__}")
    return tf_keras


def text(model: Any) -> str:
    """Serializes a model's layers and compile arguments as JSON, without weights.

    Raises:
        ConfigError: one of its layers has no configuration.
    """
    keras = library(model)
    try:
        config = keras.saving.serialize_keras_object(model)
        layers = {layer.name: layer for layer in keras_internals.layers(model)}
        _add_adapted(config["config"], layers)
        if config.get(_COMPILED):
            config[_COMPILED] = compile_config(model)
        return json.dumps({"library": keras.__name__, "model": config}, indent=1)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise ConfigError(_unable(model, error)) from error


def made(text: str, *, of: Any = None) -> Any:
    """Creates the model that `text` describes, not compiled, with new weights.

    Args:
        text: The result of the function `text`.
        of: The original model, if available. Its classes then need not be importable.

    Raises:
        ConfigError: one of its layers cannot be created in this process.
    """
    stored = json.loads(text)
    keras = _library(stored)
    config = {name: value for name, value in stored["model"].items() if name != _COMPILED}
    known = {**dict(_importable(config)), **user_code.of_script()}
    if of is not None:
        known |= {type(layer).__name__: type(layer) for layer in _layers(of)}
    try:
        return keras.saving.deserialize_keras_object(
            config, custom_objects=known, safe_mode=of is None
        )
    except (NotImplementedError, TypeError, ValueError) as error:
        raise ConfigError(_unable(of, error)) from error


def _importable(config: Any) -> Iterator[tuple[str, Any]]:
    """Yields the classes in a configuration that a module of the user's has, by their names."""
    if isinstance(config, list):
        for part in config:
            yield from _importable(part)
    if not isinstance(config, dict):
        return
    module, name = config.get("module"), config.get("class_name")
    if isinstance(module, str) and isinstance(name, str) and not _is_kerass(module):
        with contextlib.suppress(ImportError, AttributeError, ValueError):
            yield name, getattr(importlib.import_module(module), name)
    for part in config.values():
        yield from _importable(part)


def _is_kerass(module: str) -> bool:
    return module.partition(".")[0] in ("keras", "tf_keras", "builtins")


def record(text: str | None, model: Any, example: Any) -> str:
    """The content of model.json.

    Args:
        text: The result of `text`, or None if the model cannot be rebuilt from it.
        model: The model.
        example: The features of one example, [1, ...].
    """
    stored = json.loads(text) if text else {"library": library(model).__name__, "model": None}
    spec = tf.nest.map_structure(lambda part: [list(part.shape[1:]), part.dtype.name], example)
    return json.dumps({**stored, "x": spec}, indent=1)


def example(record: str) -> Any:
    """Features like those of one example, [1, ...], from the content of model.json, or None."""
    return _zeros(json.loads(record).get("x"))


def text_or_reason(model: Any) -> tuple[str | None, str]:
    """The result of `text`, or None and the reason why the model cannot be rebuilt from it."""
    try:
        return text(model), ""
    except ConfigError as error:
        return None, str(error)


def copied(model: Any, text: str, example: Callable[[], Any]) -> tuple[Any, str]:
    """A copy of a model with its weights, or None and the reason.

    Args:
        model: A built model of tf_keras or Keras 3.
        text: The result of the function `text`.
        example: Returns the features of one example.
    """
    try:
        new = made(text, of=model)
        if not is_built(new):
            build(new, example())
        copy_weights(model, new)
    except (ConfigError, ValueError, StopIteration) as error:
        return None, str(error)
    return new, ""


def has_model(record: str) -> bool:
    """Whether model.json has a model that can be rebuilt."""
    return json.loads(record)["model"] is not None


def compiled(text: str) -> dict[str, Any] | None:
    """The serialized arguments of `compile` in `text`, or None if the model was not compiled."""
    return json.loads(text)["model"].get(_COMPILED)


def compile_config(model: Any) -> dict[str, Any]:
    """The serialized arguments of `compile`, including losses' and metrics', or {} without."""
    if keras3.is_keras3(model):
        return keras3_internals.compile_config(model)
    return model.get_compile_config() or {}


def fingerprint(text: str) -> str:
    """A hash of the model in `text`. Names of layers, which Keras numbers, do not matter.

    It also does not matter whether the model was built.
    """
    stored = unbuilt(json.loads(text))
    stored.pop("x", None)
    names: dict[str, str] = {}
    for each in _values(stored["model"]["config"], "name"):
        names.setdefault(each, f"#{len(names)}")
    compile_config = stored["model"].get(_COMPILED) or {}
    compile_config.pop("optimizer", None)  # it is in the configuration
    for each in _values(compile_config, "name"):
        names.setdefault(each, re.sub(r"_\d+$", "", each))  # Keras numbers losses, too
    plain = json.dumps(_renamed(stored, names), sort_keys=True)
    return f"{stored['model']['class_name']}: {_digest(plain)}"


def identity(model: Any) -> str:
    """The fingerprint of a model, or for one without a configuration its class and weights."""
    stored, _ = text_or_reason(model)
    if stored is not None:
        return fingerprint(stored)
    weights = model.weights if model.built else ()
    shapes = [(list(weight.shape), str(weight.dtype)) for weight in weights]
    return f"{type(model).__name__}: {_digest(json.dumps(shapes))}"


def unbuilt(stored: Any) -> Any:
    """The content of `text`, without the parts that Keras adds once a model has its weights."""
    if isinstance(stored, list):
        return [unbuilt(part) for part in stored]
    if not isinstance(stored, dict):
        return stored
    parts = {key: unbuilt(part) for key, part in stored.items() if key not in _BUILT}
    if parts.get("class_name") == "Sequential" and isinstance(parts.get("config"), dict):
        layers = parts["config"].get("layers", [])
        if layers and layers[0].get("class_name") == "InputLayer":
            parts["config"]["layers"] = layers[1:]
    return parts


def policies(model: Any) -> set[str]:
    """The precisions of a model's layers: `float32`, `mixed_bfloat16`."""
    found = (getattr(layer, "dtype_policy", None) for layer in _layers(model))
    return {policy.name for policy in found if policy is not None}


def is_model(value: Any) -> bool:
    """Whether this is a model rather than a function that builds one."""
    return hasattr(value, "get_compile_config")


def has_call(model: Any) -> bool:
    """Whether a model can be called. One that overrides `train_step` may do without."""
    return type(model).call is not library(model).Model.call


def is_built(model: Any) -> bool:
    """Whether a model has its weights."""
    return bool(model.built and model.weights)


def build(model: Any, example: Any) -> None:
    """Calls a model, which creates its weights.

    A Sequential model without an Input takes its input's shape from that of its first batch. A
    second batch of another size shows it that batches may have any size.

    Args:
        model: A model of tf_keras or Keras 3.
        example: The features of one example, [1, ...].

    Raises:
        ConfigError: it cannot be called with them.
    """
    two = tf.nest.map_structure(_doubled, example)
    try:
        for batch in (example, two):
            model(batch)
    except Exception as error:
        shapes = tf.nest.map_structure(lambda part: list(part.shape), example)
        said = keras_internals.misfit(error) or user_code.summary(error)
        if "Cast string to" in str(error):
            said = STRINGS
        raise ConfigError(f"the model cannot be called with x of shape {shapes}: {said}") from error


def _doubled(part: Any) -> Any:
    if isinstance(part, tf.SparseTensor):
        return tf.sparse.concat(0, [part, part])
    return tf.concat([part, part], 0)


def copy_weights(source: Any, target: Any) -> None:
    """Gives `target` the weights of `source`, a model of the same layers.

    Raises:
        ValueError: their weights have other numbers or shapes.
    """
    for held, new in zip(_weights(source), _weights(target), strict=True):
        new.assign(held.numpy())


def optimizer(text: str, compile_config: dict[str, Any]) -> Any:
    """The optimizer in the compile arguments of `text`, or None if it cannot be created."""
    stored = compile_config.get("optimizer")
    try:
        return stored and _library(json.loads(text)).saving.deserialize_keras_object(stored)
    except (TypeError, ValueError):
        return None


def compile_as(model: Any, optimizer: Any, arguments: Any) -> None:
    """Compiles a model.

    Args:
        model: A model of tf_keras or Keras 3.
        optimizer: Of the same library, or a name. None: its default, `rmsprop`.
        arguments: The loss and metrics, a `compiled.Compiled`.
    """
    keras = library(model)

    def created(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        own = user_code.of_script()
        return keras.saving.deserialize_keras_object(value, custom_objects=own, safe_mode=False)

    given = {name: mapped(value, created) for name, value in arguments._asdict().items()}
    if hasattr(optimizer, "get_config"):
        optimizer = type(optimizer).from_config(optimizer.get_config())
    model.compile(optimizer=optimizer or "rmsprop", **given)


def compile_with(model: Any, changed: dict[str, Any]) -> None:
    """Compiles a model with another loss, metrics or optimizer, and keeps the other arguments.

    Args:
        model: A model of tf_keras or Keras 3. Without an optimizer, it stays without one.
        changed: Arguments of `compile`. If empty, the model stays unchanged.

    Raises:
        ConfigError: some of the model's compile arguments cannot be kept.
    """
    if not changed:
        return
    keras, stored = library(model), compile_config(model)
    kept = {"loss": getattr(model, "loss", None), "optimizer": getattr(model, "optimizer", None)}
    for name in ("metrics", "weighted_metrics", "loss_weights"):
        if name not in changed and stored.get(name):
            try:
                kept[name] = keras.saving.deserialize_keras_object(stored[name])
            except (TypeError, ValueError) as error:
                raise ConfigError(
                    f"runner.fit: the {name} that the model was compiled with cannot be kept: "
                    f"give all of its loss and metrics, or compile it with them ({error})"
                ) from error
    arguments = {**kept, **changed}
    optimizer = arguments.pop("optimizer")
    model.compile(optimizer=optimizer or "sgd", **arguments)
    if not optimizer:
        model.optimizer = None


def _zeros(spec: Any) -> Any:
    """Zeros, or empty strings, for the specifications `[shape, dtype]` in a structure."""
    if isinstance(spec, dict):
        return {name: _zeros(part) for name, part in spec.items()}
    if not isinstance(spec, list):
        return None
    if len(spec) == 2 and isinstance(spec[1], str):
        return tf.zeros([1, *spec[0]], spec[1])
    return [_zeros(part) for part in spec]


def _library(stored: dict[str, Any]) -> Any:
    if stored["library"] == tf_keras.__name__:
        return tf_keras
    import keras

    return keras


def _layers(model: Any) -> Iterator[Any]:
    yield model
    for layer in getattr(model, "layers", ()):
        yield from _layers(layer)


def _adapted(model: Any) -> list[Any]:
    """The normalization layers that have adapted to data, or can."""
    layers = keras_internals.layers(model)
    return [layer for layer in layers if getattr(layer, "adapt_mean", None) is not None]


def _add_adapted(config: Any, layers: dict[str, Any]) -> None:
    """Adds what layers have adapted to, statistics and vocabularies, to their configuration.

    Keras keeps statistics in weights, but computes with a constant that it derives from them when
    the layer is built or adapts. Weights that are copied or restored later would have no effect.
    Vocabularies are in tables, which are not weights.
    """
    for part in config.values() if isinstance(config, dict) else config:
        if isinstance(part, dict | list):
            _add_adapted(part, layers)
    if not isinstance(config, dict) or not isinstance(own := config.get("config"), dict):
        return
    layer: Any = layers.get(str(own.get("name")))
    if config.get("class_name") == "Normalization" and hasattr(layer, "adapt_mean"):
        if layer.adapt_mean is not None:
            own["mean"] = np.asarray(layer.adapt_mean).tolist()
            own["variance"] = np.asarray(layer.adapt_variance).tolist()
    elif "vocabulary" in own and own["vocabulary"] is None and hasattr(layer, "get_vocabulary"):
        own["vocabulary"] = layer.get_vocabulary(include_special_tokens=False)


def _weights(model: Any) -> list[Any]:
    """A model's weights, without the constants of adapted layers and without tables."""
    constant = {id(weight) for layer in _adapted(model) for weight in layer.weights}
    weights = (weight for weight in model.weights if hasattr(weight, "assign"))
    return [weight for weight in weights if id(weight) not in constant]


def _unable(model: Any, error: Exception) -> str:
    said = " ".join(str(error).split()).partition(". ")[0][:160]
    for layer in _layers(model) if model is not None else ():
        try:
            type(layer).from_config(layer.get_config())
        except Exception:
            if not hasattr(layer, "layers"):
                where = f"{user_code.place(type(layer))}: {type(layer).__name__}"
                return f"{where} cannot be rebuilt from its configuration: {_INSTEAD}"
    return f"the model cannot be rebuilt from its configuration ({said}): {_INSTEAD}"


def _values(config: Any, key: str) -> Iterator[str]:
    parts = config.values() if isinstance(config, dict) else config
    if isinstance(config, dict) and isinstance(config.get(key), str):
        yield config[key]
    if isinstance(config, dict | list):
        for part in parts:
            yield from _values(part, key)


def _renamed(config: Any, names: dict[str, str]) -> Any:
    if isinstance(config, dict):
        parts = {key: part for key, part in config.items() if key not in _PASSING}
        return {key: _renamed(part, names) for key, part in parts.items()}
    if isinstance(config, list):
        return [_renamed(part, names) for part in config]
    return names.get(config, config) if isinstance(config, str) else config


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
