"""Opens a training run: clears leftovers in its directory, restores its state, and checks it."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

from runner.checkpoints import checkpoint_manager, extra_state, recovery, restore, retention
from runner.config import Experiment
from runner.core import console, layout
from runner.devices import team
from runner.errors import ConfigError
from runner.evaluation import (
    evaluation_sets,
    final_test,
    handover,
    metric_names,
    model_gardens_best,
    weight_mean,
)
from runner.history import history, policies
from runner.models import learning_rate
from runner.reporting import epoch_times, progress, writers
from runner.run_directory import input_shards
from runner.run_directory import spent as times
from runner.runs import build, evaluations, training_run, training_state
from runner.runs.call import Call, Resuming
from runner.storage import display_names
from runner.training import decisions, divergence, profiling, trainer, training_log


def open_run(
    call: Call,
    plan: policies.Policies,
    *,
    beat: Callable[[int], object] = lambda _: None,
    changed: Callable[[str], object] = lambda _: None,
    spent: times.Spent | None = None,
    evaluators: Path | None = None,
    resuming: Resuming = Resuming(),  # noqa: B008, immutable
) -> training_run.TrainingRun:
    """Opens the run in `call.model_dir`, at its newest checkpoint or at the start.

    Args:
        call: The call of the mode.
        plan: The policies of the configuration.
        beat: Called with the step after each loop.
        changed: Called with each change of the data that is accepted.
        spent: The time accounting of this attempt.
        evaluators: The directory whose evaluators decide, if it is not the run's.
        resuming: What a resume may change, and which steps are profiled.

    Raises:
        ConfigError: the configured run cannot be built.
        RunnerError: no checkpoint can be restored.
    """
    config, folder = call.config, call.model_dir
    named = writers.Writers(config.run.writers)
    state, costs = _built(call, plan, named, resuming, changed)
    trainer, evaluates = state.trainer, bool(plan.grid.evaluations)
    pruning = build.build_pruning(config, trainer, folder)  # before the restore
    state.begin()
    metric_names.check(config, trainer, evaluators or folder, evaluates=evaluates)
    boards = evaluations.build_boards(
        config,
        folder,
        named,
        validation=config.trainer.validation_summary_subdir,
        purge_from=trainer.step + (1 if state.history.has(trainer.step) else 0),
        tags=call.given.tags,
    )
    line = _line(state, plan, costs)
    outputs = evaluations.Outputs(folder, state.history, boards, line)
    evaluated = evaluations.build_evaluation(
        config, trainer, plan, outputs, actions=call.eval_actions, grid=plan.grid
    )
    mean, tested = None, None
    if evaluates:
        mean = weight_mean.WeightMean(
            config,
            plan.grid,
            trainer,
            folder,
            state.history,
            evaluated,
            lambda: state.inputs().dataset,
        )
        best = [folder / name for name in plan.best_folders]
        tested = final_test.build(config, trainer, folder, best_folders=best, rows=state.history)
    team.current().lead()
    if config.run.resume_inputs == "fresh_shuffle" and state.source and not trainer.replay.is_over:
        state.reshuffle()
    if not state.source and config.trainer.recovery_max_trials > 0:
        state.commit(0)  # a checkpoint to roll back to
    return training_run.TrainingRun(
        state=state,
        policies=plan,
        guard=divergence.Divergence(trainer, state.store, state.history),
        evaluation=evaluated,
        weight_mean=mean,
        final_test=tested,
        boards=boards,
        line=line,
        epoch_times=epoch_times.EpochTimes(
            plan.grid, total=config.run.epochs.train, rows=folder / layout.TRAINING_ROWS
        ),
        costs=costs,
        pruning=pruning,
        profiled=_profiled(resuming.profile_steps, state),
        beat=beat,
        spent=spent or times.Spent(),
    )


def _built(
    call: Call,
    plan: policies.Policies,
    named: writers.Writers,
    resuming: Resuming,
    changed: Callable[[str], object],
) -> tuple[training_state.TrainingState, build.Costs]:
    """Builds the state before its restore, with all variables, and truncates its logs."""
    config, folder = call.config, call.model_dir
    rows = history.History(folder / layout.HISTORY)
    source = recovery.newest_good(
        folder,
        best_folders=list(plan.best_folders),
        note=console.say,
        lost=functools.partial(_lost, rows, folder),
    )
    written = extra_state.LogState.read(source) if source else None
    _truncate(rows, folder, source, written, may_lose=resuming.allow_lost_history)
    if source and plan.best and extra_state.is_model_gardens(source):
        _adopt_best(config, folder / next(iter(plan.best_folders)), rows)
    step = restore.step_of(source) if source else 0
    team.current().open(step, str(source) if source else None, rows.reading)
    trainer, rate_scale = build.build_trainer(
        call, step=step, evaluates=bool(plan.grid.evaluations), reading=rows.reading
    )
    if source and not team.current().follows:
        input_shards.check(
            folder,
            trainer.determinism.placements,
            allow=resuming.allow_config_change,
            note=changed,
        )
    costs = build.build_costs(config, trainer)
    log = training_log.TrainingLog(
        folder,
        resumed_at=step,
        draws=config.run.draws("train"),
        writes=config.run.training_rows,
        draws_every=config.run.summary_seconds,
        utilization=costs.utilization,
        writers=named,
        tags=call.given.tags,
        summaries=trainer.written,
        graph=trainer.training_graph if config.run.tensorboard_graph and not source else None,
    )
    if source and written:
        _check_training_rows(log, folder, source, written.training)
    # A pause is no end: its evaluation counts for decisions only if it is scheduled.
    grid = dataclasses.replace(plan.grid, end=config.trainer.train_steps)
    state = training_state.TrainingState(
        config=config,
        folder=folder,
        source=source,
        trainer=trainer,
        rate_scale=rate_scale,
        store=_store(config, folder, trainer, plan),
        history=rows,
        log=log,
        decisions=decisions.Decisions(
            config,
            folder,
            rows,
            due=evaluation_sets.Due(grid, evaluation_sets.intervals_of(config)),
            scheduled=functools.partial(learning_rate.scheduled, trainer.optimizer, rate_scale),
        ),
    )
    return state, costs


def _lost(rows: history.History, folder: Path, checkpoint: Path) -> str:
    """Describes the rows that a checkpoint followed and the logs no longer have."""
    written = extra_state.LogState.read(checkpoint)
    if written is None or not (folder / layout.TRAINING_ROWS).exists():
        return ""
    if training_log.newest_step(folder) < written.training:
        return f"{layout.TRAINING_ROWS} no longer has its rows"
    lost = rows.lost(written.history)
    return lost and f"{layout.HISTORY} has lost {lost} that it followed"


def _truncate(
    rows: history.History,
    folder: Path,
    source: Path | None,
    written: extra_state.LogExtents | None,
    *,
    may_lose: bool,
) -> None:
    """Drops the rows after the checkpoint to start from, and checks that none is missing."""
    if written and (lost := rows.lost(written.history)):
        said = f"{folder / layout.HISTORY} has lost {lost} that {source} followed"
        if not may_lose:
            raise ConfigError(
                f"{said}.\nEarly stopping, the learning rate and the best checkpoint depend on "
                "these rows. Restore a copy of the file, or continue without them with "
                "{allow_lost_history}",
                allow_lost_history=True,
            )
        console.say(f"{display_names.in_text(said)}; continuing with the remaining rows")
    rows.drop_after(restore.step_of(source) if source else 0)


def _adopt_best(config: Experiment, folder: Path, rows: history.History) -> None:
    """Adds the best evaluation that Model Garden noted, if there is one."""
    averaged = config.trainer.optimizer_config.ema is not None
    best = model_gardens_best.adopt(folder.parent, folder, averaged=averaged)
    if best and not rows.has(best.step):
        rows.append(best)


def _store(
    config: Experiment, folder: Path, trainer: trainer.Trainer, plan: policies.Policies
) -> checkpoint_manager.Checkpoints:
    return checkpoint_manager.Checkpoints(
        trainer.checkpoint,
        folder,
        keep=retention.Keep(
            config.trainer.max_to_keep,
            config.run.retention.every,
            plan.grid.commits,
            lambda steps: weight_mean.chosen(config, plan.grid, steps),
        ),
        asynchronous=config.run.async_checkpoints,
        best_folders=[folder / name for name in plan.best_folders],
        before_removal=handover.Handover(folder).hand_over,
        verifies=config.run.verify_checkpoints,
    )


def _check_training_rows(
    log: training_log.TrainingLog, folder: Path, source: Path, newest: int
) -> None:
    """Reports missing rows that existed when the checkpoint was saved."""
    if log.step < newest:
        name = display_names.of(folder / layout.TRAINING_ROWS)
        console.say(
            f"{name} has lost training rows: the newest is for step {log.step:,}, but "
            f"{display_names.of(source)} was saved after step {newest:,}"
        )


def _line(
    state: training_state.TrainingState, plan: policies.Policies, costs: build.Costs
) -> progress.Progress:
    return progress.Progress(
        plan.grid.end,
        epochs=state.config.run.epochs.train,
        metric=plan.shown,
        deciding=plan.deciding,
        evaluations_left=plan.grid.evaluations_after,
        utilization=costs.utilization,
        hand_over=state.log.do,
    )


def _profiled(
    steps: tuple[int, int] | None, state: training_state.TrainingState
) -> profiling.Profiled | None:
    every = state.config.run.profile_every
    if steps is None and not every:
        return None
    if steps and every:
        console.say("--profile_steps overrides RunConfig.profile_every")
    chosen = profiling.Steps(*steps) if steps else profiling.each(every)
    folder = state.folder / layout.TRAIN
    return profiling.Profiled(state.trainer, chosen, folder, note=console.say)
