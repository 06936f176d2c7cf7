"""Evaluates a model with Model Garden's Trainer, with every example counted once."""

import contextlib
import functools
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import orbit
import tensorflow as tf
import tf_keras
from official.core import base_task, base_trainer, config_definitions
from official.modeling.multitask import base_model

from runner.checkpoints import averages, restore, warm_start
from runner.core import console, user_code
from runner.data import batches
from runner.data.determinism import Determinism
from runner.devices import team
from runner.errors import ConfigError, RunnerError
from runner.evaluation import validation_gradient
from runner.internals import gin as gin_internals
from runner.internals import image_files
from runner.internals import tensorflow as tf_internals
from runner.models import optimizer as optimizers
from runner.models import weight_averages
from runner.reporting import task_summaries

Logs = dict[str, Any]

WEIGHT = "weight"  # the loss's weight, which a task's validation_step may return with its loss
IS_DEFINED = "is_defined"  # an optional method of metrics: whether there is a result


class BatchCalls(Protocol):
    """Calls around each batch of an evaluation, which then runs its batches one by one."""

    def before_batch(self, batch: int) -> None:
        """Called before a batch, numbered from 0."""

    def after_batch(self, batch: int, logs: Logs) -> None:
        """Called after it, with the metrics of the batches so far."""


class Evaluator(base_trainer.Trainer):
    """Evaluates one model.

    It differs from Model Garden's Trainer in four ways. Validation loss is a mean over examples,
    not over batches. A replica without examples in the last batch adds nothing. Averaged weights
    are swapped in by copying. The loop over batches is in the graph, unless the task aggregates
    logs on the host.

    Create it inside the strategy's scope.

    Args:
        config: The experiment.
        task: Model Garden's interface for model, inputs, losses and metrics.
        model: The result of `task.build_model`.
        optimizer: None if neither training nor averaged weights need one.
        validation_dataset: A distributed dataset. None: no evaluation.
        train_dataset: A distributed dataset, for the subclass that trains.
        check: Called before each batch, or before and after a loop in a graph. Its exceptions end
            the evaluation.
        free: A loop in a graph ends after the batch during which this becomes false. `check` must
            then raise.
        evaluated: Records whether the validation inputs are deterministic.
        summaries: Receives the task's `tf.summary` during evaluation. Also an attribute.
        step: The training step of the weights. None: a new variable.

    Attributes:
        batch_calls: What to call before and after each batch, or None.
        others: Evaluators of the same weights for other tasks, by the name passed to `evaluate_on`.
        left_out: Whether the last evaluation ended before its (finite) data did.
    """

    def __init__(
        self,
        config: config_definitions.ExperimentConfig,
        task: base_task.Task,
        model: tf_keras.Model,
        optimizer: tf_keras.optimizers.Optimizer | None,
        *,
        validation_dataset: Any,
        train_dataset: Any = None,
        check: Callable[[], None] = lambda: None,
        free: tf.Variable | bool = True,
        evaluated: Determinism | None = None,
        summaries: task_summaries.Summaries | None = None,
        step: tf.Variable | None = None,
    ) -> None:
        ema = optimizers.average(optimizer)
        self._averages = weight_averages.Averages(ema, model) if ema else None
        with gin_internals.without_calls():
            super().__init__(
                config,
                task,
                model,
                optimizer or tf.Module(),  # Model Garden's checkpoint needs a trackable object
                train=train_dataset is not None,
                evaluate=validation_dataset is not None,
                train_dataset=train_dataset,
                validation_dataset=validation_dataset,
            )
        if validation_dataset is not None:
            check_names(task, [*self.validation_metrics, self.validation_loss])
        if step is not None:
            self._global_step = step
        tf.summary.experimental.set_step(self.global_step)  # like Orbit
        self.summaries = summaries or task_summaries.Summaries()
        self.batch_calls: BatchCalls | None = None
        self.others: dict[str, Evaluator] = {}
        self.left_out = False
        self._evaluated = evaluated or Determinism.of_evaluations()
        self._optimizer = optimizer
        self._check = check
        self._several = team.current().size > 1
        self._free = free
        self._host_step = self.eval_step
        self._graph_loop: Callable[..., Any] = self._score_all
        if self._several:
            self._graph_loop = self._score_together
        if config.trainer.eval_tf_function:
            self._host_step = tf.function(self._host_step, autograph=False)
            self._graph_loop = tf.function(self._graph_loop, autograph=False)
        self._task_step = tf_internals.converted(task.validation_step)
        self._gradient = None
        if config.run.log_validation_gradient_norm:
            self._gradient = validation_gradient.ValidationGradient(task, model, self.strategy)

    def _validate_params(self, *_: Any, **__: Any) -> None:
        """Skips Model Garden's check for data configs it was not given, as none is needed."""

    @property
    def averages(self) -> weight_averages.Averages | None:
        """The averaged weights, or None if the optimizer has none."""
        return self._averages

    def initialize(self, *, whole: bool = False) -> None:
        """Loads the task's `init_checkpoint`. Averages start at the resulting weights.

        Matching variables are loaded and the others are reported. A task that overrides
        `initialize` loads the checkpoint in its own way.

        Args:
            whole: Reject a checkpoint that lacks any weight. Not checked if the task overrides
                `initialize`.
        """
        path = self.config.task.init_checkpoint
        if type(self.task).initialize is not base_task.Task.initialize:
            self._initialize_by_task()
        elif path:
            report = warm_start.initialize(self.model, Path(path), whole=whole)
            many = f"{report.matched:,} variable{'s' * (report.matched != 1)}"
            loaded = f"init_checkpoint {path}: {many} loaded"
            console.say("\n".join(each for each in (loaded, report.render()) if each))
        if self._averages:
            self._averages.start()

    def _initialize_by_task(self) -> None:
        """Lets the task load its checkpoint in its own way."""
        try:
            super().initialize()
        except Exception as error:
            path = self.config.task.init_checkpoint
            if path and "://" not in path and not Path(path).is_file():
                warm_start.find(Path(path))  # raises if it is missing or damaged
            if path and (why := warm_start.misfit(error)):
                users = user_code.users(traceback.extract_tb(error.__traceback__))
                where = f" ({users[-1].place})" if users else ""
                raise ConfigError(
                    f"TaskConfig.init_checkpoint = {path!r} does not fit what "
                    f"{type(self.task).__name__}.initialize{where} loads it into: {why}"
                    f"{warm_start.held(path)}"
                ) from error
            raise

    def restore(self, path: Path) -> None:
        """Restores the state an evaluation needs, or only weights if `path` holds only averages.

        Raises:
            DamagedError: the checkpoint is damaged or missing.
            ConfigError: the checkpoint was written for another model.
        """
        with team.current().together("restore", str(path)):
            self._restore(path)

    def _restore(self, path: Path) -> None:
        if self._averages is None or not averages.stand_alone(path):
            restore.restore(self.checkpoint, path, partly=True)
        else:
            self.restore_weights(path)

    def restore_weights(self, path: Path) -> None:
        """Restores a checkpoint that holds only weights. Averages then start from them.

        Raises:
            DamagedError, ConfigError: raised as by `restore`.
        """
        weights = tf.train.Checkpoint(model=self.model, global_step=self.global_step)
        restore.restore(weights, path, partly=True)
        if self._averages:
            self._averages.start()

    def evaluate(self, num_steps: tf.Tensor) -> Logs:
        """Evaluates with the averaged weights if there are any. See `orbit.AbstractEvaluator`.

        Args:
            num_steps: The number of batches, or -1 for all.

        Returns:
            Every validation metric, `validation_loss`, and the results that the task aggregates.

        Raises:
            RunnerError: there was no example.
        """
        with team.current().together("evaluate", int(num_steps)):
            logs = self._evaluate(
                self.eval_dataset, num_steps, "the validation data are empty (task.validation_data)"
            )
            if self._gradient:
                with self.state_kept(), self.averages_in_force():
                    batch = self._evaluated.begin(self.eval_dataset)
                    logs[validation_gradient.NAME] = self._gradient.norm(batch)
            return logs

    def evaluate_on(self, dataset: Any, name: str, *, limit: int = 0) -> Logs:
        """Evaluates like `evaluate`, but on another dataset.

        Datasets with the same batch specification share one graph.

        Args:
            dataset: Distributed and finite.
            name: Its name in the error that is raised if it is empty.
            limit: The number of batches to use, from the start. 0: all.
        """
        number, why = tf.constant(limit or -1), f"{name} is empty"
        with team.current().together("evaluate_on", name, limit):
            if other := self.others.get(name):
                with self.state_kept(), self.averages_in_force():
                    return other._evaluate(dataset, number, why)
            return self._evaluate(dataset, number, why)

    def another(self, task: base_task.Task, name: str, dataset: Any) -> "Evaluator":
        """Builds an evaluator of the same weights for another task, for `others`.

        Call it in the strategy's scope.

        Args:
            task: The task.
            name: Its name, by which a model for several tasks has a part for it.
            dataset: The dataset to evaluate.
        """
        return Evaluator(
            self.config,
            task,
            part_for(self.model, name),
            None,
            validation_dataset=dataset,
            check=self._check,
            free=self._free,
            evaluated=self._evaluated,
            summaries=self.summaries,
            step=self.global_step,
        )

    def _evaluate(self, dataset: Any, num_steps: tf.Tensor, why_none: str) -> Logs:
        loop = self._loop_in_graph if self._may_loop_in_graph(dataset) else self._loop_on_host
        if num_steps < 0 and batches.is_endless(dataset):
            raise ConfigError(
                "the validation data are endless: set TrainerConfig.validation_steps, the number "
                "of batches to evaluate"
            )
        if self.batch_calls and num_steps < 0:  # else a call would announce a batch after the last
            num_steps = tf.constant(max(batches.cardinality(dataset), -1))
        # A new iterator, because reusing one saves a millisecond but makes TensorFlow leak 6 KiB.
        iterator = self._evaluated.begin(dataset)
        named = image_files.damage_named(dataset)
        recorded = self.summaries.recording()
        with named, recorded, self.state_kept(), self.averages_in_force():
            self.eval_begin()
            found, rest, aggregated = loop(iterator, num_steps)
            logs = self.eval_end(aggregated)
        self.left_out = rest and not batches.is_endless(dataset)
        if not found:
            raise RunnerError(f"the evaluation saw no example: {why_none}")
        return logs

    def _may_loop_in_graph(self, dataset: Any) -> bool:
        """Whether the loop over batches can be in a graph.

        This requires that the task aggregates nothing on the host, and that a loop does not change
        batch shapes. In a loop, replicas may run out of examples, so batches lose their static
        size, which a TPU or a model may need.
        """
        if type(self.task).aggregate_logs is not base_task.Task.aggregate_logs or self.batch_calls:
            return False
        if isinstance(dataset, tf.data.Dataset):
            return True
        first, *_ = tf.nest.flatten(dataset.element_spec, expand_composites=True)
        return not first.shape[:1].is_fully_defined()

    def _loop_in_graph(self, iterator: Any, num_steps: tf.Tensor) -> tuple[bool, bool, None]:
        most = tf.where(num_steps < 0, tf.int32.max, num_steps)
        if self._several:
            found, rest, stops = self._graph_loop(iterator, most)
            self._heed(stops)
        else:
            self._check()
            found, rest = self._graph_loop(iterator, most)
            self._check()
        return bool(found), bool(rest), None

    def _score_all(self, iterator: Any, most: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Scores up to `most` batches. Returns whether there was one, and whether more follow.

        The next batch is fetched while one is scored.
        """

        def goes_on(batch: tf.experimental.Optional) -> tf.Tensor:
            with tf.device("cpu:0"):  # on a GPU, each batch would wait for the previous one
                return tf.logical_and(batch.has_value(), self._free)

        def turn(batch: tf.experimental.Optional) -> tuple[tf.experimental.Optional]:
            with tf.name_scope(""):  # else the tags of the task's summaries begin with "while/"
                self.score(batch.get_value())
            return (iterator.get_next_as_optional(),)

        first = iterator.get_next_as_optional()
        (last,) = tf.while_loop(goes_on, turn, (first,), maximum_iterations=most)
        return first.has_value() & (most > 0), last.has_value()

    def _score_together(self, iterator: Any, most: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Like `_score_all` with other workers, which stop together. Also returns who stopped."""

        def goes_on(batch: tf.experimental.Optional, stops: tf.Tensor) -> tf.Tensor:
            return batch.has_value() & ~tf.reduce_any(stops > 0)

        def turn(batch: tf.experimental.Optional, _: tf.Tensor) -> tuple[Any, tf.Tensor]:
            with tf.name_scope(""):
                self.score(batch.get_value())
            return iterator.get_next_as_optional(), self._stops()

        first = iterator.get_next_as_optional()
        last, stops = tf.while_loop(goes_on, turn, (first, self._stops()), maximum_iterations=most)
        return first.has_value() & (most > 0), last.has_value(), stops

    @tf.function(autograph=False)
    def _stops(self) -> tf.Tensor:
        """For each worker, whether it was asked to stop."""
        return team.current().share(~tf.convert_to_tensor(self._free))[:, 0]

    def _heed(self, stops: tf.Tensor) -> None:
        """Ends the evaluation on all workers if one was asked to stop."""
        if tf.reduce_any(stops > 0):
            team.current().stopped(stops.numpy())
            if not team.current().follows:
                self._check()
            raise RunnerError("the evaluation was stopped")

    def _loop_on_host(self, iterator: Any, num_steps: tf.Tensor) -> tuple[bool, bool, Any]:
        """Runs Model Garden's loop, in which the task can aggregate the logs of each batch."""
        found = 0

        def step(iterator: Any) -> Any:
            nonlocal found
            if self._several:
                self._heed(self._stops())
            else:
                self._check()
            if self.batch_calls:
                self.batch_calls.before_batch(found)
            outputs = self._host_step(iterator)
            if self.batch_calls:
                self.batch_calls.after_batch(found, self.eval_end())
            found += 1
            return outputs

        loop = orbit.utils.create_loop_fn(step)
        aggregated = loop(iterator, num_steps, reduce_fn=self.eval_reduce)
        rest = num_steps >= 0 and bool(iterator.get_next_as_optional().has_value())
        return bool(found), rest, aggregated

    @contextlib.contextmanager
    def state_kept(self) -> Iterator[None]:
        """A context that restores all state of a checkpoint when it exits.

        Some layers also change state when they are called without training: recurrent layers of
        Keras 3 advance their seeds, and stateful ones their states. A saved value shares the
        variable's memory until the variable changes.
        """
        values = [variable.value() for variable in self._state]
        try:
            yield
        finally:
            for variable, value in zip(self._state, values, strict=True):
                variable.assign(value)

    @functools.cached_property
    def _state(self) -> list[tf.Variable]:
        """Each replica's variables that are in a checkpoint, except the optimizer's."""
        excluded = {id(variable) for variable in optimizers.variables(self._optimizer)}
        tracked = tf.train.TrackableView(self.checkpoint).descendants()
        local = self.strategy.experimental_local_results
        return [
            part
            for each in tracked
            if isinstance(each, tf.Variable) and id(each) not in excluded
            for part in local(each)
        ]

    def averages_in_force(self) -> contextlib.AbstractContextManager[None]:
        """A context in which the model has the averaged weights, if there are any."""
        return self._averages.in_force() if self._averages else contextlib.nullcontext()

    def eval_begin(self) -> None:
        """Resets the metrics."""
        for metric in [*self.validation_metrics, self.validation_loss]:
            metric.reset_state()

    def eval_step(self, iterator: Any) -> Mapping[str, Any]:
        """Evaluates one batch on all replicas, weighting its loss by its examples."""
        inputs, passed_through = self.next_eval_inputs(iterator)
        outputs = self.score(inputs)
        if self._several:
            aggregates = type(self.task).aggregate_logs is not base_task.Task.aggregate_logs
            every = tf.nest.map_structure(self._of_all_workers, outputs) if aggregates else {}
            return {**passed_through, **every}
        results = tf.nest.map_structure(self.strategy.experimental_local_results, outputs)
        return {**passed_through, **results}

    def _of_all_workers(self, output: Any) -> tuple[tf.Tensor, ...]:
        """Collects every replica's output for a batch, in the order of its examples."""
        local = self.strategy.experimental_local_results(output)
        if local[0].dtype in (tf.string, tf.variant):
            raise ConfigError(
                f"{type(self.task).__name__}.validation_step returns text for aggregate_logs, "
                "which several workers cannot exchange: return numbers"
            )
        if local[0].shape.rank == 0:
            (every,) = team.current().gather([tf.stack(local)])
            return tuple(tf.unstack(every, self.strategy.num_replicas_in_sync))
        number = tf.int32 if local[0].dtype == tf.bool else local[0].dtype
        gathered = self.strategy.gather(self.strategy.run(tf.cast, (output, number)), axis=0)
        return (tf.cast(gathered, local[0].dtype),)

    def score(self, inputs: Any) -> Any:
        """Adds one batch to the metrics, on all replicas. Returns the task's outputs."""

        def score(inputs: Any) -> Mapping[str, Any]:
            logs = self._task_step(inputs, model=self.model, metrics=self.validation_metrics)
            if self.task.loss in logs:
                examples = tf.cast(batches.examples(inputs), tf.float32)
                weight = logs.get(WEIGHT, examples)
                loss = tf.convert_to_tensor(logs[self.task.loss])
                mean = loss if loss.shape.rank == 0 else tf.reduce_mean(loss)  # per example
                self.validation_loss.update_state(mean, sample_weight=weight)
            return logs

        return self.strategy.run(skip_empty(score), args=(inputs,))

    def eval_end(self, aggregated_logs: Any = None) -> Logs:
        """Reads the metrics that have a result."""
        logs = {
            metric.name: metric.result()
            for metric in self.validation_metrics
            if getattr(metric, IS_DEFINED, lambda: True)()
        }
        if self.validation_loss.count.numpy():
            logs[self.validation_loss.name] = self.validation_loss.result()
        if aggregated_logs:
            logs.update(
                self.task.reduce_aggregated_logs(aggregated_logs, global_step=self.global_step)
            )
        return logs


def part_for(model: Any, name: str) -> Any:
    """The part of a model that a task of this name uses, or the whole model."""
    return model.sub_tasks[name] if isinstance(model, base_model.MultiTaskBaseModel) else model


def check_names(task: base_task.Task, metrics: Sequence[tf_keras.metrics.Metric]) -> None:
    """Raises ConfigError if two metrics share a name, because results would hold only one."""
    names = [metric.name for metric in {id(metric): metric for metric in metrics}.values()]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"{type(task).__name__} has two metrics called {twice[0]!r}; give each its own name "
            "(the loss is a metric, too)"
        )


def skip_empty(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wraps `step` so that a replica without examples does nothing and returns empty tensors.

    In the last batch, a replica may get no examples, and the mean would be NaN.
    """

    def guarded(inputs: Any) -> Any:
        examples = batches.examples(inputs)
        if tf.get_static_value(examples) or tf.distribute.get_strategy().num_replicas_in_sync == 1:
            return step(inputs)
        traced = []

        def full() -> Any:
            outputs = tf.nest.map_structure(tf.convert_to_tensor, step(inputs))
            traced.append(tf.nest.map_structure(tf.TensorSpec.from_tensor, outputs))
            return outputs

        def empty() -> Any:  # a graph traces it after `full`
            if not traced:
                tf.function(full, autograph=False).get_concrete_function()
            return tf.nest.map_structure(
                lambda spec: tf.zeros([size or 0 for size in spec.shape], spec.dtype), traced[0]
            )

        return tf.cond(examples > 0, full, empty)

    return guarded
