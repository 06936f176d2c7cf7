"""Trains the user's Keras model on the user's data, without a custom task.

    SupervisedConfig:
      model = @my.build_model       # a function that returns a model, compiled or not
      train = @my.train_data        # (x, y), (x, y, sample_weight), an .npz, or a tf.data.Dataset
      validation = @my.validation_data
      loss = 'sparse_categorical_crossentropy'
      metrics = ('accuracy',)

`runner.fit` does the same from Python, with a model and data in memory.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras
from official.core import base_task, task_factory
from official.core import config_definitions as cfg

from runner import inputs
from runner.configuration.functions import FunctionConfig
from runner.configuration.settings import one_of, setting
from runner.core import console
from runner.errors import ConfigError
from runner.models import compiled, copies, examples, keras3, models, own_steps, scoring, sources

_TINY = 1e-12  # of a probability


@dataclasses.dataclass
class SupervisedData(inputs.FoldedData):
    """How to read the user's data, which come from a function or from `input_path`.

    Arrays use indexed inputs. A tf.data.Dataset is read from its start, repeated for training, and
    rebatched if its batches are not of `global_batch_size`.

    `folds` split the training data, which must be arrays. Folds are stratified if labels are
    classes.
    """

    SOURCE_FIELDS = (*inputs.FoldedData.SOURCE_FIELDS, "fold_group")

    input_path: str = setting(
        "",
        "An .npz file with x, y and optionally sample_weight. It overrides the function.",
    )
    part: str = setting(
        "",
        "The task's data to read: `train` or `validation`. Empty: depends on `is_training`.",
        allowed=one_of("", "train", "validation"),
    )
    fold_group: str = setting(
        "",
        "The groups of examples that stay together in `folds`: a key of x, or another array of "
        "the .npz.",
    )
    fingerprint: str = setting(
        "", "Identifies the data passed to `runner.fit`. Not for users.", read="elsewhere"
    )

    def once(self) -> "SupervisedData":
        """The same training data for one pass in order."""
        return super().once().replace(part="train")

    def reads(self) -> str:
        """`train` or `validation`."""
        return self.fold_part or self.part or super().reads()

    def stated(self) -> int:
        """The number of examples according to `num_examples`, or 0 if it is not set."""
        return 0 if self.fold_group else super().stated()

    def size(self) -> int | None:
        """The number of examples, or None if unknown."""
        if self.num_examples or not self.input_path:
            return self.stated() or None
        found = examples.read(self.input_path, "input_path", self.fold_group)
        chosen = examples.of_fold(found, self, self.input_path)
        return chosen.size if isinstance(chosen, examples.Arrays) else None


@dataclasses.dataclass
class SupervisedConfig(cfg.TaskConfig):
    """A model and its data, each from one of the user's functions."""

    model: FunctionConfig = setting(
        FunctionConfig, "Returns a tf_keras or Keras 3 model. In gin: `@my.build_model`."
    )
    train: FunctionConfig = setting(
        FunctionConfig,
        "Returns training data in a form that `runner.fit` takes: (x, y) or (x, y, sample_weight) "
        "of arrays, DataFrames or dicts and tuples of them, a path, a tf.data.Dataset, a "
        "PyDataset, a Sequence or a generator.",
    )
    validation: FunctionConfig = setting(
        FunctionConfig, "Returns data to evaluate, in the same form as `train`.", read="evaluation"
    )
    loss: str | FunctionConfig = setting(
        "",
        "The Keras name of a loss, or a function or class, `@my.loss` in gin, whose arguments "
        "gin binds (or a string `module.name`, without arguments). Empty: the loss that the "
        "model was compiled with.",
    )
    metrics: tuple[str, ...] | tuple[FunctionConfig, ...] = setting(
        (), "Metrics, given like `loss`: all by name, or all as functions and classes."
    )
    train_data: SupervisedData = dataclasses.field(
        default_factory=lambda: SupervisedData(is_training=True)
    )
    validation_data: SupervisedData = dataclasses.field(
        default_factory=lambda: SupervisedData(is_training=False)
    )
    fingerprint: str = setting(
        "", "Identifies the model passed to `runner.fit`. Not for users.", read="elsewhere"
    )

    @property
    def brings_optimizer(self) -> bool:
        """Whether the model may provide the optimizer, for a configuration that names none."""
        return bool(self.model.name)


@task_factory.register_task_cls(SupervisedConfig)
class SupervisedTask(base_task.Task):
    """Learns labels from features, scored by the model's loss and metrics.

    Attributes:
        given: Objects that the caller has in memory. Set it before anything is built.
        run_folder: The run's directory. See `runner.configuration.task_contract`.
        own_optimizer: The compiled optimizer of the model. See `runner.models.keras_optimizers`.
        own_variables: The variables of a Keras 3 model, for that optimizer.
    """

    given = sources.Given()
    run_folder = Path()
    own_optimizer: Any = None
    own_variables: Sequence[Any] = ()
    _own: own_steps.OwnSteps | None = None

    @property
    def streams(self) -> bool:
        """Whether training data are a sequential stream rather than indexed inputs."""
        return examples.are_streamed(self._sources.whole("train"))

    def data(self, part: str) -> examples.Examples:
        """The user's data, `train` or `validation`, all folds together."""
        return self._sources.whole(part)

    def build_model(self) -> tf_keras.Model:
        """The user's model. A Keras 3 model is wrapped in a `keras3.Network`.

        Raises:
            ConfigError: there is none, or it cannot be trained here.
        """
        config, model = self.task_config, self._origin.model()
        found = models.configured(self._origin.compiled(model), config.loss, config.metrics)
        self._own = own_steps.OwnSteps(model) if own_steps.has_own_steps(model) else None
        if found.loss is None and not getattr(model, "losses", ()) and not self._own:
            raise ConfigError(
                "there is no loss: compile the model (model.compile(loss=...)), or set "
                "SupervisedConfig.loss"
            )
        if said := scoring.mistaken_logits(found.loss, model):
            console.say(said, style="yellow")
        held = self.given.model if copies.is_model(self.given.model) else model
        self.own_optimizer = getattr(held, "optimizer", None) or self.own_optimizer
        self.own_variables = model.trainable_variables if keras3.is_keras3(model) else ()
        self._compiled, self._model = found, models.trainable(model)
        self.__dict__.pop("_loss", None)
        self._scores: list[scoring.Scores] = []
        return self._model

    def build_inputs(
        self, params: SupervisedData, input_context: tf.distribute.InputContext | None = None
    ) -> tf.data.Dataset:
        """Batches of x and (y, sample weights). The weights are () if there are none."""
        return examples.batches(self._sources.read(params), params, input_context)

    def train_step(
        self,
        inputs: Any,
        model: tf_keras.Model,
        optimizer: tf_keras.optimizers.Optimizer,
        metrics: Any = None,
    ) -> Any:
        """Model Garden's step, or the model's own."""
        if not self._own:
            return super().train_step(inputs, model, optimizer, metrics)
        return self._logged(self._own.train(inputs, optimizer), metrics)

    def validation_step(self, inputs: Any, model: tf_keras.Model, metrics: Any = None) -> Any:
        """Model Garden's step, or the model's own."""
        if not self._own:
            return super().validation_step(inputs, model, metrics)
        logs = self._own.test(inputs, model)
        weight = logs[own_steps.LOSS].weight
        more = {} if weight is None else {"weight": weight}
        return self._logged(logs, metrics) | more

    @tf.autograph.experimental.do_not_convert
    def _logged(self, logs: Mapping[str, own_steps.Value], metrics: Any) -> dict[str, Any]:
        """Updates metrics from the values that a model's own step returned."""
        for metric in metrics or ():
            if each := logs.get(metric.name):
                metric.update_state(each.value, each.weight)
        return {self.loss: logs[own_steps.LOSS].value}

    @tf.autograph.experimental.do_not_convert
    def build_losses(
        self,
        labels: tuple[Any, Any],
        model_outputs: Any,
        aux_losses: Sequence[tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """The sum of the compiled loss, `add_loss` and regularizers, a float32 scalar."""
        y, weight = labels
        loss = self._loss.loss(y, model_outputs, scoring.or_none(weight))
        return tf.add_n([tf.cast(each, tf.float32) for each in (loss, *(aux_losses or ()))])

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        """New copies of the compiled metrics. With several outputs, also each output's loss."""
        alone = self._sources.has("train") and not self._sources.has("validation")
        part = "train" if training or alone or self.task_config.train_data.folds else "validation"
        if self._own:
            if alone and not training and not self._own.can_test:
                return []
            specs = examples.specs(self._sources.whole(part))
            return self._own.metrics(specs, training=training)
        scores = scoring.Scores(
            self._model.output_names,
            metrics=self._compiled.metrics,
            weighted_metrics=self._compiled.weighted_metrics,
        )
        trial = scoring.Trial(
            lambda x: self.inference_step(x, self._model),
            self._compiled.loss,
            self._sources.whole(part),
            self._sources.where(part),
        )
        trial.trace(self._loss.loss, scores.update)
        self._scores.append(scores)
        return [*self._loss.metrics, *scores.metrics]

    @tf.autograph.experimental.do_not_convert
    def process_metrics(
        self, metrics: Any, labels: tuple[Any, Any], model_outputs: Any, **_: Any
    ) -> None:
        """Updates those of `metrics` that `build_metrics` created."""
        y, weight = labels
        held = {id(metric) for metric in metrics}
        for scores in self._scores:
            if any(id(metric) in held for metric in scores.metrics):
                scores.update(y, model_outputs, scoring.or_none(weight))

    def prediction_label(self, labels: tuple[Any, Any]) -> Any:
        """The labels without their weights."""
        y, _ = labels
        return y

    def averaged(self, outputs: Any) -> tf.Tensor:
        """The values that ensembles average: probabilities for logits, else the outputs."""
        if not isinstance(outputs, tf.Tensor):
            raise ConfigError("a model with several outputs cannot be a member of an ensemble")
        outputs = tf.cast(outputs, tf.float32)
        if not self._gives_logits:
            return outputs
        return tf.sigmoid(outputs) if self._is_binary else tf.nn.softmax(outputs)

    def from_averaged(self, averaged: tf.Tensor) -> tf.Tensor:
        """Outputs equivalent to the averaged values."""
        if not self._gives_logits:
            return averaged
        logs = tf.math.log(tf.maximum(averaged, _TINY))
        return logs - tf.math.log(tf.maximum(1 - averaged, _TINY)) if self._is_binary else logs

    @property
    def _gives_logits(self) -> bool:
        """Whether outputs are logits, according to the loss."""
        return compiled.gives_logits(self._compiled.loss)

    @property
    def _is_binary(self) -> bool:
        """Whether each logit is an independent yes-or-no decision."""
        loss = self._compiled.loss
        stored = loss.get("class_name") if isinstance(loss, dict) else None
        return "Binary" in (stored or type(loss).__name__)

    def compiled_optimizer(self) -> Any:
        """The optimizer in the compiled user's model, for `runner.runs.compiled_model`.

        Raises:
            ConfigError: it is not compiled.
        """
        model = self._origin.model()
        if model.optimizer is None:
            raise ConfigError(
                f"{sources.place(self.task_config.model)} returns a model without an optimizer: "
                "compile it, or set OptimizerConfig.type and LrConfig.type"
            )
        return model.optimizer

    def compiled_model(self, trained: tf_keras.Model) -> Any:
        """The user's model with the weights of a trained one, compiled. See `runner.load_model`."""
        return self._origin.with_weights(trained, self._compiled, self.own_optimizer)

    @functools.cached_property
    def _loss(self) -> scoring.Scores:
        loss, weights = self._compiled.loss, self._compiled.loss_weights
        return scoring.Scores(self._model.output_names, loss=loss, loss_weights=weights)

    @functools.cached_property
    def _sources(self) -> sources.Sources:
        return sources.Sources(self.task_config, self.given, lambda: self._origin.model())

    @property
    def _origin(self) -> models.Origin:
        return models.Origin(
            self.given.model,
            self.task_config.model,
            self.run_folder,
            lambda: self._sources.first(),
            self.given.lasting,
            any(self._sources.has(part) for part in ("train", "validation")),
        )
