"""Each member's predictions for a data set, cached in a file for each checkpoint."""

import dataclasses
import gc
import hashlib
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras

from runner.configuration import prediction_contract, printing
from runner.core import console, files
from runner.data import determinism
from runner.errors import ConfigError
from runner.evaluation import evaluation_sets, evaluator
from runner.evaluation.prediction import made_of, predictor
from runner.runs import build, predict
from runner.runs.call import Call
from runner.storage import display_names
from runner.studies.ensembles.members import Member


class Predicted(NamedTuple):
    """The predictions of one member.

    Attributes:
        parts: [n, ...] The values to average, in one array for all examples, or one for each batch
            if their sizes differ.
        labels: For each part the class of each prediction, without the last axis, or None if the
            data have no such labels.
        classes: The names of the classes, or empty if unknown.
    """

    parts: list[np.ndarray]
    labels: list[np.ndarray] | None
    classes: list[str]


def predicted(
    call: Call, member: Member, names: Sequence[str], cache: Path
) -> dict[str, Predicted]:
    """Returns a member's predictions for some data sets. Builds its model only if needed.

    Args:
        call: The mode's arguments.
        member: The member.
        names: Of the data.
        cache: The directory of the files.

    Raises:
        ConfigError: there are no such data, or the task does not define the values to average.
    """
    paths = {name: cache / f"{_key(member, name)}.npz" for name in names}
    found = {name: kept for name, path in paths.items() if (kept := _read(path))}
    if len(found) == len(names):
        return found
    built = built_for(call, member, cache)
    _check_task(built)
    console.say(f"predicting with {display_names.of(member.checkpoint)}")
    built.restore(member.checkpoint)
    with built.averages_in_force():
        for name in names:
            if name not in found:
                found[name] = _predict(call, built, member, name)
                _write(paths[name], found[name])
    del built
    tf_keras.backend.clear_session()
    gc.collect()  # one model at a time
    return found


def built_for(call: Call, member: Member, folder: Path) -> evaluator.Evaluator:
    """Builds a member's task and model without restoring weights."""
    given = call.given._replace(task=member.task)
    own = dataclasses.replace(call, config=member.config, model_dir=member.folder, given=given)
    return build.build_evaluator(own, folder, evaluates=False)


def dataset(built: evaluator.Evaluator, member: Member, name: str) -> Any:
    """Returns a distributed data set from its start."""
    data = predict.named_data(member.config, name)
    with built.strategy.scope():
        examples = evaluation_sets.portion(data.part_of, built.task) if data.part_of else None
        return evaluation_sets.dataset(
            member.config, built.task, data.config, f"{name} data", examples
        )


def _check_task(built: evaluator.Evaluator) -> None:
    missing = [
        name
        for name in (prediction_contract.AVERAGED, prediction_contract.FROM_AVERAGED)
        if not hasattr(built.task, name)
    ]
    if missing:
        raise ConfigError(
            f"{type(built.task).__name__} has no method {' and no method '.join(missing)}: an "
            "ensemble needs to know what is averaged (docs/guides/ensembles.md)"
        )


def _predict(call: Call, built: evaluator.Evaluator, member: Member, name: str) -> Predicted:
    def predict_step(features: Any, labels: Any) -> dict[str, Any]:
        outputs = built.task.inference_step(features, built.model)
        columns = {"averaged": tf.cast(built.task.averaged(outputs), tf.float32)}
        for name in (prediction_contract.AVERAGED_LABELS, prediction_contract.PREDICTION_LABEL):
            if hasattr(built.task, name):
                labels = getattr(built.task, name)(labels)
                break
        plain = isinstance(labels, tf.Tensor) and labels.dtype.is_integer
        return {**columns, "label": labels} if plain else columns

    parts: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    iterator = determinism.Determinism.of_evaluations().begin(dataset(built, member, name))
    for batch in predictor.Predictor(built, predict_step).batches(iterator):
        call.stop.check()
        for columns in batch.columns():
            parts.append(columns["averaged"])
            if "label" in columns:
                labels.append(columns["label"])
    if not parts:
        raise ConfigError(f"the {name} data of {member.folder} are empty")
    if len({part.shape[1:] for part in parts}) == 1:
        parts, labels = [np.concatenate(parts)], [np.concatenate(labels)] if labels else []
    classes = getattr(built.task, prediction_contract.AVERAGED_CLASSES, lambda: ())()
    return Predicted(parts, _of_classes(parts, labels), [str(each) for each in classes])


def _of_classes(parts: list[np.ndarray], labels: list[np.ndarray]) -> list[np.ndarray] | None:
    """Returns labels in the shape of the predictions.

    Returns None unless each prediction has a label and at least one label is known.
    """
    sizes = [part.size // part.shape[-1] for part in parts]
    if parts[0].ndim < 2 or [label.size for label in labels] != sizes:
        return None
    if not any((label >= 0).any() for label in labels):
        return None
    pairs = zip(labels, parts, strict=True)
    return [label.reshape(part.shape[:-1]).astype(np.int64) for label, part in pairs]


def _key(member: Member, name: str) -> str:
    """Returns a key that changes with the weights, the task's configuration and the data files."""
    index = member.checkpoint.with_name(f"{member.checkpoint.name}.index")
    data = printing.plain(predict.named_data(member.config, name).config)
    facts: Mapping[str, Any] = {
        "weights": hashlib.sha256(index.read_bytes()).hexdigest(),
        "task": printing.plain(member.config.task),
        "runtime": printing.plain(member.config.runtime),
        "data": [name, data, dict(made_of.stamps(data))],
    }
    text = json.dumps(facts, sort_keys=True, default=str)
    return f"{member.folder.name}-{member.step}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _read(path: Path) -> Predicted | None:
    """Reads a cached file. Returns None if it is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            held = dict(file)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
        return None
    count = sum(name.startswith("part") for name in held)
    labels = [held[f"label{n}"] for n in range(count)] if "label0" in held else None
    parts = [held[f"part{n}"] for n in range(count)]
    return Predicted(parts, labels, held["classes"].tolist())


def _write(path: Path, predicted: Predicted) -> None:
    arrays = {f"part{n}": part for n, part in enumerate(predicted.parts)}
    arrays |= {f"label{n}": part for n, part in enumerate(predicted.labels or ())}
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.whole(path) as file:
        np.savez(file, classes=np.array(predicted.classes, str), **arrays)  # type: ignore[arg-type]
