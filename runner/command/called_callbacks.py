"""Calls callbacks of Keras during a run, where and with what Keras's `fit` calls them."""

import math
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from runner.core import console, schedule
from runner.internals import keras as keras_internals
from runner.models import copies
from runner.models import optimizer as optimizers

_BATCH = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
_TEST_BATCH = ("on_test_batch_begin", "on_test_batch_end")
_ENDS = ("on_test_end", "on_epoch_end")
_OF_KERAS = {"model", "_model", "params", "_params", "validation_data"}
_LOSS, _VALIDATION_LOSS = "training_loss", "validation_loss"


class CalledCallbacks:
    """Callbacks that are called during a run.

    An epoch is the interval of training rows, for which the metrics of training are means.

    Args:
        callbacks: Objects of tf_keras's or Keras 3's Callback.
        model: The user's model, which a callback may use instead of its attribute `model`. It gets
            the trained weights at the end of each epoch, and may stop training. None for a
            function.

    Attributes:
        stepwise: Their methods to call at each step, such as `Own.on_train_batch_end`. The run's
            loops must then have one step.
    """

    def __init__(self, callbacks: Sequence[Any], model: Any = None) -> None:
        self._callbacks = list(callbacks)
        self._given = model
        self._run: Any = None
        self._model: Any = None
        self._epoch: int | None = None  # the one that has begun
        self._tests = False
        self._logs: dict[str, Any] = {}
        self._stopped_by = ""
        self._before: dict[int, dict[str, Any]] = {}
        self._resumed = False
        self._has_trained = False
        self.stepwise = list(_own(self._callbacks, _BATCH))

    def open(self, run: Any) -> None:
        """Begins training. A watcher of `runner.runs.call.Call`."""
        self._run = run
        trainer = run.state.trainer
        self._model = getattr(trainer.model, "network", trainer.model)
        optimizer = optimizers.innermost(trainer.optimizer)
        keras_internals.set_untracked(self._model, "optimizer", optimizer)
        for model in self._models():
            model.stop_training = False
        self._copy_weights()
        run.before_loop = self._before_loop
        if any(_own(self._callbacks, _TEST_BATCH)):
            trainer.batch_calls = self
        grid = run.policies.grid
        params = {
            "verbose": int(console.STDERR.shows_progress),
            "epochs": math.ceil(grid.end / grid.summary),
            "steps": math.ceil(grid.summary),
        }
        for callback in self._callbacks:
            callback.set_params(params)
            callback.set_model(self._model)
        self._call("on_train_begin")
        self._resumed = run.step > 0
        if self._resumed:
            run.state.undo_rate()
            self._before = {id(each): dict(_state(each)) for each in self._callbacks}

    def after_loop(self, logs: Mapping[str, Any]) -> str | None:
        """Ends a step and perhaps an epoch. An action after training loops.

        Args:
            logs: The metrics of training since the start of the epoch.

        Returns:
            Why the run stops, or None.
        """
        step, grid = self._run.step, self._run.policies.grid
        self._logs = dict(_named(logs))
        if self.stepwise:
            batch = step - self._start_of(self._epoch or 0) - 1
            self._call("on_train_batch_end", batch, logs=self._logs)
        if grid.evaluates(step):
            self._begin_test()
        elif grid.due(step, grid.summary):
            self._end_epoch()
        return self._reason()

    def after_evaluation(self, logs: Mapping[str, Any]) -> str | None:
        """Ends an evaluation and perhaps an epoch. An action after evaluations.

        Args:
            logs: The metrics of the evaluation.

        Returns:
            Why the run stops, or None.
        """
        step, grid = self._run.step, self._run.policies.grid
        self._begin_test()
        scores = dict(_named(logs))
        self._call("on_test_end", logs=scores)
        self._tests = False
        if (
            self._epoch is None and not self._has_trained
        ):  # resumed between the end of an epoch and its evaluation
            self._epoch = self._epoch_of(step - 1)
            self._logs = dict(_named(self._run.state.log.newest))
        is_end = grid.due(step, grid.summary) or not grid.evaluates(step)  # the run has stopped
        if self._epoch is not None and is_end:
            self._logs |= {f"val_{name}": value for name, value in scores.items()}
            self._end_epoch()
        return self._reason()

    def before_batch(self, batch: int) -> None:
        """Begins a batch of an evaluation. See `runner.evaluation.evaluator.BatchCalls`."""
        self._begin_test()
        self._call("on_test_batch_begin", batch)

    def after_batch(self, batch: int, logs: Mapping[str, Any]) -> None:
        """Ends a batch of an evaluation."""
        self._call("on_test_batch_end", batch, logs=dict(_named(logs)))

    def close(self) -> None:
        """Ends training, after a run that has not failed."""
        if self._run is None:
            return
        if self._epoch is not None:
            self._end_epoch()
        self._call("on_train_end", logs=self._logs)

    def _before_loop(self) -> None:
        self._has_trained = True
        epoch = self._epoch_of(self._run.step)
        is_start = self._run.step == self._start_of(epoch)
        if is_start or self._epoch != epoch:  # also after a rollback
            self._epoch = epoch
            self._call("on_epoch_begin", epoch)
            if not is_start:  # resumed, with the rate that it had set
                self._run.state.undo_rate()
        if self.stepwise:
            self._call("on_train_batch_begin", self._run.step - self._start_of(epoch))

    def _begin_test(self) -> None:
        if not self._tests:
            self._tests = True
            self._call("on_test_begin")

    def _end_epoch(self) -> None:
        self._copy_weights()
        self._call("on_epoch_end", self._epoch, logs=self._logs)
        self._epoch = None
        if self._resumed:
            self._name_lost_state()

    def _call(self, method: str, *args: Any, logs: Mapping[str, Any] | None = None) -> None:
        """Calls a method of each callback, which may add to the logs as in Keras."""
        given = {} if logs is None else logs
        for callback in self._callbacks:
            getattr(callback, method)(*args, given)
            if method in _ENDS:  # a resume does not call it again
                self._run.state.note_rate(self._run.step)
            if self._stops() and not self._stopped_by:
                self._stopped_by = f"{type(callback).__name__}.{method}"

    def _models(self) -> list[Any]:
        """The trained model, and the user's."""
        return [self._model] if self._given is None else [self._model, self._given]

    def _stops(self) -> bool:
        return any(model.stop_training for model in self._models())

    def _copy_weights(self) -> None:
        """Gives the user's model the weights of the trained one."""
        given = self._given
        if self._callbacks and given is not None and given is not self._model:
            copies.copy_weights(self._model, given)

    def _epoch_of(self, step: int) -> int:
        """The epoch, from 0, of the step after `step`."""
        return int(schedule.passed(step, self._run.policies.grid.summary))

    def _start_of(self, epoch: int) -> int:
        return schedule.multiple(epoch, self._run.policies.grid.summary)

    def _reason(self) -> str | None:
        if not self._stops():
            return None
        reason = f"{self._stopped_by or 'a callback'} set model.stop_training"
        self._run.state.decisions.stop_for_good(self._run.step, reason)
        return reason

    def _name_lost_state(self) -> None:
        """Names the callbacks whose attributes change, which the resume has not restored."""
        for callback in self._callbacks:
            before = self._before.pop(id(callback), None)
            if before is None:
                continue
            now = dict(_state(callback))
            changed = [name for name, value in now.items() if before.get(name) != value]
            if changed:
                console.say(
                    f"callbacks: {type(callback).__name__} changes {', '.join(changed)}, which "
                    "checkpoints do not have: the resume has reset them"
                )
            else:
                self._before[id(callback)] = before


def _named(logs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields metrics by Keras's names, numbers as floats."""
    for name, value in logs.items():
        if name.startswith("learning_rate"):
            continue
        array = np.asarray(value)
        key = "loss" if name in (_LOSS, _VALIDATION_LOSS) else name
        yield key, array.item() if array.ndim == 0 else array


def _own(callbacks: Sequence[Any], methods: Sequence[str]) -> Iterator[str]:
    """Yields the methods that callbacks define, as `Own.on_train_batch_end`.

    Keras marks those of the base class.
    """
    for callback in callbacks:
        for name in methods:
            method = getattr(callback, name, None)
            if method is not None and not keras_internals.is_default(method):
                yield f"{type(callback).__name__}.{name}"


def _state(callback: Any) -> Iterator[tuple[str, Any]]:
    """Yields the attributes of a callback in a form that shows a change."""
    for name, value in vars(callback).items():
        if name in _OF_KERAS or isinstance(value, tf.Module | tf_keras.Model):
            continue
        try:
            yield name, pickle.dumps(value)
        except Exception:  # an object's own code may raise anything
            yield name, id(value)
