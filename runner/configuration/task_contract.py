"""Checks what a task's methods return, before the first step.

Official's `Task` is a contract of a few methods that nothing enforces: violations fail much later,
a hundred lines deep in AutoGraph, or silently train something else.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import base_task, task_factory
from official.core import config_definitions as cfg

from runner.configuration import registry
from runner.core import user_code
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

RUN_FOLDER = "run_folder"
"""A task may have this attribute: set to the run's folder, which it may read, before the model is
built. `logging_dir`, where it may write, is a folder within or elsewhere where a mode only reads
the run."""


def build_task(
    config: cfg.TaskConfig, logging_dir: str, run_folder: Path | None = None
) -> base_task.Task:
    """The task registered for `config`.

    Args:
        config: The task's section.
        logging_dir: Where it may write.
        run_folder: Where the run is; None: in `logging_dir`.

    Raises:
        ConfigError: no task is registered.
    """
    kind = config.__class__  # `runner.configuration.unused_values` changes its type
    if getattr(config, "BUILDER", None) is None and registry.task_module(config) is None:
        raise ConfigError(
            f"{user_code.place(kind)}: no task is registered for {kind.__name__}: write "
            f"@task_factory.register_task_cls({kind.__name__}) above the task's class, and import "
            "its module in the gin file"
        )
    task = task_factory.get_task(config, logging_dir=logging_dir)
    if hasattr(task, RUN_FOLDER):
        setattr(task, RUN_FOLDER, run_folder or Path(logging_dir))
    return task


def build_model(task: base_task.Task) -> tf_keras.Model:
    """The task's model.

    Raises:
        ConfigError: it is not a model, or one that official's steps cannot train and evaluate.
    """
    return _checked(task, task.build_model, task.build_model(), _wrong_model)


def build_inputs(task: base_task.Task, *arguments: Any) -> Any:
    """The task's inputs.

    Raises:
        ConfigError: they are not datasets.
    """
    return _checked(task, task.build_inputs, task.build_inputs(*arguments), _wrong_inputs)


@tf.autograph.experimental.do_not_convert
def prediction(task: base_task.Task, outputs: Any) -> dict[str, Any]:
    """The columns that `outputs`, of the task's `prediction` or its model, make.

    Raises:
        ConfigError: they are not tensors with an axis of examples.
    """
    method = getattr(task, PREDICTION, task.inference_step)
    columns = named(outputs)
    columns = columns if isinstance(columns, dict) else {"output": columns}
    _checked(task, method, columns, _wrong_columns)
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


def prediction_keys(task: base_task.Task, data: cfg.DataConfig) -> np.ndarray | None:
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
            f"{_named(task, method)} returns {keys.dtype} {list(keys.shape)}; return a string or a "
            "whole number for each example, or None"
        )
    repeats = np.append(False, keys[1:] == keys[:-1])
    of_rows = keys[~repeats] if hasattr(task, PREDICTION_ROWS) else keys
    different, counts = np.unique(of_rows, return_counts=True)
    if several := different[counts > 1].tolist():
        raise ConfigError(f"{_named(task, method)} gives several rows the key {several[0]!r}")
    return keys


def prediction_rows(
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
            f"{_named(task, task.prediction_rows)} returns {_described(made)}; return a dict of "
            "columns, without 'key', which is the example's"
        )
    return made


@contextlib.contextmanager
def kept(task: base_task.Task) -> Iterator[None]:
    """A context in which the metrics and losses that the task returns are checked.

    Raises:
        ConfigError: the metrics are not metrics, or the loss is missing or clearly unintended.
    """
    own = vars(task)
    methods = {name: getattr(task, name) for name in ("build_metrics", "build_losses")}
    before = {name: own[name] for name in methods if name in own}
    own["build_metrics"] = _checking_metrics(task, methods["build_metrics"])
    own["build_losses"] = _checking_losses(task, methods["build_losses"])
    try:
        yield
    finally:
        for name in methods:
            del own[name]
        own.update(before)


def _checked(
    task: base_task.Task,
    method: Callable[..., Any],
    found: Any,
    wrong: Callable[[base_task.Task, Any], str | None],
) -> Any:
    """The method's result `found`; raises ConfigError if `wrong` says why it is invalid."""
    if mistake := wrong(task, found):
        raise ConfigError(f"{_named(task, method)} {mistake}")
    return found


def _checking_metrics(task: base_task.Task, method: Callable[..., Any]) -> Callable[..., Any]:
    def checking(*args: Any, **kwargs: Any) -> Any:
        return _checked(task, method, method(*args, **kwargs), _wrong_metrics)

    return checking


def _checking_losses(task: base_task.Task, method: Callable[..., Any]) -> Callable[..., Any]:
    """AutoGraph converts the returned function, and the task's method with it."""

    def checking(*args: Any, **kwargs: Any) -> Any:
        before = _operations()
        loss = method(*args, **kwargs)
        _check_losses(task, method, args, kwargs, loss, before)
        return loss

    return checking


def _wrong_model(task: base_task.Task, model: Any) -> str | None:
    if model is None:
        return "returns None; return the model"
    if any(kind.__module__.partition(".")[0] == "keras" for kind in type(model).__mro__):
        return (
            "returns a Keras 3 model, and Model Garden's tasks are for tf_keras, which is Keras 2: "
            "import tf_keras, and build it of tf_keras.layers (tf.keras is Keras 3, unless "
            "TF_USE_LEGACY_KERAS=1 is in the environment)"
        )
    official = base_task.Task
    steps = type(task).train_step is official.train_step
    steps &= type(task).validation_step is official.validation_step
    if steps and getattr(model, "compiled_loss", None):
        return (
            "returns a compiled model, whose loss no evaluation would see: leave out compile(); "
            "build_losses gives the loss, build_metrics the metrics, OptimizerConfig the optimizer"
        )
    return None


def _wrong_inputs(_: base_task.Task, inputs: Any) -> str | None:
    kinds = (tf.data.Dataset, tf.distribute.DistributedDataset)
    parts = tf.nest.flatten(inputs)
    if parts and all(isinstance(part, kinds) for part in parts):
        return None
    return (
        f"returns {_described(inputs)}; return a tf.data.Dataset of batches, such as "
        "runner.inputs.place makes, or tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(n)"
    )


def _wrong_columns(_: base_task.Task, columns: Mapping[str, Any]) -> str | None:
    if not columns:
        return "returns nothing; return tensors, by name if there are several"
    if "key" in columns:
        return "calls an output 'key', which is the example's key: give it another name"
    for part in tf.nest.flatten(columns):
        if not isinstance(part, tf.Tensor):
            return f"returns {_described(part)}; return tensors, by name if there are several"
        if part.shape.rank == 0 or part.dtype.is_complex:
            return (
                f"returns a tensor {part.dtype.name} {part.shape}; the first axis must be that of "
                "the examples, and numbers real"
            )
    return None


def _wrong_metrics(_: base_task.Task, metrics: Any) -> str | None:
    if not isinstance(metrics, list):
        return f"returns {_described(metrics)}; return a list of tf_keras.metrics, [] for none"
    for metric in metrics:
        if not isinstance(metric, tf_keras.metrics.Metric) and not hasattr(metric, "reset_state"):
            return f"returns {_described(metric)} in its list; return tf_keras.metrics"
    return None


@tf.autograph.experimental.do_not_convert
def _operations() -> int:
    """The number of operations in the graph being traced; 0 if steps run eagerly."""
    return 0 if tf.executing_eagerly() else len(tf.compat.v1.get_default_graph().get_operations())


@tf.autograph.experimental.do_not_convert
def _check_losses(
    task: base_task.Task,
    method: Callable[..., Any],
    args: tuple,
    kwargs: dict[str, Any],
    loss: Any,
    before: int,
) -> None:
    if loss is None:
        raise ConfigError(f"{_named(task, method)} returns None; return the loss")
    if tf.executing_eagerly():
        return
    try:
        given = inspect.signature(method).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return
    made = tf.compat.v1.get_default_graph().get_operations()[before:]
    if found := _spread(given.get("labels"), given.get("model_outputs"), made):
        operation, labels, outputs = found
        (result,) = operation.outputs
        users = user_code.users(operation.traceback)
        place = users[-1].place if users else user_code.place(method)
        raise ConfigError(
            f"{place}: labels {labels} against outputs {outputs} make {result.shape}: each label "
            "meets the output of every example. Give the labels a last axis of one "
            "(labels[:, None]), or take it from the outputs (tf.squeeze(model_outputs, -1))"
        )


@tf.autograph.experimental.do_not_convert
def _spread(labels: Any, outputs: Any, made: Iterable[tf.Operation]) -> Any:
    """The operation that combines labels [n] with outputs [n, 1], broadcasting to [n, n].

    It finds operations on the labels and outputs themselves or on values of the same shape derived
    from them, as by a cast or a logarithm, but not inside nested function graphs.
    """
    origin = {
        tensor.ref(): (name, tensor.shape)
        for name, tensors, rank in (("labels", labels, 1), ("outputs", outputs, 2))
        for tensor in tf.nest.flatten(tensors)
        if isinstance(tensor, tf.Tensor) and tensor.shape.rank == rank
        if name == "labels" or tensor.shape[-1] == 1
    }
    for operation in made:
        if len(operation.outputs) != 1:
            continue
        (result,) = operation.outputs
        sized = [tensor for tensor in operation.inputs if tensor.shape.rank != 0]
        found = dict(origin[tensor.ref()] for tensor in sized if tensor.ref() in origin)
        if len(sized) == 1 and found and result.shape.as_list() == sized[0].shape.as_list():
            origin[result.ref()] = origin[sized[0].ref()]
        both = len(sized) == len(found) == 2 and result.shape.rank == 2 and result.shape[-1] != 1
        if both and found["labels"].is_compatible_with(found["outputs"][:1]):
            return operation, found["labels"], found["outputs"]
    return None


def _named(task: base_task.Task, method: Callable[..., Any]) -> str:
    return f"{user_code.place(method)}: {type(task).__name__}.{method.__name__}"


def _described(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {', '.join(type(part).__name__ for part in value)}"
    return "None" if value is None else f"a {type(value).__name__}"
