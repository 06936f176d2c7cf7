"""Compares what `runner.fit` and Keras's `fit` learn from small data sets."""

import argparse
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets, model_selection

from scripts.bench import rounds
from scripts.bench.comparison import Comparison, Ratio

_LIBRARIES = {"tf_keras": "Keras 2", "keras": "Keras 3"}
_CONTENDERS = {"with_runner": "runner.fit", "with_keras": "Keras's fit"}


class DataSet(NamedTuple):
    """Examples to learn from.

    Attributes:
        load: Returns the features [n, ...] and the labels [n].
        classes: The number of classes. 0: the label is a number, and the score is R².
        epochs: The length of the training.
    """

    load: Callable[[], tuple[np.ndarray, np.ndarray]]
    classes: int
    epochs: int

    @property
    def score(self) -> str:
        """The name of the score."""
        return "accuracy" if self.classes else "R²"


DATA_SETS = {
    "iris": DataSet(lambda: datasets.load_iris(return_X_y=True), 3, 60),
    "digits": DataSet(lambda: datasets.load_digits(return_X_y=True), 10, 20),
    "breast cancer": DataSet(lambda: datasets.load_breast_cancer(return_X_y=True), 2, 20),
    "Friedman": DataSet(lambda: datasets.make_friedman1(1000, noise=1.0, random_state=0), 0, 60),
}


def scores(options: argparse.Namespace) -> Iterator[Comparison]:
    """Compares the scores on a fifth of the examples, with another seed in each round.

    A round has one process for each program. Both build the same model from the same seed, so that
    the initial weights are equal. The order of the batches differs.
    """
    for library, title in _LIBRARIES.items():
        results: dict[str, list[dict[str, float]]] = {name: [] for name in _CONTENDERS.values()}
        for seed in range(1, options.repeats + 1):
            for contender, name in _CONTENDERS.items():
                scored = rounds.once("scores", contender, library=library, seed=seed)
                results[name].append(scored)
        ratio = Ratio("runner.fit", ("Keras's fit",))
        for name, data in DATA_SETS.items():
            figures = {who: [scored[name] for scored in each] for who, each in results.items()}
            yield Comparison(f"{title}, {name}", data.score, figures, [ratio])


def with_runner(folder: Path, pause: rounds.Pause, *, library: str, seed: int) -> None:
    """Trains with `runner.fit`."""
    import runner

    def fit(model: Any, x: np.ndarray, y: np.ndarray, name: str, **length: Any) -> None:
        params = [f"RunConfig.seed = {seed}"]
        runner.fit(model, x, y, verbose=0, model_dir=folder / name, gin_params=params, **length)

    pause(_scores(importlib.import_module(library), seed, fit))


def with_keras(_: Path, pause: rounds.Pause, *, library: str, seed: int) -> None:
    """Trains with the model's own `fit`."""

    def fit(model: Any, x: np.ndarray, y: np.ndarray, _: str, **length: Any) -> None:
        model.fit(x, y, verbose=0, **length)

    pause(_scores(importlib.import_module(library), seed, fit))


def _scores(keras: Any, seed: int, fit: Callable[..., None]) -> dict[str, float]:
    """Trains a model on each data set and returns their scores."""
    found = {}
    for name, data in DATA_SETS.items():
        keras.utils.set_random_seed(seed)
        parts = model_selection.train_test_split(*data.load(), test_size=0.2, random_state=0)
        train, test, train_labels, test_labels = parts
        mean, scale = train.mean(axis=0), train.std(axis=0) + 1e-6
        train, test = ((x - mean) / scale for x in (train, test))
        model = _model(keras, train.shape[1], data.classes)
        fit(model, train.astype("float32"), train_labels, name, epochs=data.epochs, batch_size=16)
        values = model.evaluate(test, test_labels, verbose=0, return_dict=True)
        found[name] = values["accuracy"] if data.classes else 1 - values["loss"] / test_labels.var()
    return found


def _model(keras: Any, features: int, classes: int) -> Any:
    """Builds a compiled network with one hidden layer and dropout."""
    layers = [keras.layers.Dense(64, activation="relu"), keras.layers.Dropout(0.1)]
    output = keras.layers.Dense(classes or 1, activation="softmax" if classes else None)
    model = keras.Sequential([keras.layers.Input((features,)), *layers, output])
    loss = "sparse_categorical_crossentropy" if classes else "mse"
    model.compile(keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"] if classes else [])
    return model
