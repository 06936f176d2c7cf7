"""The modes `train` and `train_and_eval`."""

import dataclasses

from runner import config
from runner.configuration import printing, unused_values
from runner.core import closing, console, schedule
from runner.devices import team
from runner.evaluation import metric_names
from runner.history import policies, records
from runner.reporting import hparams, system_metrics
from runner.run_directory import input_shards, overwrite, session, status
from runner.run_directory.loggers import feed, launch
from runner.run_directory.state import State
from runner.runs import follow, notifications, open_run, training_run, user_actions, workers
from runner.runs.call import Call, Outcome, Resuming
from runner.runs.results import results
from runner.training import controller


def train(call: Call, resuming: Resuming, *, evaluates: bool) -> Outcome:
    """Trains to the last step, from the newest checkpoint if there is one."""
    if not evaluates:
        metric_names.check_idle(call.config)
    with workers.joined(call) as joined:
        if team.current().follows:
            return follow.train(joined, evaluates=evaluates)
        return _lead(joined, resuming, evaluates=evaluates)


def _lead(call: Call, resuming: Resuming, *, evaluates: bool) -> Outcome:
    """Trains in the process that writes and decides."""
    run, folder = call.config.run, call.model_dir
    feed.check_installed(run.loggers, "RunConfig.loggers")
    if resuming.overwrite:
        more = policies.of(call.config, evaluates=evaluates).best_folders
        overwrite.begin_anew(folder, resuming.overwrite, more=more)
    with (
        notifications.Notifier(run.notify, run.notify_on, folder) as told,
        session.Session(
            folder,
            call.config,
            call.command(),
            stop=call.stop,
            official=call.given.official,
        ) as start,
        workers.plainly(call.stop),
    ):
        start.begin(allow=resuming.allow_config_change)
        if resuming.clear_logs:
            overwrite.clear_events(folder)
        outcome = _train(call, resuming, start, told, evaluates=evaluates)
        told.ended(outcome.results)
    return outcome


def _train(
    call: Call,
    resuming: Resuming,
    start: session.Session,
    told: notifications.Notifier,
    *,
    evaluates: bool,
) -> Outcome:
    """Runs an attempt that has locked its directory."""
    experiment = call.config
    places = printing.places_of_changes(experiment)
    matters = unused_values.concerned(experiment, evaluates=evaluates)
    with (
        hparams.session(experiment, call.model_dir) as board,
        unused_values.Reads(experiment, matters) as reads,
    ):
        console.announce("building the model ...")
        plan = policies.of(experiment, evaluates=evaluates)
        heard = told.when_best(plan.best, lambda: run.state.history)
        call = dataclasses.replace(call, eval_actions=[*call.eval_actions, heard])
        run = open_run.open_run(
            call,
            plan,
            beat=start.at,
            changed=start.changed,
            spent=start.spent,
            resuming=resuming,
        )
        start.accept()
        input_shards.write(call.model_dir, run.state.trainer.determinism.placements)
        launch.start(experiment.run.loggers, call.model_dir)
        start.resumed(run.step)
        report = unused_values.Report(
            reads,
            note=console.say,
            record=lambda paths: start.note(unread=paths, reads=reads.counts()),
        )
        seconds, draws = experiment.run.system_seconds, experiment.run.draws("system")
        sampled = system_metrics.sampled(
            call.model_dir, lambda: start.step, seconds=seconds, draws=draws
        )
        with closing.closing(run), sampled:
            run.report(start.failure)
            several = {"workers": team.current().size} if team.current().size > 1 else {}
            inexact = run.exactness.obstacle
            start.note(devices=run.devices, origins=places, inexact=inexact, **several)
            ending = user_actions.at_end(experiment)
            for watch in call.watchers:
                watch(run)
            driver = _drive(run, call, report)
            paused = "" if driver.stop_reason else _paused(experiment, driver.step)
            mean = {} if paused else run.take_mean(driver.step)
            tested = {} if paused else run.test(driver.step)
            for action in () if paused else ending:
                action(run.newest)
            if not paused:
                run.keep_best_alone()
        rows = run.state.history.evaluations
        if board and plan.best:
            board.best(plan.best.best(rows))
        reason = driver.stop_reason or paused
        state = State.STOPPED if reason else State.DONE
        by = status.PAUSE if paused else ""
        start.end(state, driver.step, reason or "", stopped_by=by, reads=reads.counts())
    more = {"mean": mean, "test": tested, "reason": reason, "limited": call.limits}
    made = results(state, rows, plan.best, call.model_dir, **more)
    made["step"] = driver.step
    if not evaluates:
        made["metrics"] = records.plain(run.state.log.newest)
    return Outcome(made, run.state.trainer)


def _paused(experiment: config.Experiment, step: int) -> str:
    """Returns why the run ends before its last step, if it has to pause."""
    at = experiment.run.pause_at
    return f"paused at step {step:,}" if 0 < at <= step < experiment.trainer.train_steps else ""


def _drive(
    run: training_run.TrainingRun, call: Call, report: unused_values.Report
) -> controller.Controller:
    """Trains, and prints the reason of an early end. The controller has the final step."""
    run.catch_up()
    grid = run.policies.grid
    own = user_actions.after_loops(call.config, grid, lambda: driver.step)
    actions: list[schedule.Action] = [*run.pruning, report, *call.train_actions, *own]
    driver = controller.Controller(run, grid, actions, call.stop)
    run.spent.turn("training")
    driver.run()
    run.spent.turn("end")
    for name in run.state.decisions.unheard():
        console.say(f"evaluator {name!r} is configured to decide, but made no evaluation")
    if driver.stop_reason:
        console.say(f"stopped at step {driver.step:,}: {driver.stop_reason}")
    return driver
