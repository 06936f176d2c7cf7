"""Assembles the evaluation of a trainer's or an evaluator's weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from runner.checkpoints import averages, best
from runner.config import Experiment
from runner.configuration import limits
from runner.core import layout, schedule
from runner.evaluation import evaluation, evaluation_log, evaluation_sets, evaluator
from runner.history import history, policies
from runner.reporting import progress, tensorboard, writers
from runner.runs import user_actions


class Outputs(NamedTuple):
    """The destinations of results.

    Attributes:
        folder: The run's, or the evaluator's own within it.
        rows: The history in `folder`.
        boards: TensorBoard's directories.
        line: Shows progress to the user.
    """

    folder: Path
    rows: history.History
    boards: tensorboard.Boards
    line: progress.Progress


def build_evaluation(
    config: Experiment,
    built: evaluator.Evaluator,
    plan: policies.Policies,
    outputs: Outputs,
    *,
    actions: Sequence[schedule.Action],
    grid: schedule.Grid | None = None,
    keeps_best: bool = True,
) -> evaluation.Evaluation:
    """Builds the evaluation of the weights of `built`.

    Args:
        config: The experiment.
        built: The evaluator.
        plan: Decides which evaluations are the best.
        outputs: The destinations of results.
        actions: Called with each result.
        grid: The schedule of each set of data, or None to evaluate all each time. If the schedule
            has no evaluation, no data are read.
        keeps_best: Whether best checkpoints are kept.
    """
    folder, rows, boards, line = outputs
    write_averages = averages.write if built.averages else None
    kept = max(config.run.retention.best, 1)
    keeper = best.BestCheckpoints(
        [
            best.BestCheckpoint(folder / name, rule, keep=kept, write_averages=write_averages)
            for name, rule in plan.best_folders.items()
            if keeps_best
        ]
    )
    sets: Sequence[evaluation_sets.EvaluationSet] = ()
    if grid is None or grid.evaluations:
        with built.strategy.scope():
            sets = evaluation_sets.build(config, built)
    return evaluation.Evaluation(
        built,
        evaluation_log.EvaluationLog(
            rows, boards, keeper, line, home=folder.parent, limited=config.run.limit_evaluation
        ),
        batches=limits.validation_batches(config),
        sets=sets,
        grid=grid,
        actions=(*actions, *user_actions.after_evaluations(config, plan.best, rows)),
        pictures=evaluation_log.drawing(config, built.task),
    )


def of_each_task(config: Experiment, built: evaluator.Evaluator) -> evaluator.Logs:
    """Returns the results of an evaluation under Model Garden's names, without recording them.

    They are the results of the validation data, or of each set with a separate task, by its name.
    """
    with built.strategy.scope():
        sets = evaluation_sets.build(config, built)
    logs: evaluator.Logs = {}
    for each in sets:
        if each.task is not None:
            found = built.evaluate_on(each.dataset, each.title, limit=each.batches)
            logs[each.name] = found
        elif each.dataset is None:
            logs |= built.evaluate(tf.constant(limits.validation_batches(config)))
    return logs


def build_boards(
    config: Experiment,
    folder: Path,
    named: writers.Writers,
    *,
    validation: str = "",
    purge_from: int | None = None,
    tags: Mapping[str, str] = tensorboard.SHARED_TAGS,
) -> tensorboard.Boards:
    """Returns TensorBoard's directories: `validation` in `folder`, or `folder`, and one per set."""
    sets = {each.name: folder / layout.SETS / each.name for each in config.run.evaluation_sets}
    folders = {"": folder / validation, **sets}
    draws = {True: config.run.draws("sets"), False: config.run.draws("validation")}
    return tensorboard.Boards(
        {name: path if draws[bool(name)] else None for name, path in folders.items()},
        purge_from=purge_from,
        writers=named,
        tags=tags,
    )
