"""Several tasks that train one model, as one task: Model Garden's two multitask trainers.

`Joint` trains all tasks in each step, on the sum of their losses. `Interleaved` trains one task in
each step, drawn at random. The draw depends only on the number of the batch, so it is part of the
inputs. A run that resumes, or that skips a bad batch, continues with the same sequence.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras
from official.core import base_task
from official.core import config_definitions as cfg
from official.modeling.multitask import base_model, configs, task_sampler
from official.modeling.multitask import multitask as official_multitask

from runner.configuration import task_contract
from runner.data import pipeline
from runner.errors import ConfigError
from runner.evaluation import evaluator

_CHOICE = "task"  # the key of the drawn task's number among the inputs


class Metric(tf.Module):
    """A metric of one of the tasks, named after it: `task/metric`.

    Args:
        task: The name of the task.
        metric: The task's metric.

    Attributes:
        task: The name of the task.
        metric: The task's metric.
    """

    def __init__(self, task: str, metric: Any) -> None:
        super().__init__()
        self.task, self.metric = task, metric

    @property
    def name(self) -> str:
        """The metric's name, prefixed with the task's name."""
        return f"{self.task}/{self.metric.name}"

    def result(self) -> Any:
        """The metric's result."""
        return self.metric.result()

    def reset_state(self) -> None:
        """Resets the metric."""
        self.metric.reset_state()


class Loss(Metric):
    """The mean of a task's training losses, `task/training_loss`.

    Args:
        task: The name of the task.
    """

    def __init__(self, task: str) -> None:
        super().__init__(task, tf_keras.metrics.Mean("training_loss", dtype=tf.float32))


class Alternative(NamedTuple):
    """A possible training step.

    Attributes:
        take: Selects the inputs of `train_step` from those of all tasks.
        train_step: Like `Task.train_step`.
    """

    take: Callable[[Any], Any]
    train_step: Callable[..., Any]


class Together(base_task.Task):
    """Several tasks as one.

    Args:
        section: The tasks' config.
        several: The tasks and their weights.
        build_model: Builds the model for all tasks.

    Attributes:
        tasks: The tasks by name.
    """

    def __init__(
        self,
        section: configs.MultiTaskConfig,
        several: official_multitask.MultiTask,
        build_model: Callable[[], Any],
    ) -> None:
        super().__init__(section)
        self._several = several
        self._build_model = build_model
        self._specs: Mapping[str, Any] = {}
        self.tasks: Mapping[str, base_task.Task] = several.tasks
        self.create_optimizer = several.create_optimizer

    def build_model(self) -> Any:
        """The model, with all its variables."""
        model = self._build_model()
        if isinstance(model, base_model.MultiTaskBaseModel):
            if missing := set(self.tasks) - set(model.sub_tasks):
                raise ConfigError(
                    f"{type(model).__name__} has no sub-task {', '.join(sorted(missing))}; it has "
                    f"{', '.join(model.sub_tasks)}"
                )
            model.build()
        return model

    def initialize(self, model: Any) -> None:
        """Lets the model load its own checkpoint, or loads `init_checkpoint` as for one task."""
        if isinstance(model, base_model.MultiTaskBaseModel) and (
            type(model).initialize is not base_model.MultiTaskBaseModel.initialize
        ):
            model.initialize()
        else:
            super().initialize(model)

    def build_metrics(self, training: bool = True) -> list[Any]:
        """The losses and the metrics of all tasks."""
        return [
            metric
            for name, task in self.tasks.items()
            for metric in (
                Loss(name),
                *(Metric(name, each) for each in task.build_metrics(training=training)),
            )
        ]

    def build_inputs(
        self, params: Any, input_context: tf.distribute.InputContext | None = None
    ) -> tf.data.Dataset:
        """The training inputs of all tasks, one element for each step and replica.

        Args:
            params: The seed for tasks without their own, and perhaps the step to start at.
            input_context: Describes the replicas.
        """
        start = getattr(params, "start_step", 0)
        steps = self._steps_before(start) if start else {}
        built = {
            name: _inputs(name, task, _placed(task, params, steps.get(name, 0)), input_context)
            for name, task in self.tasks.items()
        }
        self._specs = {name: dataset.element_spec for name, dataset in built.items()}
        return self._combined(built, start, _replicas(input_context))

    @property
    def streams(self) -> bool:
        """Whether any task reads its inputs sequentially, regardless of their config."""
        return any(getattr(task, "streams", False) for task in self.tasks.values())

    def _steps_before(self, step: int) -> Mapping[str, int]:
        """The number of the first `step` steps that train each task."""
        raise NotImplementedError

    def _combined(
        self, inputs: Mapping[str, tf.data.Dataset], start: int, replicas: int
    ) -> tf.data.Dataset:
        """Combines the tasks' inputs into one dataset that starts at `step`."""
        raise NotImplementedError

    def _own(self, metrics: Sequence[Metric], name: str) -> list[Any]:
        """Selects the metrics that the task of this name has built."""
        return [each.metric for each in metrics if each.task == name and not isinstance(each, Loss)]


class Joint(Together):
    """Trains all tasks in each step."""

    def _steps_before(self, step: int) -> Mapping[str, int]:
        return dict.fromkeys(self.tasks, step)

    def _combined(
        self, inputs: Mapping[str, tf.data.Dataset], start: int, replicas: int
    ) -> tf.data.Dataset:
        del start, replicas
        return tf.data.Dataset.zip(dict(inputs))

    def train_step(
        self, inputs: Any, model: Any, optimizer: Any, metrics: Sequence[Any] = ()
    ) -> dict[str, Any]:
        """Runs Model Garden's joint step."""
        losses = self._several.joint_train_step(
            inputs,
            multi_task_model=model,
            optimizer=optimizer,
            task_metrics={name: self._own(metrics, name) for name in self.tasks},
        )
        for each in metrics:
            if isinstance(each, Loss):
                each.metric.update_state(losses[each.task])
        return {self.loss: losses["total_loss"]}


class Interleaved(Together):
    """Trains one task in each step, which a sampler draws.

    Args:
        section: As for `Together`.
        several: As for `Together`.
        build_model: As for `Together`.
        sampling: The sampling of tasks.
    """

    def __init__(
        self,
        section: configs.MultiTaskConfig,
        several: official_multitask.MultiTask,
        build_model: Callable[[], Any],
        sampling: configs.TaskSamplingConfig,
    ) -> None:
        super().__init__(section, several, build_model)
        self._sampling = sampling

    @property
    def alternatives(self) -> list[Alternative]:
        """The steps of the tasks, in their order."""
        return [
            Alternative(functools.partial(self._taken, name), functools.partial(self._step, name))
            for name in self.tasks
        ]

    def chosen(self, inputs: Any) -> tf.Tensor:
        """The index of the task that a replica's inputs belong to."""
        return inputs[_CHOICE]

    def _taken(self, name: str, inputs: Any) -> Any:
        """The inputs of a task, with the static shapes of its dataset."""

        def shaped(value: Any, spec: Any) -> Any:
            return tf.ensure_shape(value, spec.shape) if isinstance(spec, tf.TensorSpec) else value

        return tf.nest.map_structure(shaped, inputs[name], self._specs[name])

    def _step(
        self, name: str, inputs: Any, model: Any, optimizer: Any, metrics: Sequence[Any] = ()
    ) -> dict[str, Any]:
        task = self.tasks[name]
        logs = task.train_step(
            inputs,
            model=evaluator.part_for(model, name),
            optimizer=optimizer,
            metrics=self._own(metrics, name),
        )
        for each in metrics:
            if isinstance(each, Loss) and each.task == name:
                each.metric.update_state(logs[task.loss])
        return {self.loss: logs[task.loss]}

    def _steps_before(self, step: int) -> Mapping[str, int]:
        none = tf.zeros([len(self.tasks)], tf.int64)
        numbers = self._choices(0, 1).take(step)
        counts = numbers.reduce(none, lambda n, index: n + tf.one_hot(index, len(n), dtype=n.dtype))
        return dict(zip(self.tasks, counts.numpy().tolist(), strict=True))

    def _combined(
        self, inputs: Mapping[str, tf.data.Dataset], start: int, replicas: int
    ) -> tf.data.Dataset:
        names = list(inputs)
        alike = [
            inputs[name].map(functools.partial(_among, names, self._specs, index))
            for index, name in enumerate(names)
        ]
        return tf.data.Dataset.choose_from_datasets(alike, self._choices(start, replicas))

    def _choices(self, start: int, replicas: int) -> tf.data.Dataset:
        """The index of the task for each element, starting at step `start`."""
        sampler = task_sampler.get_task_sampler(self._sampling, self._several.task_weights)
        count = len(self.tasks)
        elements = tf.data.Dataset.counter(start * replicas)
        return elements.map(lambda element: _drawn(sampler, element // replicas, count))


def of(
    section: configs.MultiTaskConfig,
    trainer: cfg.TrainerConfig,
    several: official_multitask.MultiTask,
    build_model: Callable[[], Any],
) -> Together:
    """Combines several tasks into one, trained as configured by `trainer`."""
    defaults = configs.MultiTaskTrainerConfig()
    if getattr(trainer, "trainer_type", defaults.trainer_type) == "joint":
        return Joint(section, several, build_model)
    sampling = getattr(trainer, "task_sampler", defaults.task_sampler)
    return Interleaved(section, several, build_model, sampling)


def alternatives(task: base_task.Task) -> list[Alternative]:
    """The possible training steps of a task."""
    if isinstance(task, Interleaved):
        return task.alternatives
    return [Alternative(lambda inputs: inputs, task.train_step)]


def _placed(task: base_task.Task, params: Any, step: int) -> Any:
    """The training data of a task, starting at its own `step`."""
    data = task.task_config.train_data
    if getattr(data, "seed", 0) is None:
        data = data.replace(seed=params.seed)
    return data.replace(start_step=step) if step else data


def _replicas(context: tf.distribute.InputContext | None) -> int:
    """The number of elements that a step takes from an input pipeline."""
    return context.num_replicas_in_sync // context.num_input_pipelines if context else 1


def _inputs(
    name: str, task: base_task.Task, data: Any, context: tf.distribute.InputContext | None
) -> tf.data.Dataset:
    """The training inputs of one task, with each batch split for the replicas."""
    dataset = pipeline.inputs_of(task, data, context)
    if not isinstance(dataset, tf.data.Dataset):
        raise ConfigError(
            f"{task_contract.method_named(task, task.build_inputs)} of the task {name!r} returns "
            f"{task_contract.described(dataset)}; with several tasks, return a tf.data.Dataset"
        )
    several = context is not None and context.num_replicas_in_sync > 1
    if several and not pipeline.takes_context(task):
        return pipeline.share(dataset, context)
    return dataset


def _drawn(sampler: task_sampler.TaskSampler, step: tf.Tensor, count: int) -> tf.Tensor:
    """The index of the task that Model Garden's trainer draws for a step."""
    drawn = tf.random.stateless_uniform([], seed=tf.stack([tf.zeros_like(step), step]))
    ends = sampler.task_cumulative_distribution(step)
    passed = tf.reduce_sum(tf.cast(drawn >= ends, tf.int64))
    return tf.minimum(passed, count - 1)  # due to rounding, the last end may be less than one


def _among(names: Sequence[str], specs: Mapping[str, Any], index: int, *batch: Any) -> Any:
    """A task's batch with empty ones of the others, so that all elements have one structure."""
    own = batch[0] if len(batch) == 1 else batch
    empty = {
        name: tf.nest.map_structure(functools.partial(_empty, name), specs[name]) for name in names
    }
    return {**empty, names[index]: own, _CHOICE: tf.constant(index)}


def _empty(name: str, spec: Any) -> tf.Tensor:
    if not isinstance(spec, tf.TensorSpec):
        raise ConfigError(
            f"the inputs of the task {name!r} have a {type(spec).__name__}; with trainer_type = "
            "'interleaving' they must be tensors: make them dense, or set it to 'joint'"
        )
    rank = spec.shape.rank or 0
    sizes = [0, *(size or 0 for size in spec.shape[1:])] if rank else []
    return tf.zeros(sizes, spec.dtype)
