"""One loop of training: official's Trainer, with metrics read in the graph and a brake."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras
from official.core import base_task, config_definitions

from runner import accumulation, evaluator, gradients, memory, placement, variable_groups
from runner import optimizer as optimizers
from runner.errors import RunnerError


class Brake:
    """What ends a loop inside TensorFlow. Create it outside the strategy's scope.

    Attributes:
        length: How many steps a loop has.
        halted: Set by `halt`, from any thread.
        sound: Cleared by a step whose loss is not finite, or above its bound.
    """

    def __init__(self) -> None:
        with tf.device("cpu:0"):
            self.length = tf.Variable(0, trainable=False, name="length")
            self.halted = tf.Variable(False, trainable=False, name="halted")
            self.sound = tf.Variable(True, trainable=False, name="sound")

    def halt(self) -> None:
        """Ends the loop after the step that is running."""
        self.halted.assign(True)

    def released(self) -> tf.Tensor:
        """Whether a loop may go on that has not come to its length."""
        return tf.logical_and(self.sound, tf.logical_not(self.halted))


class Trainer(evaluator.Evaluator):
    """Trains one model, and evaluates it where there are validation data.

    It differs from official's in five ways. A loop of steps and the reading of its metrics is one
    graph call. Training metrics run on until the summary grid (`summary_interval`) resets them, and
    are in the checkpoint. A loop ends early when the brake is pressed or a loss breaks. XLA
    compiles wherever it is asked for. A batch may be cut into parts for one update.

    Create it inside the strategy's scope. Its arguments are those of `Evaluator`, and `brake`,
    `inputs` and `replicas`, which are created outside.
    """

    def __init__(
        self,
        config: config_definitions.ExperimentConfig,
        task: base_task.Task,
        model: tf_keras.Model,
        optimizer: tf_keras.optimizers.Optimizer,
        *,
        train_dataset: Any,
        validation_dataset: Any,
        brake: Brake,
        inputs: memory.Inputs,
        replicas: memory.Replicas,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            config,
            task,
            model,
            optimizer,
            train_dataset=train_dataset,
            validation_dataset=validation_dataset,
            check=check,
        )
        self.brake = brake
        self._inputs = inputs
        self._replicas = replicas
        self._metrics = [*self.train_metrics, self.train_loss]
        if config.run.log_gradient_norm:
            norm = tf_keras.metrics.Mean("gradient_norm", dtype=tf.float32)
            gradients.measure(optimizer, norm)
            self._metrics.append(norm)
        variable_groups.scale_rates(optimizer, config.run.variable_groups)
        self._trace()
        variable_groups.check(config.run.variable_groups, model)
        self._checkpoint = tf.train.Checkpoint(
            global_step=self.global_step,
            model=model,
            optimizer=optimizer,
            train_metrics=self._metrics,
            generators=memory.generators(model),
            inputs=inputs.value,
            replicas=replicas.value,
            **getattr(model, "checkpoint_items", {}),
        )
        self._state = [*model.variables, *optimizers.variables(optimizer)]
        replicas.watch([*self._state, *(v for m in self._metrics for v in m.variables)])
        self.remembers_inputs = (
            not placement.is_placed(config.task.train_data)
            and config.trainer.recovery_max_trials <= 0  # a rollback feeds other inputs
            and inputs.can_hold(self._train_iter)
        )

    def _trace(self) -> None:
        """Makes every variable exist: the first restore or save finds all of them."""
        options = self.config.trainer
        function: Callable = tf.function if options.train_tf_function else lambda f, **_: f
        self._step = function(self.train_step)
        self._train_iter = tf.nest.map_structure(iter, self.train_dataset)
        self._train_graph = None
        self._loop: Callable[[], evaluator.Logs] | None = None
        self._length = 0
        if options.train_tf_function and not tf.config.functions_run_eagerly():
            self._train_graph = self._step.get_concrete_function(self._train_iter).graph

    @property
    def training_graph(self) -> tf.Graph | None:
        """The graph of one training step on all replicas, None for an eager one."""
        return self._train_graph

    @property
    def features_spec(self) -> Any:
        """The specification of one replica's batch of features, as the task's steps take them."""
        spec = tf.nest.map_structure(_replica_spec, self.train_dataset.element_spec)
        return spec[0] if isinstance(spec, tuple) and len(spec) == 2 else spec

    @property
    def step(self) -> int:
        """The number of steps done; waits for them."""
        return int(self.global_step.numpy())

    def initialize(self) -> None:
        """Gives groups of variables their first values; then, what an `init_checkpoint` holds."""
        run = self.config.run
        variable_groups.initialize(run.variable_groups, self.model, run.seed)
        super().initialize()

    def feed(self, dataset: Any) -> None:
        """Goes on with other inputs, of the same shape, and releases the brake of a broken loss."""
        self.train_dataset = dataset
        self.brake.sound.assign(True)

    def remember(self) -> None:
        """Before a commit: takes up what checkpoints would leave out."""
        self._replicas.take()
        if self.remembers_inputs:
            self._inputs.take(self._train_iter)

    def recall(self, dataset: Any = None) -> None:
        """After a restore: puts back what `remember` took up.

        Args:
            dataset: The inputs, built from the start, to be put where they were. Where that is not
                known, the present ones stay: they were built for the restored step.
        """
        self._replicas.give()
        self.remembers_inputs &= dataset is not None and not self._inputs.is_empty
        if self.remembers_inputs:
            self.feed(dataset)
            self._train_iter = iter(dataset)
            self._loop = None
            self._inputs.give(self._train_iter)
        else:
            self._inputs.clear()

    def train(self, num_steps: tf.Tensor) -> evaluator.Logs:
        """Runs `num_steps` steps, fewer if the brake ends them; see `orbit.AbstractTrainer`.

        Returns:
            Means since the last multiple of `summary_interval`: `training_loss`, every training
            metric, and the `learning_rate` in force, also of each group of variables.

        Raises:
            RunnerError: the training data ended.
        """
        if self._train_iter is None:  # the dataset was replaced
            self._train_iter = tf.nest.map_structure(iter, self.train_dataset)
            self._loop = None
        try:
            if self.config.trainer.train_tf_while_loop:
                return self._run_loop(int(num_steps))
            logs = None
            for _ in range(int(num_steps)):
                if not self.brake.released():
                    break
                logs = self._run_loop(1)
            return logs or self._read_metrics()
        except (tf.errors.OutOfRangeError, StopIteration) as error:
            raise RunnerError(
                f"the training data ended at about step {self.step}: they must repeat "
                "(dataset.repeat())"
            ) from error

    def _run_loop(self, length: int) -> evaluator.Logs:
        """Runs a loop, traced anew for other inputs.

        Its graph holds the iterator, and reads the length from a variable: of a short loop the
        handling of arguments takes about as long as the steps.
        """
        if self._loop is None:
            options = self.config.trainer
            loop: Any = self._tf_loop if options.train_tf_while_loop else self._step_once
            if options.train_tf_function:
                loop = tf.function(loop)
            self._loop = loop.get_concrete_function() if self._train_graph else loop
        if length != self._length:
            self.brake.length.assign(length)
            self._length = length
        return self._loop()

    def _tf_loop(self) -> evaluator.Logs:
        length = tf.identity(self.brake.length)
        done = tf.zeros_like(length)
        while tf.logical_and(done < length, self.brake.released()):
            with tf.name_scope(""):
                self._step(self._train_iter)
            done += 1
        return self._read_metrics()

    def _step_once(self) -> evaluator.Logs:
        self._step(self._train_iter)
        return self._read_metrics()

    def train_step(self, iterator: Any) -> None:
        """One step on all replicas, compiled by XLA where `RuntimeConfig.enable_xla` says so."""
        parts = self.config.run.gradient_accumulation
        task_step = accumulation.accumulated(self.task.train_step, parts, self.task.loss)
        if self.config.runtime.enable_xla:
            task_step = tf.function(task_step, jit_compile=True)

        def replica_step(inputs: Any) -> tf.Tensor:
            logs = task_step(
                inputs, model=self.model, optimizer=self.optimizer, metrics=self.train_metrics
            )
            loss = tf.cast(logs[self.task.loss], tf.float32)
            self._train_loss.update_state(loss)
            self.global_step.assign_add(1)
            return tf.cast(self._breaks(loss), tf.int32)

        inputs = self.next_train_inputs(iterator)
        broken = self.strategy.run(replica_step, args=(inputs,), options=self._runtime_options)
        total = self.strategy.reduce(tf.distribute.ReduceOp.SUM, broken, axis=None)
        self.brake.sound.assign(total == 0)

    def _breaks(self, loss: tf.Tensor) -> tf.Tensor:
        """Whether training must not go on from this loss; official's fields bound it."""
        options = self.config.trainer
        broken = tf.logical_not(tf.reduce_all(tf.math.is_finite(loss)))
        if options.recovery_max_trials < 0:
            return broken
        high = tf.reduce_any(loss > options.loss_upper_bound)
        bounded = self.global_step >= options.recovery_begin_steps
        return tf.logical_or(broken, tf.logical_and(high, bounded))

    def _read_metrics(self) -> evaluator.Logs:
        logs = {metric.name: metric.result() for metric in self._metrics}
        rate = self.optimizer.learning_rate
        logs["learning_rate"] = rate(self.optimizer.iterations) if callable(rate) else rate + 0.0
        for group in self.config.run.variable_groups:
            logs[f"learning_rate/{group.name}"] = logs["learning_rate"] * group.rate_scale
        if self.global_step % self.config.trainer.summary_interval == 0:
            with tf.control_dependencies(tf.nest.flatten(logs)):
                for metric in self._metrics:
                    metric.reset_state()
        return logs

    def unsound(self) -> list[str]:
        """The names of the variables that hold a value that is not finite."""
        floats = [v for v in self._state if v.dtype.is_floating]
        return [
            variable.name
            for variable, finite in zip(floats, self._finite().numpy(), strict=True)
            if not finite
        ]

    @tf.function
    def _finite(self) -> tf.Tensor:
        floats = [v for v in self._state if v.dtype.is_floating]
        return tf.stack([tf.reduce_all(tf.math.is_finite(v)) for v in floats])


def _replica_spec(spec: Any) -> Any:
    """The specification of one replica's part."""
    return getattr(spec, "_value_specs", [spec])[0]
