"""Starts from another run's weights: loads those that fit, and reports the rest."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras

from runner.checkpoints import checkpoint_files, compatibility, integrity
from runner.core import text
from runner.errors import ConfigError, RunnerError
from runner.internals import keras as keras_internals
from runner.internals import tensorflow as tf_internals
from runner.storage import urls

# TensorFlow's list of variables for which it has found no value.
_VARIABLE = re.compile(r"<tf\.Variable '([^']+?)(?::\d+)?' shape=(\([^)]*\)) dtype=(\w+)")
_FOUND = re.compile(r"Found (\d+) ")


def initialize(model: tf_keras.Model, path: Path, *, whole: bool = False) -> compatibility.Report:
    """Loads fitting weights from a checkpoint into `model`, and leaves the rest unchanged.

    A model's `checkpoint_items` map names in the checkpoint to the objects to load, as for Model
    Garden's tasks. Without them, this function loads the whole model. The checkpoint may have it as
    `model` (training checkpoints) or as its root (Keras's `save_weights`).

    Args:
        model: The model, whose variables must exist.
        path: A checkpoint, or a directory for the newest one in it.
        whole: Whether every weight of the model must be loaded.

    Returns:
        Which of the model's variables were loaded and which were not.

    Raises:
        ConfigError: there is no checkpoint, nothing in it fits, it lacks part of the `whole` model,
            or one of the model's `checkpoint_items` has other sizes in it.
        RunnerError: the checkpoint is damaged.
    """
    saved = compatibility.Saved(find(path))
    items = _items(model)
    for roots in (items or {"model": model}, {"model": model}, {"": model}):
        starts = saved.starts(roots)
        found = saved.match(starts)
        pairs = list(saved.pairs(found))
        _check_sizes(path, items, pairs)
        fitting = [pair for pair in pairs if not pair.difference]
        if not fitting:
            continue
        report = compatibility.report(saved, roots, found, below=starts)
        left = _left(model, roots, [pair.variable for pair in pairs])
        report = dataclasses.replace(report, missing=list(dict.fromkeys([*report.missing, *left])))
        if whole and (left or report.different):
            raise ConfigError(
                f"{path} does not contain the whole model:\n{report.render(unexpected=False)}"
            )
        for pair in fitting:
            pair.variable.assign(saved.reader.get_tensor(pair.key))
        return report
    ours = [
        compatibility.describe(name, each) for name, each in compatibility.variables({"": model})
    ]
    raise ConfigError(
        f"nothing in {path} fits this model: the checkpoint has {text.some(saved.describe([0]))}; "
        f"the model has {text.some(ours)}"
    )


def _items(model: tf_keras.Model) -> Mapping[str, Any]:
    """Returns the model's `checkpoint_items` that have weights, and not only seeds."""
    items = getattr(model, "checkpoint_items", {}).items()
    return {name: item for name, item in items if not isinstance(item, list)}


def _check_sizes(path: Path, items: Mapping[str, Any], pairs: Iterable[compatibility.Pair]) -> None:
    """Raises ConfigError if an item of the checkpoint, such as an encoder, has other sizes.

    Model Garden's tasks also reject such checkpoints. States of random generators may be missing.
    """
    fitting = {id(pair.variable) for pair in pairs if not pair.difference}
    other = {id(pair.variable): pair.difference for pair in pairs}
    for name, item in items.items():
        weights = [
            pair for pair in compatibility.variables({name: item}) if pair[1].dtype.is_floating
        ]
        wrong = [
            other.get(id(weight)) or f"{compatibility.describe(place, weight)} in the model only"
            for place, weight in weights
            if id(weight) not in fitting
        ]
        if wrong and any(id(weight) in other for _, weight in weights):
            raise ConfigError(
                f"init_checkpoint {path}: the sizes of its {name} differ from those of the "
                f"model's: {text.some(wrong)}. Configure the model's {name} as it was saved"
            )


def _left(
    model: tf_keras.Model, roots: Mapping[str, Any], found: Iterable[tf.Variable]
) -> list[str]:
    """Returns a line for each weight of the model that was not found."""
    left = {id(each) for each in keras_internals.variables(model)} - {id(each) for each in found}
    there = compatibility.variables({"": model, **roots})
    return [compatibility.describe(path, each) for path, each in there if id(each) in left]


def misfit(error: Exception) -> str:
    """Explains why TensorFlow or Keras could not load a checkpoint. Empty for other errors."""
    kinds = (AssertionError, ValueError, tf.errors.OpError)
    if not isinstance(error, kinds) or not tf_internals.is_of_restore(error):
        return ""
    said = str(getattr(error, "message", error)).strip()
    if not (names := [f"{found[1]} {found[3]} {found[2]}" for found in _VARIABLE.finditer(said)]):
        return said.partition("\n")[0].rstrip(".")
    counted = _FOUND.match(said)  # the message names at most ten of them
    names += [""] * (int(counted[1]) - len(names) if counted else 0)
    many = text.counted(len(names), "variable")
    return f"it lacks {many} of the model: {text.some(names)}"


def held(path: str) -> str:
    """Describes a checkpoint's contents, as the end of a sentence. Empty if it cannot be read."""
    try:
        saved = compatibility.Saved(find(Path(path)))
    except (RunnerError, *integrity.READ_ERRORS):
        return ""
    return f"; it contains {text.some(saved.describe([0]))}"


def find(path: Path) -> Path:
    """Returns the checkpoint that `init_checkpoint` names, after verifying that it is intact.

    Raises:
        ConfigError: there is none, or it is a URL.
        RunnerError: it is damaged.
    """
    if urls.is_url(path):
        raise ConfigError(
            f"init_checkpoint = {urls.shown(path)!r}: must be a local path; copy the checkpoint"
        )
    found = checkpoint_files.latest(path) if path.is_dir() else path
    found = found and found.with_name(found.name.removesuffix(".index"))
    if found is None or not checkpoint_files.exists(found):
        folder = path if path.is_dir() else path.parent
        names = sorted(file.stem for file in folder.glob("*.index"))
        there = f"; {folder} has {', '.join(names)}" if names else ""
        raise ConfigError(f"init_checkpoint = {str(path)!r}: there is no checkpoint{there}")
    if why := integrity.damage(found):
        raise RunnerError(f"{found} is damaged: {why}")
    return found
