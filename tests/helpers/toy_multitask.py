"""Two small tasks that share a model, and Model Garden's experiments with both of them."""

import dataclasses

import tensorflow as tf
import tf_keras
import toy
from official.core import exp_factory, task_factory
from official.modeling.multitask import base_model, configs, multitask


@dataclasses.dataclass
class HighestConfig(toy.ToyConfig):
    """The task is to find the highest coordinate."""


@dataclasses.dataclass
class LowestConfig(toy.ToyConfig):
    """The task is to find the lowest coordinate."""


@task_factory.register_task_cls(HighestConfig)
class HighestTask(toy.ToyTask):
    """That of the toy, for a part of a model."""

    def build_model(self):
        return TwoHeads().sub_tasks["highest"]


@task_factory.register_task_cls(LowestConfig)
class LowestTask(HighestTask):
    """The same points, other labels."""

    def build_inputs(self, params, input_context=None):
        dataset = super().build_inputs(params, input_context)
        return dataset.map(lambda points, _: (points, tf.argmin(points[:, :3], 1)))


class TwoHeads(base_model.MultiTaskBaseModel):
    """A shared layer, with a head for each task."""

    def _instantiate_sub_tasks(self):
        self._shared = tf_keras.layers.Dense(8, activation="relu")
        self._dropout = tf_keras.layers.Dropout(0.5)
        return {"highest": self._head(), "lowest": self._head()}

    def _head(self):
        points = tf_keras.Input((4,))
        x = self._dropout(self._shared(points))
        return tf_keras.Model(points, tf_keras.layers.Dense(3, dtype="float32")(x))


@dataclasses.dataclass
class BothConfig(configs.MultiTaskConfig):
    """The section of both tasks."""


@task_factory.register_task_cls(BothConfig)
class Both(multitask.MultiTask):
    """Both tasks."""

    def build_multitask_model(self):
        return TwoHeads()


TRAINER = {
    "train_steps": 40,
    "steps_per_loop": 10,
    "summary_interval": 10,
    "checkpoint_interval": 20,
    "validation_interval": 20,
    "validation_steps": -1,
    "best_checkpoint_eval_metric": "lowest|accuracy",
    "best_checkpoint_export_subdir": "best",
    "optimizer_config": {
        "optimizer": {"type": "adam"},
        "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.01}},
    },
}


def routines():
    return (
        configs.TaskRoutine(task_name="highest", task_config=HighestConfig(), task_weight=2.0),
        configs.TaskRoutine(task_name="lowest", task_config=LowestConfig(), eval_steps=2),
    )


def both(**trainer):
    """An experiment that trains both tasks."""
    made = configs.MultiTaskExperimentConfig(task=BothConfig(task_routines=routines()))
    made.override({"runtime": {"distribution_strategy": "off"}, "trainer": TRAINER | trainer})
    return made


def one_of_two(**trainer):
    """An experiment that trains one task, and evaluates both with its model."""
    made = configs.MultiEvalExperimentConfig(task=HighestConfig(), eval_tasks=routines())
    made.override({"runtime": {"distribution_strategy": "off"}, "trainer": TRAINER | trainer})
    return made


exp_factory.register_config_factory("toy/both")(both)
exp_factory.register_config_factory("toy/joint")(lambda: both(trainer_type="joint"))
exp_factory.register_config_factory("toy/one_of_two")(one_of_two)


def devices():
    """Two replicas on one CPU each."""
    reduction = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=reduction)
