"""The model that a task trains, and its loss and metrics."""

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
import tf_keras

from runner.configuration import functions
from runner.configuration.functions import FunctionConfig
from runner.core import console, files, layout, user_code
from runner.errors import ConfigError
from runner.internals import keras as keras_internals
from runner.internals import keras3 as keras3_internals
from runner.models import compiled, copies, keras3, own_steps, sources
from runner.models.compiled import Compiled

Named: TypeAlias = str | FunctionConfig
"""Keras's name of a loss or metric, or a function or class, perhaps with arguments."""


class Origin(NamedTuple):
    """The sources of a model. The first one that is available is used.

    Attributes:
        given: A model in memory, which is copied, or a function that builds one.
        named: A function that gin binds.
        folder: The run's directory, where `runner.fit` stores the model's layers.
        example: The features of one example, for a model that has no weights before its first call.
        lasting: Whether to store the layers of a model in memory in the run's directory.
        has_data: Whether there are data for `example`.
    """

    given: Any
    named: FunctionConfig
    folder: Path
    example: Callable[[], Any]
    lasting: bool = True
    has_data: bool = True

    def model(self) -> Any:
        """A model of tf_keras or Keras 3 with its weights, which no other object uses.

        Raises:
            ConfigError: there is none, or it cannot be copied.
        """
        if copies.is_model(self.given):
            return self._copied()
        if self.given is not None or self.named.name:
            with keras3.in_precision():
                model = self._called()
            where = sources.place(self.named) if self.named.name else user_code.place(self.given)
            copies.library(model, where)
        elif (text := self._stored()) is not None:
            model = copies.made(text)
            if own_steps.has_own_steps(model):  # they use its compiled loss and metrics
                _compile(model, None, self.compiled(model))
        else:
            raise ConfigError(
                "the run does not know how to build its model: pass model=, a model of the same "
                "layers or the function that builds it, to runner.load_model, or bind "
                "SupervisedConfig.model to that function"
            )
        self._build(model)
        return model

    def compiled(self, model: Any) -> Compiled:
        """The compile arguments of `model`, which the method above returned."""
        found = compiled.of(self.given if copies.is_model(self.given) else model)
        if found is None and self.given is None and (text := self._stored()):
            held = copies.compiled(text) or {}
            return Compiled(*(held.get(name) for name in Compiled._fields))
        return found or Compiled()

    def with_weights(self, trained: tf_keras.Model, found: Compiled, optimizer: Any) -> Any:
        """A new model with the weights of a trained one, compiled.

        Args:
            trained: From `trainable`.
            found: The loss and metrics, also from the configuration.
            optimizer: The compiled optimizer. None: the one in model.json.
        """
        source = getattr(trained, "network", trained)
        model = self.model()
        if model is not source:
            copies.copy_weights(source, model)
        if model is self.given:
            return model
        text = self._stored()
        if optimizer is None and text and (held := copies.compiled(text)):
            optimizer = copies.optimizer(text, held)
        _compile(model, optimizer, found)
        return model

    def _called(self) -> Any:
        """Calls the function. Its layers' names do not depend on what was built before."""

        def call() -> Any:
            return self.given() if self.given else sources.called(self.named, "model")

        try:
            with keras_internals.names_from_the_start():
                return call()
        except ValueError as error:
            if "unique" not in str(error):
                raise
        return call()  # it uses layers that were created before, whose names are taken

    def _copied(self) -> Any:
        """A copy of the given model, or the model itself if it cannot be copied.

        A model that overrides steps of training is never copied, because its `compile` may have
        further arguments.
        """
        given = self.given
        self._build(given)
        wanted = tf_keras.mixed_precision.global_policy().name
        if wanted != "float32" and wanted not in copies.policies(given):
            raise ConfigError(
                "RuntimeConfig.mixed_precision_dtype has no effect on a model that is built "
                f"already: set the policy {wanted!r} before building it"
            )
        text, why = copies.text_or_reason(given)
        model = None
        if text and not compiled.overridden(given):
            model, why = copies.copied(given, text, self.example)
        if self.lasting:
            record = copies.record(text, given, self.example())
            files.write_text(self.folder / layout.MODEL, record)
        if model is not None:
            return model
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ConfigError(
                f"{user_code.place(type(given))}: {type(given).__name__} cannot be copied to "
                "several replicas: pass runner.fit the function that builds the model"
                + (f" ({why})" if why else "")
            )
        if not keras3.is_keras3(given):
            keras_internals.use_generators(given)
        return given

    def _build(self, model: Any) -> None:
        if not copies.is_built(model) and copies.has_call(model):
            record = self._record()
            known = None if self.has_data or record is None else copies.example(record)
            copies.build(model, self.example() if known is None else known)

    def _stored(self) -> str | None:
        """The model in model.json, or None if there is none that can be rebuilt."""
        record = self._record()
        return record if record and copies.has_model(record) else None

    def _record(self) -> str | None:
        path = self.folder / layout.MODEL
        return path.read_text(encoding="utf-8") if path.is_file() else None


def _compile(model: Any, optimizer: Any, found: Compiled) -> None:
    """Compiles a model, or prints why it cannot be."""
    try:
        copies.compile_as(model, optimizer, found)
    except (TypeError, ValueError) as error:
        said = user_code.summary(error).partition("\n")[0]
        console.say(f"the model is not compiled, because its loss or metrics are unknown: {said}")


def configured(found: Compiled, loss: Named, metrics: Sequence[Named]) -> Compiled:
    """Replaces the compiled loss and metrics with those that a configuration names."""
    if loss:
        found = found._replace(loss=_named(loss, "loss"), loss_weights=None)
    if metrics:
        made = [_named(each, "metrics") for each in metrics]
        found = found._replace(metrics=made, weighted_metrics=None)
    return found


def trainable(model: Any) -> tf_keras.Model:
    """The model in the form that Model Garden's steps need: of tf_keras, without an optimizer.

    A checkpoint of the model would also hold its optimizer.
    """
    if keras3.is_keras3(model):
        return keras3.Network(model)
    keras_internals.name_weights(model)
    if model.optimizer is not None:
        model.optimizer = None
    if compiled.overridden(model):
        return own_steps.Network(model)
    model.compiled_loss = model.compiled_metrics = None
    return model


@contextlib.contextmanager
def lent(model: Any) -> Iterator[None]:
    """A context in which a run may train this model itself. It stays compiled as it was."""
    names = ("optimizer", "compiled_loss", "compiled_metrics")
    before = {name: getattr(model, name) for name in names if hasattr(model, name)}
    try:
        yield
    finally:
        if copies.is_model(model) and not keras3.is_keras3(model):
            for name, value in before.items():
                setattr(model, name, value)


def _named(given: Named, field: str) -> Any:
    """Keras's name unchanged, or a function, or a serialized object of a class."""
    if isinstance(given, str):
        if "." not in given:
            return given
        given = FunctionConfig(name=given)
    elif not isinstance(given, FunctionConfig):  # Model Garden converts it in a union of types
        given = FunctionConfig(name=given.name, arguments=given.arguments)
    try:
        found = functions.load(given)
        if not inspect.isclass(found.func):
            return functools.update_wrapper(found, found.func) if found.keywords else found.func
        of_keras3 = any(kind.__module__.startswith("keras.") for kind in found.func.__mro__)
        made = found()
        library = importlib.import_module("keras") if of_keras3 else tf_keras
        return keras3_internals.whole(library.saving.serialize_keras_object(made), made)
    except Exception as error:  # a user's module may raise anything
        said = user_code.summary(error)
        raise ConfigError(f"SupervisedConfig.{field} = {given.name!r}: {said}") from error
