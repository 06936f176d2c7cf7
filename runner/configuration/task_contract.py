"""Checks what a task's methods return, before the first step.

Model Garden's `Task` is a contract of a few methods that is not enforced. A violation fails much
later, deep in AutoGraph's traceback, or silently trains the wrong thing.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras
from official.core import base_task, task_factory
from official.core import config_definitions as cfg

from runner.configuration import label_shapes, registry
from runner.core import user_code
from runner.errors import ConfigError
from runner.internals import tensorflow as tf_internals

RUN_FOLDER = "run_folder"
"""An optional task attribute that is set to the run's directory before the model is built.

The task may read this directory. It may write to `logging_dir`, which is a directory within the
run's, or in another place if a mode only reads the run.
"""


def build_task(
    config: cfg.TaskConfig, logging_dir: str, run_folder: Path | None = None
) -> base_task.Task:
    """Returns the task registered for `config`.

    Args:
        config: The task's config.
        logging_dir: The directory to which the task may write.
        run_folder: The run's directory. None if it is `logging_dir`.

    Raises:
        ConfigError: if no task is registered.
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
    """Returns the task's model.

    Raises:
        ConfigError: if it is not a model, or Model Garden's steps cannot train and evaluate it.
    """
    return checked(task, task.build_model, task.build_model(), _wrong_model)


def build_inputs(task: base_task.Task, *arguments: Any) -> Any:
    """Returns the task's inputs.

    Raises:
        ConfigError: if they are not datasets.
    """
    return checked(task, task.build_inputs, task.build_inputs(*arguments), _wrong_inputs)


@contextlib.contextmanager
def kept(task: base_task.Task) -> Iterator[None]:
    """Checks the metrics and losses that the task returns inside the context.

    Raises:
        ConfigError: if the metrics are not metrics, or the loss is missing or clearly unintended.
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


def checked(
    task: base_task.Task,
    method: Callable[..., Any],
    found: Any,
    wrong: Callable[[base_task.Task, Any], str | None],
) -> Any:
    """Returns the method's result `found`, or raises a ConfigError if `wrong` rejects it."""
    if mistake := wrong(task, found):
        raise ConfigError(f"{method_named(task, method)} {mistake}")
    return found


def _checking_metrics(task: base_task.Task, method: Callable[..., Any]) -> Callable[..., Any]:
    def checking(*args: Any, **kwargs: Any) -> Any:
        return checked(task, method, method(*args, **kwargs), _wrong_metrics)

    return checking


def _checking_losses(task: base_task.Task, method: Callable[..., Any]) -> Callable[..., Any]:
    in_graph = tf_internals.converted(method)

    @tf.autograph.experimental.do_not_convert
    def checking(*args: Any, **kwargs: Any) -> Any:
        before = label_shapes.operations()
        loss = in_graph(*args, **kwargs)
        _check_loss(task, method, loss)
        label_shapes.check(method, args, kwargs, before)
        return loss

    return checking


@tf.autograph.experimental.do_not_convert
def _check_loss(task: base_task.Task, method: Callable[..., Any], loss: Any) -> None:
    if loss is None:
        raise ConfigError(f"{method_named(task, method)} returns None; return the loss")


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
        f"returns {described(inputs)}; return a tf.data.Dataset of batches, such as "
        "runner.inputs.place makes, or tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(n)"
    )


def _wrong_metrics(_: base_task.Task, metrics: Any) -> str | None:
    if not isinstance(metrics, list):
        return f"returns {described(metrics)}; return a list of tf_keras.metrics, [] for none"
    for metric in metrics:
        if not isinstance(metric, tf_keras.metrics.Metric) and not hasattr(metric, "reset_state"):
            return f"returns {described(metric)} in its list; return tf_keras.metrics"
    return None


def method_named(task: base_task.Task, method: Callable[..., Any]) -> str:
    """Returns a name such as `shapes.py:12: ShapesTask.build_model`."""
    return f"{user_code.place(method)}: {type(task).__name__}.{method.__name__}"


def described(value: Any) -> str:
    """Returns a description such as `a list of int, str`."""
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {', '.join(type(part).__name__ for part in value)}"
    return "None" if value is None else f"a {type(value).__name__}"
