"""The modes `eval` and `continuous_eval`."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from runner.checkpoints import checkpoint_files, selection
from runner.configuration import functions
from runner.core import closing, console, layout
from runner.devices import team
from runner.errors import ConfigError, RunnerError
from runner.history import best_evaluation, policies, records
from runner.reporting import table
from runner.run_directory import session, watch
from runner.run_directory.state import FINISHED, State
from runner.runs import evaluator_run, follow, workers
from runner.runs.call import Call, Outcome, Results
from runner.runs.results import results


def evaluate(call: Call, checkpoint: str = "", data: str = "") -> Outcome:
    """Evaluates checkpoints, or tests the run.

    Args:
        call: The call of the mode.
        checkpoint: See `runner.checkpoints.selection`. An empty text selects the newest.
        data: `test`, or empty for the data that training evaluates.
    """
    with workers.joined(call, takes_mean=selection.is_mean(checkpoint)) as joined:
        if team.current().follows:
            return follow.evaluate(joined)
        return _tested(joined, checkpoint, data) if data else _lead(joined, checkpoint)


def _lead(call: Call, checkpoint: str) -> Outcome:
    """Evaluates in the process that writes."""
    experiment, model_dir = call.config, call.model_dir
    plan = policies.of(experiment)
    paths = selection.select(model_dir, checkpoint, best=list(plan.best_folders))
    initial = experiment.task.init_checkpoint
    if not paths and not initial:
        raise ConfigError(f"there is no checkpoint to evaluate in {model_dir}")
    with _evaluator(call, plan, "once", keeps_best=False) as run:
        before, left_out = len(run.history.evaluations), len(run.history.left_out)
        if selection.is_mean(checkpoint):
            run.evaluate_mean(paths)
        elif len(paths) > 1:
            _evaluate_several(paths, run, plan.shown)
        elif paths:
            run.evaluate(paths[0])
        else:
            run.evaluate_initial(Path(initial))
        rows, failed = run.history.evaluations[before:], run.history.left_out[left_out:]
    rule = plan.best if len(paths) > 1 else None
    more = {"left_out": _left_out(failed), "limited": call.limits}
    made = results("done", rows, rule, model_dir, **more)
    made["evaluations"] = [
        {"step": row.step, "checkpoint": row.checkpoint, "metrics": records.plain(row.metrics)}
        for row in rows
    ]
    return Outcome(made, run.evaluator)


def _tested(call: Call, checkpoint: str, data: str) -> Outcome:
    """Tests a run's best weights, once, in the directory of a separate evaluator."""
    model_dir = call.model_dir
    if data != layout.TEST:
        raise ConfigError(
            "{data}: eval takes only test; without it, the validation data and the evaluation sets "
            "are evaluated",
            data=data,
        )
    if checkpoint:
        raise ConfigError(
            "{data} tests the best weights: leave out {checkpoint}", data=data, checkpoint=None
        )
    if call.config.run.test.data is None:
        raise ConfigError("{data}: there are no test data (TestConfig.data)", data=data)
    if checkpoint_files.latest(model_dir) is None:
        raise ConfigError(f"there is no checkpoint to test in {model_dir}")
    plan = policies.of(call.config)
    with _evaluator(call, plan, layout.TEST, keeps_best=False) as run:
        tested = run.test()
    made = results("done", [], None, model_dir, test=tested, limited=call.limits)
    made["step"] = max(each["step"] for each in tested.values())
    return Outcome(made, run.evaluator)


def continuous_eval(call: Call) -> Outcome:
    """Evaluates each new checkpoint while a training run writes them, until that run has ended."""
    plan = policies.of(call.config)
    named = call.config.run.evaluator.give_up
    give_up = functions.build(named) if named else None
    with _evaluator(call, plan, "continuous") as run:
        training = watch.Watch(
            call.model_dir,
            timeout=call.config.trainer.continuous_eval_timeout,
            give_up=give_up,
            last_step=call.config.trainer.train_steps,
            note=console.say,
        )
        reason = run.follow(training)
        tested = {}
        if training.state in FINISHED and call.config.run.test.at_end:
            tested = run.test()
    made = results(
        "stopped" if reason else "done",
        [row for row in run.history.evaluations if row.is_own],
        plan.best,
        call.model_dir,
        test=tested,
        reason=reason,
        left_out=_left_out(run.history.left_out),
        limited=call.limits,
    )
    seen = "absent" if training.state == State.PENDING else training.state
    return Outcome({**made, "training": seen}, run.evaluator)


@contextlib.contextmanager
def _evaluator(
    call: Call, plan: policies.Policies, name: str, *, keeps_best: bool = True
) -> Iterator[evaluator_run.EvaluatorRun]:
    """Yields an evaluator in its own directory, which no other process writes meanwhile."""
    own = layout.evaluator(call.model_dir, call.config.run.evaluator.name or name)
    layout.check(own)
    with (
        session.Session(own, call.config, call.command(), stop=call.stop, trains=False) as start,
        workers.plainly(call.stop),
    ):
        start.begin()
        console.announce("building the model ...")
        run = evaluator_run.EvaluatorRun(call, plan, own, keeps_best=keeps_best)
        start.accept()
        try:
            with closing.closing(run):
                yield run
        finally:
            step = max((row.step for row in run.history.evaluations), default=None)
            start.at(step)
        start.end(State.DONE, step)


def _evaluate_several(
    paths: Sequence[Path], run: evaluator_run.EvaluatorRun, rule: best_evaluation.BestRule
) -> None:
    """Evaluates several checkpoints, skips those that fail, and prints a table."""
    before = len(run.history.evaluations), len(run.history.left_out)
    try:
        for path in paths:
            run.attempt(path)
    finally:
        rows, left_out = run.history.evaluations[before[0] :], run.history.left_out[before[1] :]
        if rows or left_out:
            best, width = rule.best(rows), console.STDERR.width
            console.say(table.evaluations(rows, left_out, best=best, first=rule.names, width=width))
    if not rows:
        raise RunnerError(f"not one of {len(paths)} checkpoints could be evaluated")


def _left_out(rows: Sequence[records.LeftOut]) -> Results:
    """Returns why checkpoints were not evaluated, by their names."""
    return {row.checkpoint: row.reason for row in rows}
