"""Optional task methods for predictions, and checks of what they return."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from official.core import base_task
from official.core import config_definitions as cfg

from runner.configuration.task_contract import checked, described, method_named
from runner.errors import ConfigError

PREDICTION = "prediction"
"""An optional task method: outputs of `inference_step` -> the prediction.

The prediction is tensors [batch, ...] by name. Without the method, the outputs are the prediction.
"""

PREDICTION_KEYS = "prediction_keys"
"""An optional task method: data's configuration -> the key of each example, in order.

Keys are strings or whole numbers. Without the method, or if it returns None, the keys are the
examples' indices.
"""

PREDICTION_ROWS = "prediction_rows"
"""An optional task method: data's configuration, columns -> the columns of the rows.

It is called on the host. The columns are NumPy arrays: those of `prediction`, `label` if the data
have it, and `index`, the examples' indices. Successive examples with the same key make one row and
arrive in one call.
"""

PREDICTION_LABEL = "prediction_label"
"""An optional task method: labels as the data have them -> the content of the column `label`.

Without the method, the column contains all labels.
"""

AVERAGED = "averaged"
"""An optional task method: outputs of `inference_step` -> the tensor [batch, ...] to average.

Ensembles average it. Probabilities sum to 1 on the last axis.
"""

FROM_AVERAGED = "from_averaged"
"""A required method of a task with `averaged`: such a mean -> outputs that can be scored."""

AVERAGED_LABELS = "averaged_labels"
"""An optional task method: labels as the data have them -> the true classes.

It returns the true class of each probability distribution that is averaged, as whole numbers,
negative if unknown. Without the method, the classes are what `prediction_label` returns, or all
labels.
"""

AVERAGED_CLASSES = "averaged_classes"
"""An optional task method: the names of the classes on the last axis of the averaged tensor."""


@tf.autograph.experimental.do_not_convert
def columns_of(task: base_task.Task, outputs: Any) -> dict[str, Any]:
    """Returns the columns made from `outputs` of the task's `prediction` or its model.

    Raises:
        ConfigError: if they are not tensors with an axis of examples.
    """
    method = getattr(task, PREDICTION, task.inference_step)
    columns = named(outputs)
    columns = columns if isinstance(columns, dict) else {"output": columns}
    checked(task, method, columns, _wrong_columns)
    return columns


def named(outputs: Any) -> Any:
    """Returns a structure of dicts. Parts of a sequence become `output_0`, `output_1` and so on."""
    if isinstance(outputs, Mapping):
        return {str(name): named(part) for name, part in outputs.items()}
    if hasattr(outputs, "_asdict"):
        return named(outputs._asdict())
    if isinstance(outputs, tuple | list):
        return {f"output_{number}": named(part) for number, part in enumerate(outputs)}
    return outputs


def keys_of(task: base_task.Task, data: cfg.DataConfig) -> np.ndarray | None:
    """Returns the keys of all examples, [examples] strings or numbers, or None without a method.

    Raises:
        ConfigError: if they are not, or several rows have the same key.
    """
    if not hasattr(task, PREDICTION_KEYS):
        return None
    method = task.prediction_keys
    if (keys := method(data)) is None:
        return None
    keys = keys if isinstance(keys, np.ndarray) else list(keys)
    texts = all(isinstance(key, str) for key in keys)
    keys = np.array(keys, object) if texts else np.asarray(keys)  # objects keep their length
    if keys.ndim != 1 or not (texts or keys.dtype.kind in "iu"):
        raise ConfigError(
            f"{method_named(task, method)} returns {keys.dtype} {list(keys.shape)}; return a "
            "string or a whole number for each example, or None"
        )
    repeats = np.append(False, keys[1:] == keys[:-1])
    of_rows = keys[~repeats] if hasattr(task, PREDICTION_ROWS) else keys
    different, counts = np.unique(of_rows, return_counts=True)
    if several := different[counts > 1].tolist():
        raise ConfigError(f"{method_named(task, method)} gives several rows the key {several[0]!r}")
    return keys


def rows_of(
    task: base_task.Task, data: cfg.DataConfig, columns: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """Returns the columns of the rows that examples make, or None without such a method.

    Raises:
        ConfigError: if they are not columns.
    """
    if not hasattr(task, PREDICTION_ROWS):
        return None
    made = task.prediction_rows(data, columns)
    if not isinstance(made, Mapping) or not made or "key" in made:
        raise ConfigError(
            f"{method_named(task, task.prediction_rows)} returns {described(made)}; return a dict "
            "of columns, without 'key', which is the example's"
        )
    return made


def _wrong_columns(_: base_task.Task, columns: Mapping[str, Any]) -> str | None:
    if not columns:
        return "returns nothing; return tensors, by name if there are several"
    if "key" in columns:
        return "calls an output 'key', which is the example's key: give it another name"
    for part in tf.nest.flatten(columns):
        if not isinstance(part, tf.Tensor):
            return f"returns {described(part)}; return tensors, by name if there are several"
        if part.shape.rank == 0 or part.dtype.is_complex:
            return (
                f"returns a tensor {part.dtype.name} {part.shape}; the first axis must be that of "
                "the examples, and numbers real"
            )
    return None
