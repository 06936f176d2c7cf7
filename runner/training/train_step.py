"""One training step on all replicas, split into parts or compiled by XLA as configured."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from official.core import base_trainer

from runner.core import console
from runner.devices import team, xla
from runner.internals import tensorflow as tf_internals
from runner.models import gradient_accumulation
from runner.models import optimizer as optimizers
from runner.training import multitask


class TrainStep:
    """Trains on a batch, and returns whether training may continue after its loss.

    Its constructor creates every variable, so the first restore or save finds them all.

    Args:
        trainer: Model Garden's trainer, with its dataset, created in the strategy's scope.

    Attributes:
        graph: The graph of one step. None for an eager step.
    """

    def __init__(self, trainer: base_trainer.Trainer) -> None:
        self._trainer = trainer
        config = trainer.config
        wanted = config.runtime.enable_xla
        obstacle = xla.obstacle(config.runtime, trainer.strategy)
        if len(multitask.alternatives(trainer.task)) > 1:  # no branch may create a variable
            optimizers.create_variables(trainer.optimizer, trainer.model)
        self._trace(compiled=wanted and not obstacle)
        if wanted and not obstacle and self.graph:
            obstacle = xla.obstacle_in(self.graph, deterministic=config.run.deterministic)
            if obstacle:
                self._trace(compiled=False)
        if wanted and obstacle:
            said = f"RuntimeConfig.enable_xla = True: steps are not compiled, because {obstacle}"
            console.say(said)

    def __call__(self, batch: Any) -> tf.Tensor:
        """Trains on a batch of all replicas. Returns a bool scalar for this worker's replicas."""
        with self._trainer.strategy.scope():  # as when it was traced, or it is traced again
            return self._step(batch)

    def eagerly(self, batch: Any) -> None:
        """Runs the same step in Python, op by op if functions run eagerly, for inspection."""
        self._step_on(batch)

    def _trace(self, *, compiled: bool) -> None:
        trainer = self._trainer
        parts = trainer.config.run.gradient_accumulation

        def built(alternative: multitask.Alternative) -> Callable[..., Any]:
            step: Any = alternative.train_step
            step = gradient_accumulation.accumulated(step, parts, trainer.task.loss)
            step = tf.function(step, jit_compile=True) if compiled else tf_internals.converted(step)
            return lambda inputs, **more: step(alternative.take(inputs), **more)

        self._task_steps = [built(each) for each in multitask.alternatives(trainer.task)]
        self._options = base_trainer.get_runtime_options(trainer.config)
        self._step: Any = self._step_on
        self.graph: tf.Graph | None = None
        if trainer.config.trainer.train_tf_function:
            self._step = tf.function(self._step_on, autograph=False)
            if not tf.config.functions_run_eagerly():
                batch = tf.nest.map_structure(lambda part: part.element_spec, trainer.train_dataset)
                with tf.variable_creator_scope(_created_at_once):
                    self.graph = self._step.get_concrete_function(batch).graph
        if self.graph is None:
            optimizers.create_variables(trainer.optimizer, trainer.model)

    def _step_on(self, batch: Any) -> tf.Tensor:
        steps = [functools.partial(self._run, each, batch) for each in self._task_steps]
        if len(steps) == 1:
            return steps[0]()
        chosen = self._trainer.task.chosen(batch)  # the same for all replicas
        number, *_ = self._trainer.strategy.experimental_local_results(chosen)
        return tf.switch_case(number, steps)

    def _run(self, task_step: Callable[..., Any], batch: Any) -> tf.Tensor:
        """Trains on a batch by one of the steps, on all replicas."""
        trainer = self._trainer
        together = team.current().size  # workers exchange their results once per loop
        alone = trainer.strategy.num_replicas_in_sync == together  # each has one replica

        def replica_step(inputs: Any) -> tf.Tensor:
            logs = task_step(
                tf.nest.map_structure(_with_known_shape, inputs),
                model=trainer.model,
                optimizer=trainer.optimizer,
                metrics=trainer.train_metrics,
            )
            loss = tf.cast(logs[trainer.task.loss], tf.float32)
            trainer.train_loss.update_state(loss)
            trainer.global_step.assign_add(1)
            sound = self._is_sound(loss)
            return sound if alone else tf.cast(sound, tf.float32)

        sound = trainer.strategy.run(replica_step, args=(batch,), options=self._options)
        if alone or together > 1:
            local = trainer.strategy.experimental_local_results(sound)
            return local[0] if alone else tf.reduce_all(tf.stack(local) == 1)
        return trainer.strategy.reduce(tf.distribute.ReduceOp.MEAN, sound, axis=None) == 1

    def _is_sound(self, loss: tf.Tensor) -> tf.Tensor:
        """Whether training may continue after this loss, which Model Garden's fields bound."""
        options = self._trainer.config.trainer
        sound = tf.math.is_finite(loss)
        if options.recovery_max_trials >= 0:
            bounded = loss <= options.loss_upper_bound
            if begin := options.recovery_begin_steps:
                bounded |= self._trainer.global_step < begin
            sound &= bounded
        return sound if loss.shape.rank == 0 else tf.reduce_all(sound)


def _with_known_shape(part: Any) -> Any:
    """Returns a part of a batch whose shape layers can read.

    The dense shape of a sparse argument of a function is a tensor, which hides the known sizes.
    """
    if not isinstance(part, tf.SparseTensor):
        return part
    sizes = [
        part.dense_shape[axis] if size is None else tf.constant(size, tf.int64)
        for axis, size in enumerate(part.shape)
    ]
    return tf.SparseTensor(part.indices, part.values, tf.stack(sizes))


def _created_at_once(creator: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
    """Creates an optimizer's variables without a second trace of the function that needs them."""
    if tf.executing_eagerly():  # in the function's tf.init_scope
        options["experimental_enable_variable_lifting"] = False
    return creator(**options)
