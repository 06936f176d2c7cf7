"""The models, the data and the task of the benchmarks: random examples and cheap steps.

`runner.config` is imported only by functions that use the runner. A bare script starts without it.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import base_task, task_factory
from official.core import config_definitions as cfg
from official.modeling import optimization
from official.nlp.modeling import networks

from runner import inputs

if TYPE_CHECKING:
    from runner import config

WIDTH = 2400  # four layers of this width have 23 million parameters
OPTIMIZER = {
    "optimizer": {"type": "adam_experimental"},  # Keras 2's current Adam; "adam" is the legacy one
    "learning_rate": {"type": "constant", "constant": {"learning_rate": 1e-3}},
}


@dataclasses.dataclass(frozen=True)
class Model:
    """A network with ten classes.

    Attributes:
        build: Builds it with `tf_keras`, or with Keras 3 if its layers exist there.
        batch: The batch size.
        examples: Generates a few examples. All other examples are copies of these.
        epoch: The number of steps between checkpoints. They take some seconds.
    """

    build: Callable[[Any], Any]
    batch: int
    examples: Callable[[], np.ndarray]
    epoch: int


def _mlp(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential([keras.Input((64,)), layers.Dense(128, "relu"), layers.Dense(10)])


def _cnn(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )


def _bert(_: Any) -> tf_keras.Model:
    words = tf_keras.Input((64,), dtype=tf.int32)
    encoder = networks.BertEncoder(
        vocab_size=1000,
        hidden_size=64,
        num_layers=2,
        num_attention_heads=2,
        max_sequence_length=64,
        intermediate_size=256,
        dict_outputs=True,
    )
    outputs = encoder([words, tf.ones_like(words), tf.zeros_like(words)])
    return tf_keras.Model(words, tf_keras.layers.Dense(10)(outputs["pooled_output"]))


def _wide(keras: Any) -> Any:
    hidden = [keras.layers.Dense(WIDTH, "relu") for _ in range(4)]
    return keras.Sequential([keras.Input((WIDTH,)), *hidden, keras.layers.Dense(10)])


def _numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def _words(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 1000, shape, dtype=np.int32)


MODELS = {
    "mlp": Model(_mlp, 64, lambda: _numbers(4096, 64), 20_000),
    "cnn": Model(_cnn, 64, lambda: _numbers(4096, 8, 8, 1), 3000),
    "bert": Model(_bert, 16, lambda: _words(1024, 64), 300),
    "wide": Model(_wide, 8, lambda: _numbers(64, WIDTH), 40),
}


def arrays(model: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns random examples and labels, [n, ...] and [n]."""
    examples = MODELS[model].examples()
    return examples, np.random.default_rng(1).integers(0, 10, len(examples), dtype=np.int32)


@dataclasses.dataclass
class StepConfig(cfg.TaskConfig):
    """The config of a task on random examples, for one of `MODELS`."""

    model: str = "mlp"
    train_data: inputs.DataConfig = dataclasses.field(default_factory=inputs.DataConfig)
    validation_data: inputs.DataConfig = dataclasses.field(default_factory=inputs.DataConfig)


@task_factory.register_task_cls(StepConfig)
class StepTask(base_task.Task):
    """Learns random labels."""

    def build_model(self) -> tf_keras.Model:
        """Builds the model with the configured name."""
        return MODELS[self.task_config.model].build(tf_keras)

    def build_inputs(
        self, params: inputs.DataConfig, input_context: tf.distribute.InputContext | None = None
    ) -> tf.data.Dataset:
        """Returns examples and labels: shuffled by index, or `num_examples` in order."""
        known, labels = arrays(self.task_config.model)
        examples, answers = tf.constant(known), tf.constant(labels)

        def load(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            index %= len(known)
            return tf.gather(examples, index), tf.gather(answers, index)

        place = inputs.place if params.is_training else inputs.in_order
        return place(params.size() or len(known), load, config=params, input_context=input_context)

    def build_losses(
        self, labels: tf.Tensor, model_outputs: tf.Tensor, aux_losses: Any = None
    ) -> tf.Tensor:
        """Returns the mean cross-entropy."""
        del aux_losses
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model_outputs))

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        """Returns the accuracy."""
        del training
        return [tf_keras.metrics.SparseCategoricalAccuracy("accuracy")]


def task_config(model: str, *, evaluated: int = 0) -> StepConfig:
    """Returns the task's config. `evaluated` is the number of examples in an evaluation, 0: all."""
    batch = MODELS[model].batch
    return StepConfig(
        model=model,
        train_data=inputs.DataConfig(is_training=True, global_batch_size=batch, seed=0),
        validation_data=inputs.DataConfig(
            is_training=False, global_batch_size=batch, num_examples=evaluated
        ),
    )


def optimizer() -> tf_keras.optimizers.Optimizer:
    """Builds the optimizer of `OPTIMIZER` with Model Garden's factory, as all contenders do."""
    factory = optimization.OptimizerFactory(cfg.OptimizationConfig(OPTIMIZER))
    return factory.build_optimizer(factory.build_learning_rate())


def experiment(model: str, *, evaluated: int = 0, **trainer: int) -> "config.Experiment":
    """Returns the configuration, for the runner and for Model Garden.

    Args:
        model: A key of `MODELS`.
        evaluated: The number of examples in an evaluation.
        **trainer: Fields of `TrainerConfig`.
    """
    from runner import config

    built = config.Experiment(task=task_config(model, evaluated=evaluated))
    lengths = {"optimizer_config": OPTIMIZER, **trainer}
    built.override({"runtime": {"distribution_strategy": "off"}, "trainer": lengths})
    return built
