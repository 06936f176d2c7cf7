"""The command: flags, wiring, exit code. TensorFlow is loaded once the flags are right."""

import argparse
import dataclasses
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from runner import command_line, elsewhere, exit_messages, flags, modes
from runner.core import installation, layout, signals, streams, user_code
from runner.core.console import Lines, announce, flush
from runner.devices import garbage, worker_heartbeat
from runner.errors import RunnerError
from runner.internals import standard_library
from runner.launch import bounds, job, launchers
from runner.run_folder import begun
from runner.runs.call import Call, Results

if TYPE_CHECKING:  # it loads TensorFlow
    from runner.config import Experiment
    from runner.run_config import LaunchConfig


def console() -> NoReturn:
    """The entry point of the command."""
    streams.keep()
    signals.end_with_parent()
    worker_heartbeat.begin()
    try:
        code = main(sys.argv[1:])
    except signals.Interrupted as error:
        os._exit(error.exit_code)
    _leave(code)


def _leave(code: int) -> NoReturn:
    """Ends the process without TensorFlow's clean-up, which takes a second and saves nothing.

    Functions registered for the exit are run. If other threads are still at work, it ends normally.
    """
    others = (each for each in threading.enumerate() if each is not threading.main_thread())
    if any(not each.daemon for each in others):
        sys.exit(code)
    standard_library.run_exit_functions()
    flush()
    os._exit(code)


def main(arguments: Sequence[str]) -> int:
    """Runs the command with these arguments and returns its exit code.

    Raises:
        signals.Interrupted: a signal came; everything is saved, and the user was told.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # greetings, and no GPU found
    try:
        given = flags.parse(arguments)
        installation.check()
    except RunnerError as error:
        return exit_messages.Ending(None, answers=False).failed(error)
    except SystemExit:  # what was asked for, such as help, is printed
        raise SystemExit(exit_messages.written(0, is_purpose=True)) from None
    model_dir = Path(given.model_dir) if given.model_dir and not given.print_config else None
    with signals.served() as stop:
        ending = exit_messages.Ending(model_dir, stop, answers=not given.print_config)
        with stop.abandoning(ending.failed), exit_messages.whole_lines():
            code = _ended(given, stop, ending)
            return exit_messages.written(code, is_purpose=_is_to_print(given))


def _ended(given: argparse.Namespace, stop: signals.Stop, ending: exit_messages.Ending) -> int:
    """Runs the mode and says how it ended; the exit code."""
    try:
        alone = given.print_config or given.dry_run or given.launch or worker_heartbeat.is_worker()
        if given.workers and not alone:
            from runner.launch import elastic

            with elsewhere.together(given, stop) as here:
                command = command_line.arguments(flags.for_worker(here))
                return elastic.supervise(here, command, stop)
        results = _run(given, stop, ending)
        if results is not None:
            ending.results(results)
    except signals.Interrupted as error:
        ending.failed(error)
        raise
    except Exception as error:
        return ending.failed(error)
    return 0


def _is_to_print(given: argparse.Namespace) -> bool:
    """Whether what the command prints is all that it leaves."""
    if given.launch or given.print_config:
        return bool(given.dry_run or given.print_config)
    return modes.MODES[given.mode].prints and not given.output


def _run(
    given: argparse.Namespace, stop: signals.Stop, ending: exit_messages.Ending
) -> Results | None:
    """The results of the mode; None where only the configuration was to be printed."""
    launched, row = time.time(), modes.MODES.get(given.mode)
    if given.print_config == "reads":
        from runner.inspection import reads

        with elsewhere.looked_at(Path(given.model_dir)) as folder:
            print(reads.render(folder), flush=True)
        return None
    if given.launch and row and not row.configured:
        from runner import config

        return _launch(given, config.load_launch(given.gin_file, given.gin_params), stop)
    if row and not row.configured:
        call = Call(
            None,  # type: ignore[arg-type]
            Path(given.model_dir or ""),
            given.checkpoint or "",
            data=given.data or "",
            output=Path(given.output) if given.output else None,
            flags={name: value for name, value in vars(given).items() if value},
            overwrite=given.overwrite,
            dry_run=given.dry_run,
            stop=stop,
            like=given.like,
            steps=flags.steps_of(given) if "steps" in row.takes else None,
            runs=flags.runs_of(given),
            select=given.select or 0,
            metric=given.metric or "",
            watch=flags.seconds_of_watch(given),
        )
        return modes.run(given.mode, call).results
    announce("loading TensorFlow ...")
    if row and row.begin and not (given.print_config or given.dry_run or given.launch):
        row.begin(vars(given))
    # Importing leaves no garbage; looking for it takes a quarter longer.
    with garbage.uncollected():
        from runner import config
        from runner.configuration import printing, run_name
        from runner.internals import autograph

        if given.alsologtostderr:
            from absl import logging

            logging.use_absl_handler()
            logging.get_absl_handler().python_handler.setStream(Lines())
            logging.set_verbosity(logging.INFO)
        experiment = _load(given, row)
        if given.runs_dir and not given.print_config:
            source = given.experiment or given.gin_file[0]
            folder = Path(given.runs_dir, run_name.of(experiment, source))
            given.model_dir, given.runs_dir = str(folder), None
            ending.model_dir = folder
            if begun.bindings(folder):
                experiment = _load(given, row)
    garbage.freeze()  # nor is it looked for among them later
    autograph.keep_sources(user_code.loaded())
    if given.print_config:
        changed = given.print_config == "changed"
        base = f"--experiment={given.experiment}" if given.experiment else ""
        places = config.origins(experiment)
        print(printing.render(experiment, places, otherwise=base, changed=changed), flush=True)
        if row:
            config.validate(experiment, trains=row.trains, evaluates=row.evaluates)
        if not _has_menus(given):
            config.check_chosen(experiment)
        return None
    call = Call(
        experiment,
        Path(given.model_dir or ""),
        given.checkpoint or "",
        data=given.data or "",
        output=Path(given.output) if given.output else None,
        overwrite=given.overwrite,
        allow_config_change=given.allow_config_change,
        allow_lost_history=given.allow_lost_history,
        dry_run=given.dry_run,
        profile_steps=flags.profile_steps(given),
        arguments=flags.configuring(given),
        flags={name: value for name, value in vars(given).items() if value},
        stop=stop,
        launched=launched,
    )
    if given.launch:
        return _launch(given, experiment.run.launch, stop, call)
    return modes.run(given.mode, call).results


def _load(given: argparse.Namespace, row: modes.Mode | None) -> "Experiment":
    from runner import config

    return config.load(
        given.gin_file,
        [*begun.bindings(given.model_dir or ""), *given.gin_params],
        experiment=given.experiment,
        config_files=given.config_file,
        overrides=given.params_override,
        flags=flags.values(given),
        trains=None if given.print_config or row is None else row.trains,
        evaluates=None if row is None else row.evaluates,
        menus=bool(given.print_config) or _has_menus(given),
    )


def _has_menus(given: argparse.Namespace) -> bool:
    """Whether typed values may be of alternatives that are not chosen: a study chooses later.

    It looks after its trials, too, which are given what it was given.
    """
    return given.mode == "study" or Path(given.model_dir or "", layout.TRIAL).exists()


def _launch(
    given: argparse.Namespace,
    config: "LaunchConfig",
    stop: signals.Stop,
    call: Call | None = None,
) -> Results | None:
    """Has the command run elsewhere; None where that was only to be printed."""
    shared = launchers.LAUNCHERS[given.launch].shares_files
    flags_of_job = flags.for_job(given, shares_files=shared)
    if shared and given.model_dir:
        modes.check_folder(Path(given.model_dir))
    workers = bounds.Bounds.parse(given.workers) if given.workers else None
    if config.nodes > 1 and given.mode != "study":
        elsewhere.check_shared(given.model_dir or "")
    arguments = command_line.arguments(flags_of_job)
    folder = flags_of_job.model_dir or ""
    strategy = call.config.runtime.distribution_strategy if call else ""
    made = job.Job(given.mode, arguments, folder, Path.cwd(), config, strategy, workers, stop)
    place = launchers.LAUNCHERS[given.launch].place
    if place and made.is_study and call and not given.dry_run:
        launchers.check_job(given.launch, made)
        with place(made) as there:
            return modes.run(given.mode, dataclasses.replace(call, place=there)).results
    return launchers.launch(given.launch, made, dry_run=given.dry_run)
