"""What a task may say about its predictions, and checks of what it says."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from official.core import base_task
from official.core import config_definitions as cfg

from runner.configuration.task_contract import checked, described, method_named
from runner.errors import ConfigError

PREDICTION = "prediction"
"""A task may have this method: outputs of `inference_step` -> what a prediction is, [batch, ...]
tensors by name. Without it, the outputs are the prediction."""

PREDICTION_KEYS = "prediction_keys"
"""A task may have this method: data's configuration -> the key of each example, in order, strings
or whole numbers. Without it, or for None, the keys are the examples' indices."""

PREDICTION_ROWS = "prediction_rows"
"""A task may have this method, which is called on the host: data's configuration, columns -> the
columns of the rows. The columns are NumPy arrays: those of `prediction`, `label` where the data
have it, and `index`, the examples' indices. Successive examples with the same key make one row, and
come in one call."""

PREDICTION_LABEL = "prediction_label"
"""A task may have this method: labels as the data have them -> what the column `label` has.
Without it, all of them."""

AVERAGED = "averaged"
"""A task may have this method: outputs of `inference_step` -> what an ensemble averages, a tensor
[batch, ...]. Probabilities sum to 1 on the last axis."""

FROM_AVERAGED = "from_averaged"
"""A task that has `averaged` has this method: such a mean -> outputs, which can be scored."""

AVERAGED_LABELS = "averaged_labels"
"""A task may have this method: labels as the data have them -> the right class of each probability
distribution that is averaged, whole numbers, negative where it is not known. Without it, what
`prediction_label` returns, or all of them."""

AVERAGED_CLASSES = "averaged_classes"
"""A task may have this method: the names of the classes on the last axis of what is averaged."""


@tf.autograph.experimental.do_not_convert
def columns_of(task: base_task.Task, outputs: Any) -> dict[str, Any]:
    """The columns that `outputs`, of the task's `prediction` or its model, make.

    Raises:
        ConfigError: they are not tensors with an axis of examples.
    """
    method = getattr(task, PREDICTION, task.inference_step)
    columns = named(outputs)
    columns = columns if isinstance(columns, dict) else {"output": columns}
    checked(task, method, columns, _wrong_columns)
    return columns


def named(outputs: Any) -> Any:
    """A structure of dicts: the parts of a tuple or a list are `output_0`, `output_1` and so on."""
    if isinstance(outputs, Mapping):
        return {str(name): named(part) for name, part in outputs.items()}
    if hasattr(outputs, "_asdict"):
        return named(outputs._asdict())
    if isinstance(outputs, tuple | list):
        return {f"output_{number}": named(part) for number, part in enumerate(outputs)}
    return outputs


def keys_of(task: base_task.Task, data: cfg.DataConfig) -> np.ndarray | None:
    """The keys of all examples, [examples] strings or numbers; None where the task has none.

    Raises:
        ConfigError: they are not that, or one is that of several rows.
    """
    if not hasattr(task, PREDICTION_KEYS):
        return None
    method = task.prediction_keys
    if (keys := method(data)) is None:
        return None
    keys = keys if isinstance(keys, np.ndarray) else list(keys)
    texts = all(isinstance(key, str) for key in keys)
    keys = np.array(keys, object) if texts else np.asarray(keys)  # each as long as it is
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
    """The columns of the rows that examples make; None where the task has nothing to say.

    Raises:
        ConfigError: they are not columns.
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
