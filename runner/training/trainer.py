"""Model Garden's Trainer, with metrics read in the graph and a brake."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import base_task, config_definitions

from runner.checkpoints import extra_state
from runner.configuration import epochs, multitask
from runner.core import console, schedule, text
from runner.data import iterators, pipeline
from runner.data.determinism import Determinism
from runner.devices import team, worker_heartbeat
from runner.errors import RunnerError
from runner.evaluation import evaluator
from runner.internals import image_files
from runner.internals import keras as keras_internals
from runner.internals import tensorflow as tf_internals
from runner.models import gradient_norm, learning_rate, parameter_groups
from runner.models import optimizer as optimizers
from runner.reporting import task_summaries
from runner.training import (
    controller,
    finite,
    inner_loop,
    input_replay,
    input_stall,
    recheck,
    reproducibility,
    train_step,
)


class Trainer(evaluator.Evaluator):
    """Trains one model, and evaluates it if there are validation data.

    It differs from Model Garden's Trainer in five ways. A loop of steps and the reading of its
    metrics is one graph call. Training metrics accumulate until the summary schedule
    (`summary_interval`) resets them, and are in the checkpoint. A loop ends early if the brake is
    pressed or a loss breaks. XLA is also used on CPUs. A batch may be split into parts for one
    update.

    Create it in the strategy's scope. It takes `Evaluator`'s arguments, `brake` and `extra`, both
    created outside the scope, the `determinism` of its inputs, and the destination for the
    `tf.summary` of its steps (`written`).
    """

    def __init__(
        self,
        config: config_definitions.ExperimentConfig,
        task: base_task.Task,
        model: tf_keras.Model,
        optimizer: tf_keras.optimizers.Optimizer,
        *,
        train_inputs: pipeline.Inputs,
        validation_dataset: Any,
        brake: inner_loop.Brake,
        extra: extra_state.ExtraState,
        determinism: Determinism,
        evaluated: Determinism,
        check: Callable[[], None] = lambda: None,
        written: task_summaries.Summaries | None = None,
        summaries: task_summaries.Summaries | None = None,
    ) -> None:
        super().__init__(
            config,
            task,
            model,
            optimizer,
            train_dataset=train_inputs.dataset,
            validation_dataset=validation_dataset,
            check=check,
            free=brake.free,
            evaluated=evaluated,
            summaries=summaries,
        )
        self.written = written or task_summaries.Summaries()
        self.brake = brake
        self.determinism = determinism
        self.input_stall = input_stall.InputStall(
            pipeline.advice(multitask.train_data(config.task)), config.trainer.train_steps
        )
        self.extra_state = extra
        self._metrics = self._all_metrics()
        groups = config.run.variable_groups
        parameter_groups.change_updates(optimizer, groups)
        known = parameter_groups.freeze(groups, model)
        self._begin(train_inputs)
        self._length = 0
        self._summary = epochs.interval(config, "trainer.summary_interval")
        self._sound: Any = True
        self._broke_at = 0
        self._pace = controller.Pace()
        with self._recording():
            self._step = train_step.TrainStep(self)
        parameter_groups.check_frozen(groups, model)
        seen = {id(variable) for variable in known}
        late = [each for each in model.trainable_variables if id(each) not in seen]
        self._grouped = [*known, *late]
        parameter_groups.check(groups, self._grouped)
        state = [*keras_internals.variables(model), *optimizers.variables(optimizer)]
        self._statistics = extra_state.reduced(keras_internals.variables(model))
        extra.replicas.watch([*state, *(v for m in self._metrics for v in m.variables)])
        self._finite = finite.FiniteCheck(state)
        self._saved = tf.train.Checkpoint(
            global_step=self.global_step,
            model=model,
            optimizer=optimizer,
            train_metrics=self._metrics,
            generators=keras_internals.hidden_state(model),
            **extra.variables(),
            **getattr(model, "checkpoint_items", {}),
        )
        self.constants = learning_rate.Constants(optimizer)
        self.corruption = ""
        self._recheck = self._build_recheck()
        self.places_inputs = train_inputs.is_placed
        self.saves_inputs = (
            not self.places_inputs
            and config.trainer.recovery_max_trials <= 0  # a rollback feeds other inputs
            and iterators.can_be_saved(self._iterator)
        )

    def _build_recheck(self) -> recheck.Recheck | None:
        """Returns what repeats steps, if that is configured and the steps can be repeated."""
        if not self.config.run.recheck_every:
            return None
        graph = self._step.graph
        if drawn := reproducibility.stateful_random_ops(graph) if graph else []:
            ops = text.some(drawn)
            console.say(f"RunConfig.recheck_every has no effect: steps draw from {ops}")
            return None
        slots = optimizers.variables(self.optimizer)
        return recheck.Recheck(self._saved, slots, self.strategy)

    def _all_metrics(self) -> list[tf_keras.metrics.Metric]:
        metrics = [*self.train_metrics, self.train_loss]
        if self.config.run.log_gradient_norm:
            norm = tf_keras.metrics.Mean("gradient_norm", dtype=tf.float32)
            gradient_norm.measure(self.optimizer, norm)
            metrics.append(norm)
        evaluator.check_names(self.task, metrics)
        return metrics

    @property
    def checkpoint(self) -> tf.train.Checkpoint:
        """All the state that training needs to continue."""
        return self._saved

    @property
    def training_graph(self) -> tf.Graph | None:
        """The graph of one training step on all replicas, or None for an eager step."""
        return self._step.graph

    @property
    def frozen(self) -> list[tf.Variable]:
        """The variables that groups exclude from training."""
        trained = {id(variable) for variable in self.model.trainable_variables}
        return [each for each in self._grouped if id(each) not in trained]

    @property
    def features_spec(self) -> Any:
        """The specification of one replica's batch of features."""
        spec = tf.nest.map_structure(tf_internals.replica_spec, self.train_dataset.element_spec)
        return spec[0] if isinstance(spec, tuple) and len(spec) == 2 else spec

    @property
    def step(self) -> int:
        """The number of completed steps. Waits for them."""
        return int(self.global_step.numpy())

    @property
    def is_sound(self) -> bool:
        """Whether every loss so far is sound. Waits for the last loop."""
        return bool(self._sound)

    @property
    def broke_at(self) -> int:
        """The step whose loss broke training, or the current step if none did."""
        return self._broke_at or self.step

    def not_finite(self) -> list[str]:
        """The names of variables with values that are not finite."""
        with team.current().together("not_finite"):
            return self._finite.not_finite()

    def initialize(self, *, whole: bool = False) -> None:
        """Initializes groups of variables, then loads the `init_checkpoint`."""
        run = self.config.run
        parameter_groups.initialize(run.variable_groups, self._grouped, run.seed)
        super().initialize(whole=whole)

    def feed(self, inputs: pipeline.Inputs) -> None:
        """Continues with other inputs of the same shape. Releases the brake of a broken loss."""
        self.train_dataset = inputs.dataset
        self._begin(inputs)
        self.saves_inputs &= inputs.is_whole
        self.brake.sound.assign(True)
        self._sound, self._broke_at, self.corruption = True, 0, ""

    def _begin(self, inputs: pipeline.Inputs) -> None:
        self._iterator = self.determinism.begin(inputs.dataset)
        self._is_whole = inputs.is_whole
        self.replay = input_replay.InputReplay(inputs)
        self._loops: dict[bool, Callable[[], Any]] = {}  # keyed by whether their steps are timed

    def capture_extra_state(self) -> None:
        """Captures state that checkpoints would leave out, before a checkpoint is saved."""
        self.extra_state.replicas.capture()
        if not self.saves_inputs or self.replay.batches:
            return
        try:
            self.extra_state.inputs.capture(self._iterator)
        except iterators.TooLargeError as error:
            self.saves_inputs = False
            self.extra_state.inputs.clear()
            console.say(
                f"checkpoints do not contain the position of the inputs, because {error}: a resume "
                "reads them from the start (shuffle before decoding, or see RunConfig.inputs)"
            )

    def put_back_extra_state(self, build: Callable[[], pipeline.Inputs] | None = None) -> None:
        """Restores the state that `capture_extra_state` captured, after a checkpoint is restored.

        Args:
            build: Builds the inputs from the start, to be moved to their saved position. If None,
                the current inputs stay, because they were built for the restored step.
        """
        self.extra_state.replicas.put_back()
        held = self.extra_state.inputs
        if self.saves_inputs and build and held.fits(self._iterator):
            self.feed(build())
            held.put_back(self._iterator)
        else:
            held.clear()
            self.saves_inputs &= self._is_whole

    def train(self, num_steps: tf.Tensor) -> evaluator.Logs:
        """Runs `num_steps` steps, or fewer if the brake ends them. See `orbit.AbstractTrainer`.

        Returns:
            Means since the last multiple of `summary_interval`: `training_loss`, every training
            metric, and the current `learning_rate`, also of each group of variables.

        Raises:
            RunnerError: the training data ended.
        """
        try:
            with image_files.damage_named(self.train_dataset):
                return self._run(int(num_steps))
        except (tf.errors.OutOfRangeError, StopIteration) as error:
            raise RunnerError(
                f"the training data ended at about step {self.step}; they must repeat "
                "(dataset.repeat())"
            ) from error
        except tf.errors.OpError as error:
            for placement in self.determinism.placements:
                if placement.source.failure is not None:
                    raise placement.source.failure from error
            raise

    def _run(self, left: int) -> evaluator.Logs:
        longest = left if self.config.trainer.train_tf_while_loop else 1
        several = team.current().size > 1
        if several and not self._sound:  # the loops of several workers have no brake for this
            return self.read_metrics()
        logs = None
        ends_itself = self.config.trainer.train_tf_while_loop  # also before its first step
        while left and ((logs is None and ends_itself) or self.brake.released()):
            if several and ends_itself:  # with other workers, it does not end itself
                longest = self._pace.steps
            unchecked = self._steps_to_recheck()
            if not unchecked:
                if not self.brake.released():  # until `feed`
                    break
                logs = self.train_twice()
                left -= 1
                continue
            timed = self.input_stall.steps(min(left, longest, unchecked))
            length = timed or min(left, longest, unchecked)
            start = time.perf_counter()
            with team.current().together("run_loop", length, timed > 0):
                logs = self.run_loop(length, timed=timed > 0)
            self._pace.add(length, time.perf_counter() - start)
            left -= length
        return logs or self.read_metrics()

    def _steps_to_recheck(self) -> int:
        """The number of steps before the next one to repeat."""
        if self._recheck is None:
            return self.config.trainer.train_steps
        every = self.config.run.recheck_every
        return every - 1 - self.step % every

    def train_twice(self) -> evaluator.Logs:
        """Runs one step, repeats it from the same state, and compares the results."""
        assert self._recheck
        mates = team.current()
        with mates.together("train_twice"):
            batch = self.draw()
            # In one graph, TensorFlow would optimize the two executions differently.
            sound, differences = self._recheck.run(lambda: self._step(batch))
            found = recheck.describe(differences, self.step) if differences else ""
            self.corruption = mates.first_said(found.encode()).decode()
            self._sound = bool(sound)
            if mates.size > 1:
                self._take_in(self._shared_reports(sound).numpy(), 1)
            self._sound &= not self.corruption
            self.brake.sound.assign(self._sound)
            return self._newest_metrics()

    @functools.cached_property
    def _newest_metrics(self) -> Callable[[], evaluator.Logs]:
        return tf.function(self._read_metrics, autograph=False)

    @functools.cached_property
    def _shared_reports(self) -> Callable[[tf.Tensor], tf.Tensor]:
        def share(sound: tf.Tensor) -> tf.Tensor:
            with self.strategy.scope():
                return team.current().share(~self.brake.free, ~sound)

        return tf.function(share, autograph=False)

    def run_loop(self, length: int, *, timed: bool) -> evaluator.Logs:
        """Runs a loop, retraced if the inputs change.

        Its graph holds the iterator, and reads the length from a variable. In a short loop, passing
        arguments would take about as long as the steps.
        """
        if timed not in self._loops:
            loop: Any = functools.partial(self._loop, timed)
            if self.config.trainer.train_tf_function:
                loop = tf.function(loop, autograph=False)
            if self._step.graph:
                with self._recording():
                    loop = loop.get_concrete_function()
            self._loops[timed] = loop
        if length != self._length:
            self.brake.length.assign(length)
            self._length = length
        self._catch_up()
        began = time.perf_counter()
        recording = contextlib.nullcontext() if self._step.graph else self._recording()
        with self.replay.skipping(), recording:
            logs, self._sound = self._loops[timed]()
        if team.current().size > 1:
            self._take_in(self._sound.numpy(), length)
        if worker_heartbeat.is_worker():
            seconds = time.perf_counter() - began
            waited = seconds * (self.input_stall.share or 0.0)
            worker_heartbeat.at(self.step, steps=length, seconds=seconds, waited=waited)
        return logs

    def _catch_up(self) -> None:
        """Reads the inputs up to the first batch to train on, unless the brake ends that."""
        if self.replay.batches:
            self.replay.run(
                lambda: self.next_train_inputs(self._iterator),
                is_halted=lambda: not self.brake.free,
            )

    def _recording(self) -> contextlib.AbstractContextManager[None]:
        """A context in which the task's steps write summaries when Orbit would write them."""
        return self.written.recording(lambda: self._is_summary(self.global_step))

    def _take_in(self, reports: np.ndarray, length: int) -> None:
        """Processes the workers' reports, [workers, 2]: a stop, and where the loss broke."""
        stops, broke = reports.T
        self._sound = not broke.any()
        if not self._sound:
            self._broke_at = self.step - length + int(broke[broke > 0].min())
        team.current().stopped(stops)

    def _loop(self, timed: bool) -> tuple[evaluator.Logs, tf.Tensor]:
        def draw() -> Any:
            return self.next_train_inputs(self._iterator)

        def timed_draw() -> Any:
            return self.input_stall.timed(draw)

        chosen = timed_draw if timed else draw
        if team.current().size > 1:
            return self._loop_together(chosen)
        if self.config.trainer.train_tf_while_loop:
            sound = inner_loop.loop(chosen, self._step, self.brake)
        else:
            sound = self._step(chosen())
            self.brake.sound.assign(sound)
        return self._read_metrics(), sound

    def _loop_together(self, draw: Callable[[], Any]) -> tuple[evaluator.Logs, tf.Tensor]:
        """Runs a loop with equally many steps on all workers, which then know who has to stop."""
        if self.config.trainer.train_tf_while_loop:
            broke = inner_loop.whole_loop(draw, self._step, self.brake)
        else:
            broke = tf.where(self._step(draw()), 0, 1)
        reports = team.current().share(~self.brake.free, broke)
        self.brake.sound.assign(tf.reduce_all(reports[:, 1] == 0))
        return self._read_metrics(), reports

    @contextlib.contextmanager
    def state_kept(self) -> Iterator[None]:
        """Like the base class's method, also for metrics that validation shares with training.

        Inside the context, statistics that differ between replicas, such as those of batch
        normalization, are their mean, which the checkpoint holds and later evaluations use.
        """
        with super().state_kept():
            for variable in self._statistics:
                variable.assign(variable.read_value())
            yield

    def train_step(self, iterator: Any) -> None:
        """Runs one step on the next batch. See `orbit.StandardTrainer`."""
        self.brake.sound.assign(self._step(self.next_train_inputs(iterator)))

    def draw(self) -> Any:
        """The next batch of all replicas, which is then not trained on."""
        self._catch_up()
        return self.next_train_inputs(self._iterator)

    def run_eagerly(self, batch: Any) -> None:
        """Runs one step on a batch, op by op if functions run eagerly."""
        self._step.eagerly(batch)

    def read_metrics(self) -> evaluator.Logs:
        """The logs that `train` returns, without a step."""
        with team.current().together("read_metrics"):
            return self._read_metrics()

    def _read_metrics(self) -> evaluator.Logs:
        variables = [variable for metric in self._metrics for variable in metric.variables]
        with team.current().summed(variables):
            logs = {metric.name: metric.result() for metric in self._metrics}
        logs["learning_rate"] = self._learning_rate()
        for group in self.config.run.variable_groups:
            if not group.trainable:
                continue
            logs[f"learning_rate/{group.name}"] = logs["learning_rate"] * group.rate_scale
        with tf.control_dependencies(tf.nest.flatten(logs)):
            due = self._is_summary(self.global_step)
            tf.cond(due, self._reset_metrics, lambda: tf.constant(False))
        return logs

    @tf.function(autograph=False)
    def _learning_rate(self) -> tf.Tensor:
        rate = self.optimizer.learning_rate
        return rate(self.optimizer.iterations) if callable(rate) else rate + 0.0

    def _is_summary(self, step: tf.Tensor) -> tf.Tensor:
        """Whether a step is on the summary schedule."""
        every = self._summary
        if every.denominator == 1:
            return step % every.numerator == 0
        return schedule.passed(step, every) > schedule.passed(step - 1, every)

    def _reset_metrics(self) -> tf.Tensor:
        for metric in self._metrics:
            metric.reset_state()
        return tf.constant(True)
