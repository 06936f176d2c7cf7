"""Writes the files that ModelCheckpoint and CSVLogger name, at the end of `runner.fit`."""

import csv
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from runner.command import fit_result


class ModelFile(NamedTuple):
    """A file of ModelCheckpoint.

    Attributes:
        path: The file.
        weights_only: Whether it has the weights alone.
        best: The metric that decides which weights are written, and whether higher is better. None:
            the last ones.
    """

    path: str
    weights_only: bool
    best: tuple[str, bool] | None

    def write(self, model: Any) -> None:
        """Writes a model with its current weights."""
        _make_folder(self.path)
        save = model.save_weights if self.weights_only else model.save
        save(self.path)


class Table(NamedTuple):
    """A file of CSVLogger."""

    path: str
    separator: str

    def write(self, result: fit_result.FitResult) -> None:
        """Writes a line for each evaluation, with the columns of Keras and the learning rate."""
        columns = {"epoch": result.epoch, **dict(sorted(result.history.items()))}
        _make_folder(self.path)
        with tf.io.gfile.GFile(self.path, "w") as file:
            lines = csv.writer(file, delimiter=self.separator, lineterminator="\n")
            lines.writerow(columns)
            lines.writerows(zip(*columns.values(), strict=True))


def write_models(
    files: Sequence[ModelFile],
    model: Any,
    best: tuple[str, bool] | None,
    restore_best: Callable[[], None],
) -> None:
    """Writes the files of a model.

    Args:
        files: The files.
        model: The model, with the last weights. It keeps them.
        best: The metric by which the run chooses its best evaluation.
        restore_best: Gives the model the weights of the best evaluation.
    """
    for file in files:
        if file.best is None:
            file.write(model)
    if of_best := [file for file in files if file.best and file.best == best]:
        last = model.get_weights()
        restore_best()
        for file in of_best:
            file.write(model)
        model.set_weights(last)


def _make_folder(path: str) -> None:
    """Makes the directory of a file, which may be in a bucket."""
    if folder := os.path.dirname(path):  # noqa: PTH120, pathlib changes URLs
        tf.io.gfile.makedirs(folder)
