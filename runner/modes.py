"""The modes: one small function each, and one table of them."""

import collections
import contextlib
import dataclasses
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner import errors
from runner.core import closing, console, layout, secrets, signals, user_code
from runner.core.spelling import did_you_mean
from runner.errors import ConfigError, RunnerError
from runner.history import policies, records, rules
from runner.run_folder import claim, provenance, status, watch

if TYPE_CHECKING:  # a mode loads TensorFlow when it is called: the table is there without it
    from runner import config
    from runner.core import schedule
    from runner.evaluation import evaluator
    from runner.runs import build, evaluator_run

Results = dict[str, Any]

_URL = re.compile(r"([a-z][a-z0-9+]+:)/")  # a Path has made one slash of two


@dataclasses.dataclass(frozen=True)
class Request:
    """What a user asks for.

    Attributes:
        config: The experiment, locked.
        model_dir: The training run's folder.
        checkpoint: What `eval` evaluates: see `runner.checkpoints.selection`.
        allow_config_change: Whether a run may go on with another configuration than it had.
        allow_lost_history: Whether a run may go on without rows that its history has lost.
        dry_run: Do everything once and small, in a scratch folder.
        profile_steps: The first and the last training step to profile, None for none.
        arguments: The command's flags that make `config`, for a mode that starts processes.
        flags: All of the command's flags, for the record.
        train_actions: Called with the logs of each training loop.
        eval_actions: Called with the results of each evaluation.
        stop: Whether a signal has come.
        given: What a caller has made already.
        built: Told what holds the weights, once it is built.
        reached: Told the step of a run that does not come to its end.
    """

    config: "config.Experiment"
    model_dir: Path
    checkpoint: str = "latest"
    allow_config_change: bool = False
    allow_lost_history: bool = False
    dry_run: bool = False
    profile_steps: tuple[int, int] | None = None
    arguments: Sequence[str] = ()
    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    train_actions: Sequence["schedule.Action"] = ()
    eval_actions: Sequence["schedule.Action"] = ()
    stop: signals.Stop = dataclasses.field(default_factory=signals.Stop)
    given: "build.Given | None" = None
    built: Callable[["evaluator.Evaluator"], object] = lambda _: None
    reached: Callable[[int | None], object] = lambda _: None


def train(request: Request) -> Results:
    """Trains to the last step, from the newest checkpoint if there is one."""
    return _train(request, evaluates=False)


def train_and_eval(request: Request) -> Results:
    """Trains, and evaluates on the way and at the end."""
    return _train(request, evaluates=True)


def train_and_post_eval(request: Request) -> Results:
    """Trains to the last step, then evaluates what came out."""
    trained = train(request)
    evaluated = evaluate(dataclasses.replace(request, checkpoint="latest"))
    return {**trained, "metrics": evaluated["metrics"]}


def evaluate(request: Request) -> Results:
    """Evaluates the checkpoints that the request names."""
    from runner.checkpoints import selection

    experiment, model_dir = request.config, request.model_dir
    folders = list(policies.best_rules(experiment))
    paths = selection.select(model_dir, request.checkpoint, best=folders)
    initial = experiment.task.init_checkpoint
    if not paths and not initial:
        raise ConfigError(f"there is no checkpoint in {model_dir} to evaluate")
    with _evaluator(request, "once", keeps_best=False) as run:
        before, left_out = len(run.history.evaluations), len(run.history.left_out)
        if len(paths) > 1:
            _evaluate_each(paths, run, policies.shown(experiment))
        elif paths:
            run.evaluate(paths[0])
        else:
            run.evaluate_initial(Path(initial))
        rows, failed = run.history.evaluations[before:], run.history.left_out[left_out:]
    rule = policies.best_rule(experiment) if len(paths) > 1 else None
    return {
        **_results("done", rows, rule, model_dir, left_out=_left_out(failed)),
        "evaluations": [
            {
                "step": row.step,
                "checkpoint": row.checkpoint,
                "metrics": records.plain(row.metrics),
            }
            for row in rows
        ],
    }


def continuous_eval(request: Request) -> Results:
    """Evaluates each new checkpoint while a training run writes them, until that run has ended."""
    from runner.configuration import functions

    timeout = request.config.trainer.continuous_eval_timeout
    named = request.config.run.evaluator.give_up
    give_up = functions.load(named) if named else None
    with _evaluator(request, "continuous") as run:
        training = watch.Watch(
            request.model_dir, timeout=timeout, give_up=give_up, note=console.say
        )
        reason = run.follow(training)
        tested = run.test() if training.state in ("done", "stopped") else {}
    state = "stopped" if reason else "done"
    rows = [row for row in run.history.evaluations if row.is_own]
    rule = policies.best_rule(request.config)
    left_out = _left_out(run.history.left_out)
    results = _results(
        state, rows, rule, request.model_dir, test=tested, reason=reason, left_out=left_out
    )
    return {**results, "training": training.state}


def verify_resume(request: Request) -> Results:
    """Says whether the experiment, stopped and killed, ends bit-identical to one that was not."""
    from runner.runs.verify_resume import verify_resume as verify

    if not request.arguments:
        raise ConfigError("verify_resume starts processes of its own: run it as a command")
    return verify(request)


@dataclasses.dataclass(frozen=True)
class Mode:
    """A row of the table.

    Attributes:
        function: Does it.
        trains: Whether it needs what training needs.
        evaluates: Whether it evaluates.
        profiles: Whether the training steps are run here, and can be profiled.
    """

    function: Callable[[Request], Results]
    trains: bool
    evaluates: bool
    profiles: bool = False


MODES: Mapping[str, Mode] = {
    "train": Mode(train, trains=True, evaluates=False, profiles=True),
    "eval": Mode(evaluate, trains=False, evaluates=True),
    "train_and_eval": Mode(train_and_eval, trains=True, evaluates=True, profiles=True),
    "train_and_post_eval": Mode(train_and_post_eval, trains=True, evaluates=True, profiles=True),
    "continuous_eval": Mode(continuous_eval, trains=False, evaluates=True),
    "verify_resume": Mode(verify_resume, trains=True, evaluates=False),
}


def run(mode: str, request: Request) -> Results:
    """Validates the configuration for `mode` and runs it, or rehearses it.

    Raises:
        ConfigError: an unknown mode, or a configuration that it cannot run.
    """
    if mode not in MODES:
        raise ConfigError(unknown(mode, f"mode = {mode!r}"))
    if url := _URL.match(str(request.model_dir)):
        raise ConfigError(
            f"--model_dir={request.model_dir}: a run writes in a folder of this machine; a bucket "
            f"can be mounted as one ({url[1]} is not spoken here)"
        )
    layout.check(request.model_dir)
    from runner import config

    row = MODES[mode]
    for line in config.prepare(request.config, trains=row.trains, evaluates=row.evaluates):
        console.say(line)
    if request.profile_steps:
        check_profile(mode, request.profile_steps, end=request.config.trainer.train_steps)
        if request.dry_run:
            raise ConfigError("--profile_steps and --dry_run: a dry run profiles nothing")
    with _plainly():
        if not request.dry_run:
            return row.function(request)
        from runner.runs.dry_run import rehearse

        return rehearse(
            request.config,
            request.model_dir,
            trains=row.trains,
            evaluates=row.evaluates,
            checkpoint=request.checkpoint if mode == "eval" else None,
            allow_config_change=request.allow_config_change,
            stop=request.stop,
        )


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Inside, an error of which more is known than it says becomes one that says it."""
    try:
        yield
    except RunnerError as error:
        plain = errors.readable(error)
        if plain and plain is not error:
            raise plain from error
        raise
    except OSError:
        raise
    except Exception as error:
        if readable := errors.from_graph(error) or user_code.advice(error):
            raise readable from error
        raise


def unknown(mode: str, given: str, known: Sequence[str] = tuple(MODES)) -> str:
    """What to say of a mode that is not among those known, which was `given` in these words."""
    modes = ", ".join(known)
    return f"{given}: no such mode{did_you_mean(mode, known)}; the modes are {modes}"


def check_profile(mode: str, steps: tuple[int, int], *, end: int | None = None) -> None:
    """Refuses to profile what is no range of steps, or none that `mode` runs up to `end`."""
    first, last = steps
    flag = f"--profile_steps={first}:{last}"
    if not MODES[mode].profiles:
        able = ", ".join(name for name, row in MODES.items() if row.profiles)
        raise ConfigError(f"{flag} is for --mode={able}; not for {mode}")
    if not 1 <= first <= last:
        raise ConfigError(f"{flag}: expected FIRST:LAST, both counted, from 1 on")
    if end is not None and last > end:
        raise ConfigError(f"{flag}: the run ends at step {end} (TrainerConfig.train_steps)")


def _train(request: Request, *, evaluates: bool) -> Results:
    from runner import config
    from runner.configuration import unused_values
    from runner.reporting import hparams
    from runner.run_folder import session
    from runner.runs import build, training_run

    experiment, model_dir = request.config, request.model_dir
    places = config.origins(experiment)
    command = _command("train_and_eval" if evaluates else "train", request)
    with (
        claim.claimed(model_dir, note=console.say) as held,
        session.training(
            experiment,
            model_dir,
            command,
            allow=request.allow_config_change,
            stop=request.stop,
            reached=request.reached,
        ) as (beat, record, accepted),
        hparams.session(experiment, model_dir) as board,
        unused_values.Reads(
            experiment, unused_values.concerned(experiment, places, evaluates=evaluates)
        ) as reads,
    ):
        console.announce("building the model ...")
        run = training_run.Training(
            experiment,
            model_dir,
            evaluates=evaluates,
            stop=request.stop,
            held=held,
            given=request.given or build.Given(),
            profile_steps=request.profile_steps,
            allow_lost_history=request.allow_lost_history,
        )
        accepted()
        request.built(run.trainer)
        beat.beat(run.trainer.step)
        with closing.closing(run):
            run.report()
            record.note(devices=run.devices)
            report = unused_values.Report(
                reads, places, note=console.say, record=lambda paths: record.note(unread=paths)
            )
            driver = run.build_controller(
                beat, (report, *request.train_actions), request.eval_actions
            )
            driver.run()
            reason = driver.stop_reason
            for name in run.unheard():
                console.say(f"eval-{name} was to decide, but no evaluation of it was seen")
            if reason:
                console.say(f"stopped at step {driver.step:,}: {reason}")
            tested = run.test(driver.step)
        if board and (rule := policies.best_rule(experiment)):
            board.best(rules.best(run.history.evaluations, rule))
        state: status.State = "stopped" if reason else "done"
        beat.write(state, driver.step, reason or "")
    rule = policies.best_rule(experiment)
    results = _results(state, run.history.evaluations, rule, model_dir, test=tested, reason=reason)
    results["step"] = driver.step
    if not evaluates:
        results["metrics"] = records.plain(run.log.newest)
    return results


def _command(mode: str, request: Request) -> provenance.Command:
    held = list(secrets.held(request.config.as_dict()))
    return provenance.Command(mode, sys.argv, request.flags, held)


@contextlib.contextmanager
def _evaluator(
    request: Request, name: str, *, keeps_best: bool = True
) -> Iterator["evaluator_run.EvaluatorRun"]:
    """An evaluator in a folder of its own, which nobody else writes meanwhile."""
    from runner.run_folder import session
    from runner.runs import build, evaluator_run

    own = layout.evaluator(request.model_dir, request.config.run.evaluator.name or name)
    command = _command("continuous_eval" if keeps_best else "eval", request)
    layout.check(own)
    with (
        claim.claimed(own, note=console.say, instead="EvaluatorConfig.name") as held,
        session.recorded(own, command) as record,
    ):
        session.Configuration.of(request.config).write(own)
        console.announce("building the model ...")
        run = evaluator_run.EvaluatorRun(
            request.config,
            request.model_dir,
            own,
            stop=request.stop,
            check=held.check,
            eval_actions=request.eval_actions,
            keeps_best=keeps_best,
            given=request.given or build.Given(),
        )
        request.built(run.evaluator)
        with closing.closing(run):
            try:
                yield run
            finally:
                step = max((row.step for row in run.history.evaluations), default=None)
                request.reached(step)
            record.note(step=step)


def _evaluate_each(
    paths: Sequence[Path], run: "evaluator_run.EvaluatorRun", rule: rules.BestRule
) -> None:
    """Evaluates what can be of several checkpoints, and prints a table of them."""
    from runner.reporting import table

    known = len(run.history.evaluations), len(run.history.left_out)
    try:
        for path in paths:
            run.attempt(path)
    finally:
        rows, left_out = run.history.evaluations[known[0] :], run.history.left_out[known[1] :]
        if rows or left_out:
            best, width = rules.best(rows, rule), console.STDERR.width
            console.say(table.evaluations(rows, left_out, best=best, first=rule.names, width=width))
    if not rows:
        raise RunnerError(f"not one of {len(paths)} checkpoints could be evaluated")


def _left_out(rows: Sequence[records.LeftOut]) -> Results:
    """By the checkpoint's name, why it was not evaluated."""
    return {row.checkpoint: row.reason for row in rows}


def _results(
    state: str,
    rows: Sequence[records.Evaluation],
    rule: rules.BestRule | None,
    model_dir: Path,
    **more: Any,
) -> Results:
    """For JSON; of `more`, what there is."""
    step = rows[-1].step if rows else 0
    newest = collections.ChainMap(*(dict(row.metrics) for row in rows if row.step == step))
    best = rules.best(rows, rule) if rule else None
    return {
        "status": state,
        "step": step,
        "metrics": records.plain(newest),
        "best": {"step": best.step, "metrics": records.plain(best.metrics)} if best else None,
        "model_dir": str(model_dir),
        **{name: value for name, value in more.items() if value},
    }
