"""Model Garden's `run_experiment` on this runner, with the same parameters and return value."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orbit
import tensorflow as tf
import tf_keras
from official.core import base_task, base_trainer, train_lib
from official.core import config_definitions as cfg

from runner import config, errors
from runner.checkpoints import averages, checkpoint_files
from runner.command import execution, from_python, table
from runner.configuration import limits, multitask
from runner.core import console, layout, signals
from runner.devices import process_state, team
from runner.errors import ConfigError
from runner.evaluation import evaluation_log
from runner.history import history, policies, records
from runner.internals import tensorflow as tf_internals
from runner.reporting import scalars, tensorboard
from runner.run_config import TENSORBOARD
from runner.runs import build, evaluations, follow, workers
from runner.runs.call import Call, Given, OrbitSummaries

_MODES = {
    "train": "train",
    "eval": "eval",
    "train_and_eval": "train_and_eval",
    "continuous_eval": "continuous_eval",
    "train_and_post_eval": "train",
}
"""This runner's name for each of Model Garden's modes."""

_EVALUATED = ("train_and_post_eval",)
"""The Model Garden modes that evaluate the newest checkpoint at the end."""

_NOT_THEIRS = ("overwrite", "allow_config_change", "allow_lost_history")
"""The parameters that Model Garden's `run_experiment` does not have."""

OWN_LOOP = (
    "{what} runs Model Garden's own loop: no bit-exact resume, early stopping, reduction of the "
    "learning rate on plateaus, named evaluation sets, lock on the run directory or history.jsonl. "
    "A signal does not save a checkpoint"
)


def run_experiment(
    distribution_strategy: tf.distribute.Strategy | None,
    task: base_task.Task,
    mode: str,
    params: cfg.ExperimentConfig,
    model_dir: str,
    run_post_eval: bool = False,
    save_summary: bool = True,
    train_actions: Sequence[orbit.Action] | None = None,
    eval_actions: Sequence[orbit.Action] | None = None,
    trainer: base_trainer.Trainer | None = None,
    controller_cls: type[orbit.Controller] = orbit.Controller,
    summary_manager: Any = None,
    eval_summary_manager: Any = None,
    enable_async_checkpointing: bool = False,
    *,
    overwrite: bool | str = False,
    allow_config_change: bool = False,
    allow_lost_history: bool = False,
) -> tuple[tf_keras.Model, Mapping[str, Any]]:
    """Does what `official.core.train_lib.run_experiment` does, with this runner's guarantees.

    Args:
        distribution_strategy: None means the one in scope.
        task: Builds the model and the inputs.
        mode: `train`, `eval`, `train_and_eval`, `continuous_eval` or `train_and_post_eval`.
        params: The configuration. An experiment of this runner also has a config class `run`.
        model_dir: The run's directory.
        run_post_eval: Whether to evaluate the newest weights at the end.
        save_summary: Whether to write TensorBoard events.
        train_actions: Called with the logs of each training loop. The list is not changed.
        eval_actions: Called with the results of each evaluation. The list is not changed.
        trainer: If given, Model Garden's own loop runs, without these guarantees.
        controller_cls: Any class other than Orbit's has the same effect.
        summary_manager: Receives the training logs, instead of an event file of this runner.
        eval_summary_manager: Receives the results of evaluations in the same way.
        enable_async_checkpointing: Whether to write checkpoints while training continues.
        overwrite: The name of the run's directory, to remove the run in it and start a new one.
        allow_config_change: Whether a run may resume with a changed configuration.
        allow_lost_history: Whether it may resume without rows that its history has lost.

    Returns:
        The model, and the results of the evaluation at the end, {} if there is none.

    Raises:
        runner.errors.RunnerError: if the run cannot continue. The message gives the reason.
    """
    given = dict(locals())
    if mode not in _MODES:
        raise ConfigError(table.unknown(mode, f"run_experiment(mode={mode!r})", tuple(_MODES)))
    if trainer is not None or controller_cls is not orbit.Controller:
        what = "a trainer of your own" if trainer is not None else f"{controller_cls.__name__}"
        console.say(OWN_LOOP.format(what=what))
        if not_theirs := [name for name in _NOT_THEIRS if given.pop(name)]:
            raise ConfigError(f"{', '.join(not_theirs)}: no effect in Model Garden's own loop")
        copies = {name: list(given[name] or ()) for name in ("train_actions", "eval_actions")}
        return train_lib.run_experiment(**given | copies)
    managers = {"train": summary_manager, "validation": eval_summary_manager}
    async_checkpoints = {"async_checkpoints": enable_async_checkpointing}
    experiment = adopted(params, save_summary, managers, run=async_checkpoints)
    called, written = _calls(eval_actions), summaries(eval_summary_manager)
    ours = table.modes()[_MODES[mode]]
    if ours.trains:
        written += _averages(params, Path(model_dir))

    def told(actions: Sequence[orbit.Action]) -> list[orbit.Action]:
        return [_told_of_best(action, experiment, Path(model_dir)) for action in actions]

    call = Call(
        experiment,
        Path(model_dir),
        train_actions=[*_calls(train_actions), *summaries(summary_manager)],
        eval_actions=told([*called, *written]),
        given=Given(
            distribution_strategy or tf.distribute.get_strategy(),
            task,
            writers(managers),
            official=is_official(params),
        ),
    )

    def at_end(joined: Call) -> Mapping[str, Any]:
        draws = save_summary and not eval_summary_manager and not ours.evaluates
        results = evaluated(joined, told(called), draws=draws)
        logs = _with_best(experiment, Path(model_dir), results)
        for action in () if team.current().follows else written:
            action(logs)
        return logs

    post_eval = run_post_eval or mode in _EVALUATED
    options = {
        "overwrite": overwrite,
        "allow_config_change": allow_config_change,
        "allow_lost_history": allow_lost_history,
    }
    return run(call, mode, at_end if post_eval else None, options)


def is_official(params: Any) -> bool:
    """Returns whether a configuration is Model Garden's own, without `run`."""
    return not isinstance(params, config.Experiment)


def adopted(
    params: cfg.ExperimentConfig,
    save_summary: bool,
    managers: Mapping[str, Any],
    *,
    run: Mapping[str, Any],
) -> config.Experiment:
    """Returns the experiment of a Model Garden program.

    Args:
        params: The program's configuration.
        save_summary: Whether to write TensorBoard events.
        managers: Its summary managers, by the kind of events that they write instead.
        run: Further values of the config class `run`.
    """
    kinds = tuple(kind for kind in TENSORBOARD if not managers.get(kind))
    values = {**run, "tensorboard": save_summary, "tensorboard_kinds": kinds}
    if is_official(params) and tf_internals.seed() is not None:
        values["seed"] = tf_internals.seed()
    return config.from_official(params).replace(run=values, runtime=_set_by_caller(params))


def run(
    call: Call,
    mode: str,
    at_end: Callable[[Call], Mapping[str, Any]] | None,
    options: Mapping[str, Any] | None = None,
) -> tuple[tf_keras.Model, Mapping[str, Any]]:
    """Runs the call of a Model Garden program in one of Model Garden's modes.

    Args:
        call: The program's call. Signals are handled here.
        mode: The mode.
        at_end: Called at the end with the call, which has the workers' strategy, and returns the
            results. None: no evaluation at the end.
        options: Options of the mode.

    Returns:
        The model, and what `at_end` returned.
    """
    with errors.in_python(), process_state.restored(), signals.served() as stop:
        ours = table.modes()[_MODES[mode]]
        chosen = from_python.options_of(ours, options or {})
        chosen.check(str(call.model_dir))
        call = dataclasses.replace(call, stop=stop, mode=mode)
        with workers.joined(call) as joined:
            held = execution.run(ours, joined, chosen).evaluator
            assert held is not None  # these modes run here
            logs = at_end(joined) if at_end else {}
    return held.model, logs


def writers(managers: Mapping[str, Any]) -> OrbitSummaries:
    """Returns the writers of the summary managers that are given."""
    writers = {kind: each.summary_writer() for kind, each in managers.items() if each}
    return OrbitSummaries(**writers)


class OrbitExperimentRunner(train_lib.OrbitExperimentRunner):
    """Model Garden's class for programs that subclass it. Runs its own loop and reports that."""

    def run(self) -> tuple[tf_keras.Model, Mapping[str, Any]]:
        """Does what Model Garden's method does, without this runner's guarantees."""
        console.say(OWN_LOOP.format(what=type(self).__name__))
        return super().run()


def _set_by_caller(params: cfg.ExperimentConfig) -> dict[str, Any]:
    """Returns the precision and the eager mode that the program set and `params` leaves open."""
    runtime: dict[str, Any] = {}
    precision = tf_keras.mixed_precision.global_policy().compute_dtype
    if not params.runtime.mixed_precision_dtype and precision != "float32":
        runtime["mixed_precision_dtype"] = precision
    if tf.config.functions_run_eagerly():
        runtime["run_eagerly"] = True
    return runtime


def _calls(actions: Sequence[orbit.Action] | None) -> list[orbit.Action]:
    """Wraps the actions to drop their return values, which Model Garden ignores."""

    def calling(action: orbit.Action) -> orbit.Action:
        def call(logs: Mapping[str, Any]) -> None:
            action(logs)

        return call

    return [calling(action) for action in actions or ()]


def summaries(
    manager: Any, nested: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
) -> list[orbit.Action]:
    """Returns an action that passes its logs through `nested` to a summary manager of Orbit."""
    if manager is None:
        return []

    def write(logs: Mapping[str, Any]) -> None:
        manager.write_summaries(nested(logs))
        manager.flush()

    return [write]


def _averages(params: cfg.ExperimentConfig, model_dir: Path) -> list[orbit.Action]:
    """Returns an action that saves averaged weights like Model Garden's `EMACheckpointing`."""
    if params.trainer.optimizer_config.ema is None:
        return []
    folder = model_dir / layout.AVERAGES

    def save(_: Mapping[str, Any]) -> None:
        newest = checkpoint_files.latest(model_dir)
        if newest is None:  # saved by another worker
            return
        name = f"average_weights-{checkpoint_files.step_in(newest.name)}"
        older = [path.name for path in checkpoint_files.committed(folder) if path.name != name]
        averages.write(newest, folder / name)
        names = [*older, name]
        kept = names[-max(params.trainer.max_to_keep or 0, 0) :]  # 0 keeps all, as in TensorFlow
        checkpoint_files.list_committed(folder, kept)
        for other in set(names) - set(kept):
            checkpoint_files.remove(folder / other)

    return [save]


def evaluated(
    call: Call, actions: Sequence[orbit.Action] = (), *, draws: bool = False
) -> Mapping[str, Any]:
    """Evaluates the newest checkpoint and returns the results nested as in Model Garden.

    Args:
        call: The call of the run.
        actions: Called with the results as the task returns them, before they become NumPy values.
        draws: Whether to write the results to the validation events, because the run wrote none.
    """
    model_dir, mates = call.model_dir, team.current()
    batches = limits.validation_batches(call.config)
    began = time.monotonic()  # for a worker that follows, including its waits
    if mates.follows:
        logs = follow.score(call)
    else:
        newest = checkpoint_files.latest(model_dir)
        if newest is None:
            raise ConfigError(f"there is no checkpoint to evaluate in {model_dir}")
        mates.open()
        built = build.build_evaluator(call, model_dir)
        mates.lead()
        built.restore(newest)
        began = time.monotonic()
        logs = evaluations.of_each_task(call.config, built)
    timed = batches > 0 and multitask.evaluates_own(call.config)
    speed = {"steps_per_second": batches / (time.monotonic() - began)} if timed else {}
    for action in () if mates.follows else actions:
        action(logs)
    results = {**tf.nest.map_structure(orbit.utils.get_value, logs), **speed}
    if draws and not mates.follows:
        pictures = evaluation_log.drawing(call.config, built.task)
        charts = evaluation_log.charts(results, pictures, built.summaries.take())
        folder = model_dir / call.config.trainer.validation_summary_subdir
        with contextlib.closing(tensorboard.TensorBoard(folder, tags=call.given.tags)) as board:
            board.chart(int(built.global_step.numpy()), charts)
    return results


def _told_of_best(
    action: orbit.Action, experiment: config.Experiment, model_dir: Path
) -> orbit.Action:
    """Returns the action with the best value so far added to the results of each evaluation."""
    return lambda logs: action(_with_best(experiment, model_dir, logs))


def _with_best(
    experiment: config.Experiment, model_dir: Path, logs: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Adds the best value so far of the metric that decides on the best checkpoint.

    It has Model Garden's name and is present if Model Garden would export a best checkpoint.
    """
    rule = policies.of(experiment).best
    if rule is None or not experiment.trainer.best_checkpoint_export_subdir:
        return logs
    rows = [row for row in history.History(model_dir / layout.HISTORY).evaluations if row.is_own]
    step = rows[-1].step + 1 if rows else 0
    now = records.Evaluation(step, scalars.scalars(logs), 0.0, 0.0, "")
    best = rule.best([*rows, now])
    name = f"best_{experiment.trainer.best_checkpoint_eval_metric}"
    return {**logs, **({name: best.metrics[rule.metric]} if best else {})}
