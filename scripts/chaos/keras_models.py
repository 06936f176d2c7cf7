"""Trains, kills, resumes, loads back and exports many kinds of Keras models with `runner.fit`."""

import argparse
import importlib
import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import runner
from runner.run_directory.verification import comparison

LIBRARIES = ("tf_keras", "keras")
_BATCH, _EPOCHS = 16, 2
_MISSING = "missing"
_SIGKILL = signal.SIGKILL


class Case(NamedTuple):
    """A compiled model and its data, [n, ...]."""

    model: Any
    x: Any
    y: Any


Kind = Callable[[Any], Case]
KINDS: dict[str, Kind] = {}


def keras(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Tries each kind with each library, and prints a row for each."""
    wrong = []
    for library in LIBRARIES:
        for name in flags.names.split(",") if flags.names else KINDS:
            kind = KINDS[name]
            start = time.perf_counter()
            folder = flags.folder / f"{name}-{library}".replace(" ", "_")
            problem = _problem(library, kind, folder)
            if problem == _MISSING:
                continue
            row = f"{library:9}{name:27}{problem or 'ok':6} {time.perf_counter() - start:5.1f} s"
            print(row, flush=True)
            wrong += [row] if problem else []
    return wrong


class MissingError(Exception):
    """The library does not have what a kind needs."""


def _problem(library: str, kind: Kind, folder: Path) -> str:
    """Compares a killed and resumed run with one that was not killed, and uses its model."""
    folder.mkdir(parents=True)
    whole, killed = folder / "whole", folder / "killed"
    if problem := _in_process(_fit, library, kind, whole):
        return problem
    if (
        _in_process(_fit, library, kind, killed, train_actions=[_killer()])
        != f"exit code {-_SIGKILL}"
    ):
        return "was not killed"
    if problem := _in_process(_resume, library, kind, killed):
        return problem
    differing = comparison.differing(comparison.compare(whole, killed))
    return f"the resume differs in {', '.join(differing)}" if differing else ""


def _in_process(
    function: Callable[..., Any], library: str, kind: Kind, *args: Any, **more: Any
) -> str:
    """Calls a function in a process forked from this one, which has not used TensorFlow yet.

    Returns:
        The error, or "".
    """

    def call() -> None:
        with (args[0].parent / "log.txt").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        try:
            function(importlib.import_module(library), kind, *args, **more)
        except MissingError:
            problem.write_text(_MISSING)
        except Exception as error:
            problem.write_text(f"{type(error).__name__}: {str(error)[:200]}")

    problem = args[0].parent / "problem.txt"
    problem.unlink(missing_ok=True)
    process = multiprocessing.get_context("fork").Process(target=call)
    process.start()
    process.join()
    if problem.exists():
        return problem.read_text()
    return f"exit code {process.exitcode}" if process.exitcode else ""


def _killer() -> Callable[[Any], None]:
    """An action that kills the process in the second epoch, after the checkpoint of the first."""
    calls = itertools.count()
    return lambda _: os.kill(os.getpid(), _SIGKILL) if next(calls) else None


def _resume(library: Any, kind: Kind, folder: Path) -> None:
    """Resumes a run, loads the model back, predicts with it and exports it."""
    case, results = _fit(library, kind, folder)
    built = _built(library, kind)
    if not getattr(case.model.optimizer, "use_ema", False):  # else the model has the averages
        loaded = runner.load_model(results.model_dir, "latest", model=built.model)
        x = tf.nest.map_structure(lambda part: part[:_BATCH], case.x)
        scored = [tf.nest.flatten(model.predict(x, verbose=0)) for model in (loaded, case.model)]
        if not _same(*scored):
            raise AssertionError("the loaded model predicts otherwise")
    validation = (case.x, case.y)
    export = runner.run(None, folder, "export", validation=validation, model=built.model)
    if not export["exports"][0]["accepted"]:
        raise AssertionError(f"not exported: {export}")


def _fit(library: Any, kind: Kind, folder: Path, **more: Any) -> tuple[Case, Any]:
    case = _built(library, kind)
    results = runner.fit(
        case.model,
        x=case.x,
        y=case.y,
        validation_data=(case.x, case.y),
        epochs=_EPOCHS,
        batch_size=_BATCH,
        verbose=0,
        model_dir=folder,
        **more,
    )
    return case, results


def _built(library: Any, kind: Kind) -> Case:
    library.utils.set_random_seed(1)
    try:
        return kind(library)
    except (AttributeError, TypeError) as error:
        raise MissingError from error


def _same(one: Any, other: Any) -> bool:
    numbers = [
        pair for pair in zip(one, other, strict=True) if np.asarray(pair[0]).dtype.kind in "fiub"
    ]
    return all(np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True) for a, b in numbers)


def _kind(kind: Kind) -> Kind:
    KINDS[kind.__name__] = kind
    return kind


def _table(n: int = 96) -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(n, 6)).astype(np.float32)
    return x, x[:, :3].argmax(1)


def _images() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    x = random.normal(size=(32, 16, 16, 1)).astype(np.float32)
    return x, random.integers(0, 3, 32)


def _sequences() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    return random.integers(0, 20, (64, 7)), random.integers(0, 2, 64)


def _classifier(k: Any, model: Any, optimizer: Any = "adam", **more: Any) -> Case:
    more = {"metrics": ["accuracy"]} | more
    loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss, **more)
    return Case(model, *_table())


def _dense(k: Any) -> Any:
    return k.Sequential([k.layers.Dense(8, activation="relu"), k.layers.Dense(3)])


def _regression(k: Any, loss: Any, metrics: Any) -> Case:
    x, _ = _table()
    model = k.Sequential([k.layers.Dense(8, activation="relu"), k.layers.Dense(1)])
    model.compile("adam", loss=loss, metrics=metrics)
    return Case(model, x, x[:, :1])


@_kind
def sequential(k: Any) -> Case:
    """Without an Input."""
    return _classifier(k, _dense(k))


@_kind
def functional(k: Any) -> Case:
    """With dropout and batch normalization."""
    inputs = k.Input((6,))
    hidden = k.layers.BatchNormalization()(k.layers.Dense(8, activation="relu")(inputs))
    outputs = k.layers.Dense(3)(k.layers.Dropout(0.3)(hidden))
    return _classifier(k, k.Model(inputs, outputs))


@_kind
def subclass(k: Any) -> Case:
    """Without arguments."""

    class Network(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = k.layers.Dense(8), k.layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.second(self.first(x))

    return _classifier(k, Network())


@_kind
def subclass_of_layers(k: Any) -> Case:
    """With an argument that has no configuration."""

    class Network(k.Model):
        def __init__(self, parts: list[Any]) -> None:
            super().__init__()
            self.parts = parts

        def call(self, x: Any) -> Any:
            for part in self.parts:
                x = part(x)
            return x

    parts = [k.layers.Dense(8), k.layers.Dropout(0.3), k.layers.Dense(3)]
    return _classifier(k, Network(parts))


@_kind
def custom_layer(k: Any) -> Case:
    """Without get_config and without a name for its weight."""

    class Scale(k.layers.Layer):
        def __init__(self, units: int) -> None:
            super().__init__()
            self.units = units

        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(shape[-1], self.units), initializer="ones")

        def call(self, x: Any) -> Any:
            return tf.matmul(x, self.scale)

    return _classifier(k, k.Sequential([Scale(8), k.layers.ReLU(), k.layers.Dense(3)]))


@_kind
def lambda_layer(k: Any) -> Case:
    """A lambda in the model."""
    layers = [k.Input((6,)), k.layers.Lambda(lambda x: x * 2), k.layers.Dense(3)]
    return _classifier(k, k.Sequential(layers))


@_kind
def added_loss(k: Any) -> Case:
    """A layer with add_loss, and a regularizer."""

    class Activity(k.layers.Layer):
        def call(self, x: Any) -> Any:
            self.add_loss(0.01 * tf.reduce_mean(x**2))
            return x

    layers = [k.layers.Dense(8, kernel_regularizer="l2"), Activity(), k.layers.Dense(3)]
    return _classifier(k, k.Sequential(layers))


@_kind
def closure_and_lambda(k: Any) -> Case:
    """A loss that is a closure, and a metric that is a lambda."""

    def scaled(factor: float) -> Callable[[Any, Any], Any]:
        return lambda labels, outputs: factor * tf.reduce_mean((labels - outputs) ** 2, -1)

    return _regression(k, scaled(2.0), [lambda y, p: tf.reduce_mean(tf.abs(y - p), -1)])


@_kind
def own_loss_and_metric(k: Any) -> Case:
    """A loss and a metric that are classes."""

    class Weighted(k.losses.Loss):
        def __init__(self, weight: float) -> None:
            super().__init__()
            self.weight = weight

        def call(self, labels: Any, outputs: Any) -> Any:
            return self.weight * tf.reduce_mean((labels - outputs) ** 2, -1)

    class Bias(k.metrics.Metric):
        def __init__(self, name: str = "bias", **more: Any) -> None:
            super().__init__(name=name, **more)
            self.total = self.add_weight(name="total", initializer="zeros")

        def update_state(self, labels: Any, outputs: Any, sample_weight: Any = None) -> None:
            del sample_weight
            self.total.assign_add(tf.reduce_sum(outputs - labels))

        def result(self) -> Any:
            return self.total + 0.0

    return _regression(k, Weighted(2.0), [Bias(), "mae", "r2_score"])


@_kind
def own_train_step(k: Any) -> Case:
    """A train_step that calls compute_loss."""

    class Network(k.Model):
        def train_step(self, data: Any) -> Any:
            x, y = data[0], data[1]
            with tf.GradientTape() as tape:
                outputs = self(x, training=True)
                loss = self.compute_loss(x=x, y=y, y_pred=outputs)
            weights = self.trainable_variables
            gradients = tape.gradient(loss, weights)
            self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
            return {**self.compute_metrics(x, y, outputs, None), "loss": loss}

    inputs = k.Input((6,))
    return _classifier(k, Network(inputs, k.layers.Dense(3)(k.layers.Dense(8)(inputs))))


@_kind
def own_compute_loss(k: Any) -> Case:
    """A compute_loss, without a compiled loss."""

    class Network(k.Model):
        def compute_loss(
            self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any
        ) -> Any:
            del x
            return tf.reduce_mean((tf.cast(y, y_pred.dtype) - y_pred) ** 2)

    x, _ = _table()
    inputs = k.Input((6,))
    model = Network(inputs, k.layers.Dense(1)(inputs))
    model.compile("adam")
    return Case(model, x, x[:, :1])


@_kind
def autoencoder_with_steps(k: Any) -> Case:
    """A train_step and a test_step with a loss tracker."""

    class Autoencoder(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = k.layers.Dense(4), k.layers.Dense(6)
            self.tracker = k.metrics.Mean(name="reconstruction")

        @property
        def metrics(self) -> list[Any]:
            return [self.tracker]

        def call(self, x: Any) -> Any:
            return self.decoder(self.encoder(x))

        def train_step(self, data: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((data[0] - self(data[0], training=True)) ** 2)
            weights = self.trainable_weights
            gradients = tape.gradient(loss, weights)
            self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
            self.tracker.update_state(loss)
            return {"loss": self.tracker.result()}

        def test_step(self, data: Any) -> Any:
            self.tracker.update_state(tf.reduce_mean((data[0] - self(data[0])) ** 2))
            return {"loss": self.tracker.result()}

    x, _ = _table()
    model = Autoencoder()
    model.compile("adam")
    return Case(model, x, x)


@_kind
def two_inputs(k: Any) -> Case:
    """A list of inputs."""
    x, y = _table()
    one, two = k.Input((4,), name="one"), k.Input((2,), name="two")
    hidden = k.layers.Concatenate()([k.layers.Dense(4)(one), two])
    case = _classifier(k, k.Model([one, two], k.layers.Dense(3)(hidden)))
    return case._replace(x=[x[:, :4], x[:, 4:]], y=y)


@_kind
def dict_of_inputs(k: Any) -> Case:
    """A dict of inputs."""
    x, _ = _table()
    one, two = k.Input((4,), name="one"), k.Input((2,), name="two")
    outputs = k.layers.Dense(3)(k.layers.Concatenate()([one, two]))
    case = _classifier(k, k.Model({"one": one, "two": two}, outputs))
    return case._replace(x={"one": x[:, :4], "two": x[:, 4:]})


@_kind
def two_outputs(k: Any) -> Case:
    """A dict of outputs with a loss each."""
    x, y = _table()
    inputs = k.Input((6,))
    outputs = {
        "kind": k.layers.Dense(3, name="kind", activation="softmax")(inputs),
        "size": k.layers.Dense(1, name="size")(inputs),
    }
    model = k.Model(inputs, outputs)
    losses = {"kind": "sparse_categorical_crossentropy", "size": "mse"}
    model.compile("adam", loss=losses, loss_weights={"kind": 1.0, "size": 0.5})
    return Case(model, x, {"kind": y, "size": x[:, :1]})


@_kind
def weighted_metrics(k: Any) -> Case:
    """weighted_metrics of compile."""
    return _classifier(k, _dense(k), metrics=None, weighted_metrics=["accuracy"])


@_kind
def convolutions(k: Any) -> Case:
    """Images."""
    layers = [k.Input((16, 16, 1)), k.layers.Conv2D(4, 3), k.layers.BatchNormalization()]
    layers += [k.layers.MaxPooling2D(), k.layers.Flatten(), k.layers.Dropout(0.5)]
    case = _classifier(k, k.Sequential([*layers, k.layers.Dense(3)]))
    return Case(case.model, *_images())


@_kind
def augmentation(k: Any) -> Case:
    """Random layers in the model."""
    layers = [k.Input((16, 16, 1)), k.layers.RandomFlip(), k.layers.RandomRotation(0.1)]
    layers += [k.layers.Conv2D(4, 3), k.layers.GlobalAveragePooling2D(), k.layers.Dense(3)]
    return Case(_classifier(k, k.Sequential(layers)).model, *_images())


@_kind
def frozen_application(k: Any) -> Case:
    """A network of keras.applications within another one."""
    arguments = {"weights": None, "include_top": False, "alpha": 0.35}
    base = k.applications.MobileNetV2(input_shape=(32, 32, 3), **arguments)
    base.trainable = False
    inputs = k.Input((32, 32, 3))
    hidden = k.layers.GlobalAveragePooling2D()(base(inputs, training=False))
    case = _classifier(k, k.Model(inputs, k.layers.Dense(3)(hidden)))
    random = np.random.default_rng(0)
    x = random.normal(size=(32, 32, 32, 3)).astype(np.float32)
    return Case(case.model, x, random.integers(0, 3, 32))


def _sequence_model(k: Any, *layers: Any) -> Case:
    output = k.layers.Dense(1, activation="sigmoid")
    model = k.Sequential([k.Input((7,)), *layers, output])
    model.compile("adam", loss="binary_crossentropy", metrics=["accuracy", "AUC"])
    return Case(model, *_sequences())


@_kind
def masked_sequences(k: Any) -> Case:
    """A mask from an embedding."""
    embedding = k.layers.Embedding(20, 4, mask_zero=True)
    return _sequence_model(k, embedding, k.layers.Bidirectional(k.layers.LSTM(4)))


@_kind
def attention(k: Any) -> Case:
    """A layer of a transformer."""
    inputs = k.Input((7,))
    hidden = k.layers.Embedding(20, 8)(inputs)
    hidden = k.layers.LayerNormalization()(
        hidden + k.layers.MultiHeadAttention(2, 4)(hidden, hidden)
    )
    hidden = k.layers.GlobalAveragePooling1D()(hidden)
    model = k.Model(inputs, k.layers.Dense(1, activation="sigmoid")(hidden))
    model.compile("adam", loss="binary_crossentropy")
    return Case(model, *_sequences())


@_kind
def adapted_normalization(k: Any) -> Case:
    """A layer that has adapted to statistics."""
    layer = k.layers.Normalization()
    layer.adapt(_table()[0])
    return _classifier(k, k.Sequential([layer, k.layers.Dense(3)]))


@_kind
def adapted_vocabulary(k: Any) -> Case:
    """A layer that has adapted to texts."""
    texts = np.array(["good film", "bad film", "great", "awful movie"] * 8)
    layer = k.layers.TextVectorization(20, output_sequence_length=4)
    layer.adapt(texts)
    inputs = k.Input((1,) if k.__name__ == "tf_keras" else (), dtype="string")
    hidden = k.layers.GlobalAveragePooling1D()(k.layers.Embedding(20, 4)(layer(inputs)))
    model = k.Model(inputs, k.layers.Dense(1, activation="sigmoid")(hidden))
    model.compile("adam", loss="binary_crossentropy")
    return Case(model, tf.constant(texts), np.array([1, 0, 1, 0] * 8))


@_kind
def bfloat16(k: Any) -> Case:
    """Mixed precision."""
    mixed = getattr(k, "DTypePolicy", None) or k.mixed_precision.Policy
    hidden = k.layers.Dense(8, dtype=mixed("mixed_bfloat16"))
    return _classifier(k, k.Sequential([hidden, k.layers.Dense(3, dtype="float32")]))


@_kind
def compiled_by_xla(k: Any) -> Case:
    """jit_compile and steps_per_execution."""
    return _classifier(k, _dense(k), jit_compile=True, steps_per_execution=3)


@_kind
def one_hot_metric(k: Any) -> Case:
    """F1Score with class numbers."""
    model = k.Sequential([k.layers.Dense(3, activation="softmax")])
    metrics = [k.metrics.F1Score(average="macro")]
    model.compile("adam", loss="sparse_categorical_crossentropy", metrics=metrics)
    return Case(model, *_table())


def _optimizers() -> dict[str, Callable[[Any], Any]]:
    schedules: Callable[[Any], Any] = lambda k: k.optimizers.schedules  # noqa: E731
    return {
        "Nadam": lambda k: k.optimizers.Nadam(1e-3),
        "Lion": lambda k: k.optimizers.Lion(1e-4),
        "Adafactor": lambda k: k.optimizers.Adafactor(1e-3),
        "Ftrl": lambda k: k.optimizers.Ftrl(1e-2),
        "Lamb": lambda k: k.optimizers.Lamb(1e-3),
        "Muon": lambda k: k.optimizers.Muon(1e-3),
        "AdamW": lambda k: k.optimizers.AdamW(1e-3, weight_decay=1e-4),
        "global_clipnorm": lambda k: k.optimizers.Adam(global_clipnorm=1.0),
        "use_ema": lambda k: k.optimizers.Adam(use_ema=True, ema_momentum=0.9),
        "accumulation": lambda k: k.optimizers.Adam(gradient_accumulation_steps=2),
        "loss_scale": lambda k: k.mixed_precision.LossScaleOptimizer(k.optimizers.Adam()),
        "warmup_target": lambda k: k.optimizers.Adam(
            schedules(k).CosineDecay(0.0, 100, warmup_target=1e-3, warmup_steps=10)
        ),
        "restarts": lambda k: k.optimizers.SGD(schedules(k).CosineDecayRestarts(0.1, 10)),
        "inverse_time": lambda k: k.optimizers.SGD(schedules(k).InverseTimeDecay(0.1, 10, 0.5)),
    }


def _with(optimizer: Callable[[Any], Any]) -> Kind:
    return lambda k: _classifier(k, _dense(k), optimizer(k))


KINDS |= {f"optimizer {name}": _with(make) for name, make in _optimizers().items()}
