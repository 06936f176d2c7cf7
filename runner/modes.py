"""The modes: one small function each, and one table of them."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner import elsewhere, errors
from runner.core import console, layout, streams, user_code
from runner.core.spelling import did_you_mean
from runner.errors import ConfigError, RunnerError
from runner.runs.call import Call, Outcome
from runner.storage import urls

# A mode imports what it runs when it is called: the table is there without TensorFlow.


def train(call: Call) -> Outcome:
    """Trains to the last step, from the newest checkpoint if there is one."""
    from runner.runs import train

    return train.train(call, evaluates=False)


def train_and_eval(call: Call) -> Outcome:
    """Trains, and evaluates during training and at the end."""
    from runner.runs import train

    return train.train(call, evaluates=True)


def train_and_post_eval(call: Call) -> Outcome:
    """Trains to the last step, then evaluates the newest checkpoint."""
    from runner.runs import workers

    with workers.joined(call, "train_and_post_eval") as joined:
        trained = train(joined).results
        evaluated = evaluate(dataclasses.replace(joined, checkpoint="latest"))
    return Outcome({**trained, "metrics": evaluated.results.get("metrics")}, evaluated.evaluator)


def evaluate(call: Call) -> Outcome:
    """Evaluates the checkpoints that the call names."""
    from runner.runs import evaluate

    return evaluate.evaluate(call)


def continuous_eval(call: Call) -> Outcome:
    """Evaluates each new checkpoint while a training run writes them, until that run has ended."""
    from runner.runs import evaluate

    return evaluate.continuous_eval(call)


def export(call: Call) -> Outcome:
    """Converts a checkpoint into servable models, and scores each before publishing it."""
    from runner.runs import export

    return export.export(call)


def _rehearse_export(call: Call) -> Outcome:
    from runner.runs import export

    return export.rehearse(call)


def predict(call: Call) -> Outcome:
    """Writes the predictions of a checkpoint for each example of a data set to a file."""
    from runner.runs import predict

    return predict.predict(call)


def verify_resume(call: Call) -> Outcome:
    """Kills and resumes your experiment, and checks that the result is bit-identical."""
    from runner.runs import verify_resume

    if not call.arguments:
        raise ConfigError("verify_resume starts processes of its own: run it as a command")
    return Outcome(verify_resume.verify_resume(call))


def _rehearse_predict(call: Call) -> Outcome:
    from runner.runs import predict

    return predict.rehearse(call)


def init(call: Call) -> Outcome:
    """Writes a new project: `runner --mode=init --like=images my_project`."""
    from runner.projects import create

    return Outcome(create.create(call.like, call.model_dir))


def find_rate(call: Call) -> Outcome:
    """Tries learning rates from low to high for a few steps, and suggests one."""
    from runner.runs import find_rate

    return Outcome(find_rate.find_rate(call))


def ensemble(call: Call) -> Outcome:
    """Averages what several runs predict, and scores the mean beside each of them."""
    if call.config is not None:
        raise ConfigError("an ensemble's runs have their own configurations: give None instead")
    check_choice(call.select, call.metric)
    from runner.ensembles import ensemble

    layout.check(call.model_dir)
    with _plainly():
        return ensemble.ensemble(call)


def replay(call: Call) -> Outcome:
    """Trains a few steps of a run again, and shows what each layer and each gradient does."""
    check_steps(call.steps)
    from runner.runs import replay

    with _plainly():
        return Outcome(replay.replay(call))


def status(call: Call) -> Outcome:
    """Says how far a run, a study or a folder of runs is, and where a run's time went."""
    from runner.inspection import status

    return Outcome(status.status(call))


def report(call: Call) -> Outcome:
    """Writes a page about a run: one HTML file to look at, to print or to send."""
    from runner.inspection import report

    return Outcome(report.report(call))


def find_batch(call: Call) -> Outcome:
    """Tries larger and larger batches, and reports which fit in memory and how fast each is."""
    from runner.runs import find_batch

    return Outcome(find_batch.find_batch(call))


def study(call: Call) -> Outcome:
    """Runs a resumable sweep over seeds and hyperparameters."""
    from runner.studies import study

    return Outcome(study.study(call, call.place))


def runs(call: Call) -> Outcome:
    """Lists the runs under a directory: progress, metrics, and the settings that differ."""
    from runner.inspection import runs

    return Outcome(runs.runs(call.model_dir, runs.Wanted.of(call.flags)))


def compare(call: Call) -> Outcome:
    """Compares runs: `runner --mode=compare runs/a runs/b`. Exit code 5 if they differ."""
    if len(call.runs) < 2:
        raise ConfigError("compare needs two runs or more: --runs is missing or names only one")
    from runner.inspection import compare

    return Outcome(compare.compare(call.runs, call.output))


def log(call: Call) -> Outcome:
    """Logs what a run or a study has to MLflow, W&B or CSV, as far as it is not there yet."""
    from runner.loggers import log

    layout.check(call.model_dir)
    to = log.names(str(call.flags.get("to") or ""))
    with _plainly():
        return Outcome(log.log(call.model_dir, to, dry_run=call.dry_run))


def _warm_up(flags: Mapping[str, Any]) -> None:
    from runner.studies import warm

    warm.begin(flags)


@dataclasses.dataclass(frozen=True)
class Mode:
    """A row of the table.

    Attributes:
        function: Does it.
        trains: Whether it needs what training needs.
        evaluates: Whether it evaluates.
        profiles: Whether the training steps are run here, and can be profiled.
        takes: The flags that it has and not every mode does, of `OWN_FLAGS`.
        rehearse: Its dry run; None for one of what it trains and evaluates.
        configured: Whether it is about an experiment.
        takes_several: Whether it works with an experiment that trains several tasks.
        has_folder: Whether it works in a run's folder. One that does not checks itself what it
            trains.
        begin: Called with the command's flags while TensorFlow is loaded.
        url: What it does with a URL as its folder, see `runner.elsewhere`; empty: it takes none.
        prints: Whether what it prints is its result, unless `output` keeps that: without stdout,
            it was run for nothing.
    """

    function: Callable[[Call], Outcome]
    trains: bool
    evaluates: bool
    profiles: bool = False
    takes: Sequence[str] = ()
    rehearse: Callable[[Call], Outcome] | None = None
    configured: bool = True
    takes_several: bool = True
    has_folder: bool = True
    begin: Callable[[Mapping[str, Any]], None] | None = None
    url: str = ""
    prints: bool = False

    @property
    def has_dry_run(self) -> bool:
        """Whether it can be rehearsed."""
        return self.configured or self.function in (ensemble, log)

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        return (self.function.__doc__ or "").splitlines()[0]


_TRAINING = ("overwrite", "workers")
_STUDIES = ("seeds", "folds", "vary", "trials", "jobs")
_TABLES = ("sort", "where", "columns")
OWN_FLAGS = (
    *("checkpoint", "data", "output", "overwrite", "runs", "select", "metric", "steps", "watch"),
    *("to", "workers"),
    *_STUDIES,
    *_TABLES,
)
MODES: Mapping[str, Mode] = {
    "train": Mode(
        train, trains=True, evaluates=False, profiles=True, takes=_TRAINING, url=elsewhere.WRITES
    ),
    "eval": Mode(
        evaluate,
        trains=False,
        evaluates=True,
        takes=("checkpoint", "data", "workers"),
        url=elsewhere.EVALUATES,
    ),
    "train_and_eval": Mode(
        train_and_eval,
        trains=True,
        evaluates=True,
        profiles=True,
        takes=_TRAINING,
        url=elsewhere.WRITES,
    ),
    "train_and_post_eval": Mode(
        train_and_post_eval,
        trains=True,
        evaluates=True,
        profiles=True,
        takes=_TRAINING,
        url=elsewhere.WRITES,
    ),
    "continuous_eval": Mode(continuous_eval, trains=False, evaluates=True, url=elsewhere.FOLLOWS),
    "predict": Mode(
        predict,
        trains=False,
        evaluates=False,
        takes=("checkpoint", "data", "output", "overwrite"),
        rehearse=_rehearse_predict,
        takes_several=False,
        url=layout.PREDICTIONS,
    ),
    "export": Mode(
        export,
        trains=False,
        evaluates=True,
        takes=("checkpoint",),
        rehearse=_rehearse_export,
        takes_several=False,
        url=layout.EXPORT,
    ),
    "verify_resume": Mode(verify_resume, trains=True, evaluates=False),
    "study": Mode(
        study,
        trains=True,
        evaluates=True,
        takes=_STUDIES,
        rehearse=study,
        begin=_warm_up,
        url=elsewhere.WRITES,
    ),
    "init": Mode(init, trains=False, evaluates=False, configured=False, takes=("like",)),
    "ensemble": Mode(
        ensemble,
        trains=False,
        evaluates=True,
        takes=("checkpoint", "data", "runs", "select", "metric"),
        configured=False,
        url=elsewhere.WRITES,
    ),
    "runs": Mode(
        runs,
        trains=False,
        evaluates=False,
        configured=False,
        takes=("output", *_TABLES),
        url=elsewhere.LOOKS,
        prints=True,
    ),
    "compare": Mode(
        compare,
        trains=False,
        evaluates=False,
        configured=False,
        has_folder=False,
        takes=("runs", "output"),
        prints=True,
    ),
    "replay": Mode(
        replay,
        trains=True,
        evaluates=False,
        takes=("steps", "output", "overwrite"),
        configured=False,
        url=layout.REPLAY,
    ),
    "status": Mode(
        status,
        trains=False,
        evaluates=False,
        takes=("watch",),
        configured=False,
        url=elsewhere.LOOKS,
        prints=True,
    ),
    "report": Mode(
        report,
        trains=False,
        evaluates=False,
        takes=("output", "runs", "watch"),
        configured=False,
        url=elsewhere.LOOKS,
    ),
    "log": Mode(
        log, trains=False, evaluates=False, takes=("to",), configured=False, url=layout.LOGGERS
    ),
    "find_rate": Mode(
        find_rate,
        trains=False,
        evaluates=False,
        rehearse=find_rate,
        has_folder=False,
        takes=("output",),
        prints=True,
    ),
    "find_batch": Mode(
        find_batch,
        trains=True,
        evaluates=False,
        rehearse=find_batch,
        takes_several=False,
        has_folder=False,
        takes=("output",),
        prints=True,
    ),
}


def run(mode: str, call: Call) -> Outcome:
    """Validates the configuration for `mode` and runs it, or rehearses it.

    Raises:
        ConfigError: an unknown mode, or a configuration that it cannot run.
    """
    streams.fill()
    check(mode)
    row = MODES[mode]
    for flag in ("data", "output", "overwrite", "runs", "select", "metric", "steps"):
        check_taken(mode, flag, getattr(call, flag))
    if row.configured:
        _prepare(mode, row, call)
    elif call.dry_run and not row.has_dry_run:
        raise ConfigError(f"--dry_run has no effect with {mode}")
    with elsewhere.local(mode, row.url, call) as here:
        outcome = _run(row, here)
        return outcome._replace(results=elsewhere.named(outcome.results))


def needs_configuration(mode: str) -> bool:
    """Whether a mode is about one experiment."""
    return mode in MODES and MODES[mode].configured and MODES[mode].has_folder


def _prepare(mode: str, row: Mode, call: Call) -> None:
    """Validates the configuration, and completes it."""
    if call.config is None:
        raise ConfigError(
            f"{mode} needs a configuration: give what runner.load returns, or the folder of a run "
            f"that has {layout.GIN}"
        )
    from runner import config
    from runner.configuration import multitask

    if row.trains or call.config.trainer.optimizer_config.ema is not None:
        from runner.runs import compiled_model

        compiled_model.bring_optimizer(call.config)
    if not row.takes_several:
        multitask.check_one(call.config.task, f"--mode={mode}")
    for line in config.prepare(call.config, trains=row.trains, evaluates=row.evaluates):
        console.say(line)
    if call.profile_steps:
        check_profile(
            mode,
            call.profile_steps,
            end=call.config.trainer.train_steps,
            dry_run=call.dry_run,
        )


def _run(row: Mode, call: Call) -> Outcome:
    if not row.configured:
        return row.function(call)
    if row.has_folder:
        layout.check(call.model_dir)
    with _plainly():
        if not call.dry_run:
            return row.function(call)
        if row.rehearse:
            return row.rehearse(call)
        from runner.runs import dry_run

        checkpoint = call.checkpoint if "checkpoint" in row.takes else None
        return Outcome(
            dry_run.rehearse(
                call, trains=row.trains, evaluates=row.evaluates, checkpoint=checkpoint
            )
        )


def check_folder(model_dir: Path) -> None:
    """Raises if it is not, or cannot become, a run's folder, or its URL."""
    if urls.is_url(model_dir):
        urls.check(model_dir, "--model_dir=")
    else:
        layout.check(model_dir)


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Inside, an error whose cause is known becomes one that says so."""
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


def check(mode: str) -> None:
    """Raises ConfigError if there is no such mode."""
    if mode not in MODES:
        raise ConfigError(unknown(mode, f"mode = {mode!r}"))


def check_model_dir(mode: str, model_dir: str | Path | None) -> None:
    """Raises ConfigError if the directory that `mode` works in is missing."""
    if MODES[mode].has_folder and not (model_dir and str(model_dir)):
        whose = {"runs": "with the runs", "init": "for the new project"}.get(mode, "of the run")
        raise ConfigError(f"--model_dir is missing: the directory {whose}")


def check_steps(steps: tuple[int, int] | None) -> None:
    """Raises ConfigError if there are no steps to train again, or they are no range."""
    if steps is None:
        raise ConfigError("--steps is missing: the first and the last step to train again")
    first, last = steps
    if not 1 <= first <= last:
        raise ConfigError(f"--steps={first}:{last}: expected FIRST:LAST, both included, from 1")


def unknown(mode: str, given: str, known: Sequence[str] = tuple(MODES)) -> str:
    """The message about an unknown mode, which was `given` in these words."""
    return f"{given}: no such mode{did_you_mean(mode, known)} (modes: {', '.join(known)})"


def check_taken(mode: str, flag: str, given: object) -> None:
    """Refuses a flag of `OWN_FLAGS` that is given, and that `mode` does not have."""
    if given and flag not in MODES[mode].takes:
        able = ", ".join(name for name, row in MODES.items() if flag in row.takes)
        raise ConfigError(f"--{flag} is for --mode={able}, not --mode={mode}")


def check_choice(select: int, metric: str) -> None:
    """Refuses a metric that nothing is chosen by, or fewer than no members."""
    if select < 0:
        raise ConfigError(f"--select={select}: must be 1 or more, the members to choose")
    if metric and not select:
        raise ConfigError("--metric is what --select chooses by: give --select, too")


def check_profile(
    mode: str, steps: tuple[int, int], *, end: int | None = None, dry_run: bool = False
) -> None:
    """Refuses to profile anything but a range of steps that `mode` runs, up to `end`."""
    if dry_run:
        raise ConfigError("--profile_steps and --dry_run: a dry run profiles nothing")
    first, last = steps
    flag = f"--profile_steps={first}:{last}"
    if not MODES[mode].profiles:
        able = ", ".join(name for name, row in MODES.items() if row.profiles)
        raise ConfigError(f"{flag} is for --mode={able}; not for {mode}")
    if not 1 <= first <= last:
        raise ConfigError(f"{flag}: expected FIRST:LAST, both included, from 1")
    if end is not None and last > end:
        raise ConfigError(f"{flag}: the run ends at step {end} (TrainerConfig.train_steps)")
