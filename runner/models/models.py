"""The model that a task trains, and its loss and metrics."""

import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import tf_keras

from runner.configuration import functions
from runner.configuration.functions import FunctionConfig
from runner.core import files, layout, user_code
from runner.errors import ConfigError
from runner.internals import keras as keras_internals
from runner.internals import keras3 as keras3_internals
from runner.models import copies, keras3, scoring, sources

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
    """

    given: Any
    named: FunctionConfig
    folder: Path
    example: Callable[[], Any]
    lasting: bool = True

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
            if copies.library(model, where) is tf_keras:
                copies.check_vocabularies(model)
        elif (text := self._stored()) is not None:
            model = copies.made(text)
        else:
            raise ConfigError(
                "SupervisedConfig.model is not set: bind it to the function that builds the model "
                f"(runner.fit with a model, not a function, leaves {self.folder / layout.MODEL})"
            )
        self._build(model)
        return model

    def compiled(self, model: Any) -> scoring.Compiled:
        """The compile arguments of `model`, which the method above returned."""
        found = scoring.of(self.given if copies.is_model(self.given) else model)
        if found is None and self.given is None and (text := self._stored()):
            held = copies.compiled(text) or {}
            return scoring.Compiled(*(held.get(name) for name in scoring.Compiled._fields))
        return found or scoring.Compiled()

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
        copies.check_vocabularies(self.given)
        self._build(self.given)
        wanted = tf_keras.mixed_precision.global_policy().name
        if wanted != "float32" and wanted not in copies.policies(self.given):
            raise ConfigError(
                "RuntimeConfig.mixed_precision_dtype has no effect on a model that is built "
                f"already: set the policy {wanted!r} before building it"
            )
        text = copies.text(self.given)
        model = copies.made(text, of=self.given)
        self._build(model)
        copies.copy_weights(self.given, model)
        if self.lasting:
            files.write_text(self.folder / layout.MODEL, text)
        return model

    def _build(self, model: Any) -> None:
        if not copies.is_built(model):
            copies.build(model, self.example())

    def _stored(self) -> str | None:
        path = self.folder / layout.MODEL
        return path.read_text(encoding="utf-8") if path.is_file() else None


def configured(
    compiled: scoring.Compiled, loss: Named, metrics: Sequence[Named]
) -> scoring.Compiled:
    """Replaces the compiled loss and metrics with those that a configuration names."""
    if loss:
        compiled = compiled._replace(loss=_named(loss, "loss"), loss_weights=None)
    if metrics:
        made = [_named(each, "metrics") for each in metrics]
        compiled = compiled._replace(metrics=made, weighted_metrics=None)
    return compiled


def trainable(model: Any) -> tf_keras.Model:
    """The model in the form that Model Garden's steps need: of tf_keras, and not compiled."""
    if keras3.is_keras3(model):
        return keras3.Network(model)
    if model.optimizer is not None:
        model.optimizer = model.compiled_loss = model.compiled_metrics = None
    return model


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
