"""The modes `train` and `train_and_eval`."""

from runner import config
from runner.configuration import unused_values
from runner.core import closing, console, schedule
from runner.history import policies, records
from runner.reporting import hparams
from runner.run_folder import session, status
from runner.runs import open_run, training_run, user_actions
from runner.runs.request import Outcome, Request, results
from runner.training import controller


def train(request: Request, *, evaluates: bool) -> Outcome:
    """Trains to the last step, from the newest checkpoint if there is one."""
    experiment, model_dir = request.config, request.model_dir
    command = request.command("train_and_eval" if evaluates else "train")
    with session.Session(model_dir, experiment, command, stop=request.stop) as start:
        start.begin(allow=request.allow_config_change)
        matters = unused_values.concerned(experiment, evaluates=evaluates)
        with (
            hparams.session(experiment, model_dir) as board,
            unused_values.Reads(experiment, matters) as reads,
        ):
            console.announce("building the model ...")
            plan = policies.of(experiment, evaluates=evaluates)
            run = open_run.open_run(request, plan, beat=start.at)
            start.accept()
            start.at(run.step)
            report = unused_values.Report(
                reads, note=console.say, record=lambda paths: start.note(unread=paths)
            )
            with closing.closing(run):
                run.report()
                start.note(devices=run.devices)
                ending = user_actions.at_end(experiment)
                driver = _drive(run, request, report)
                paused = "" if driver.stop_reason else _paused(experiment, driver.step)
                tested = {} if paused else run.test(driver.step)
                for action in () if paused else ending:
                    action(run.newest)
            rows = run.state.history.evaluations
            if board and plan.best:
                board.best(plan.best.best(rows))
            reason = driver.stop_reason or paused
            start.end("stopped" if reason else "done", driver.step, reason or "")
    state = "stopped" if reason else "done"
    more = {"test": tested, "reason": reason, "limited": request.limits}
    made = results(state, rows, plan.best, model_dir, **more)
    made["step"] = driver.step
    if not evaluates:
        made["metrics"] = records.plain(run.state.log.newest)
    return Outcome(made, run.state.trainer)


def _paused(experiment: config.Experiment, step: int) -> str:
    """Why the run ends before its last step, if it is to pause."""
    at = experiment.run.pause_at
    return f"{status.PAUSED}{step:,}" if 0 < at <= step < experiment.trainer.train_steps else ""


def _drive(
    run: training_run.TrainingRun, request: Request, report: unused_values.Report
) -> controller.Controller:
    """Trains, and prints why if that ended early; the controller knows at which step."""
    run.catch_up()
    grid = run.policies.grid
    own = user_actions.after_loops(request.config, grid, lambda: driver.step)
    actions: list[schedule.Action] = [*run.pruning, report, *request.train_actions, *own]
    driver = controller.Controller(run, grid, actions, request.stop)
    driver.run()
    for name in run.state.decisions.unheard():
        console.say(f"evaluator {name!r} was configured to decide but produced no evaluation")
    if driver.stop_reason:
        console.say(f"stopped at step {driver.step:,}: {driver.stop_reason}")
    return driver
