"""The command: flags, wiring and exit code. TensorFlow is loaded once the flags are valid."""

import functools
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from runner.command import exit_messages, typed
from runner.command.modes import groups
from runner.command.typed import Command
from runner.core import installation, layout, signals, streams
from runner.core.console import Lines, announce, flush
from runner.devices import garbage, worker_heartbeat
from runner.errors import RunnerError
from runner.internals import lazy_imports, standard_library
from runner.run_directory import begun
from runner.runs.call import Call, Results

if TYPE_CHECKING:  # it loads TensorFlow
    from runner.config import Experiment


def console() -> NoReturn:
    """Runs the command as its entry point."""
    lazy_imports.begin()
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

    Registered exit functions are run. If other non-daemon threads are still running, the process
    ends normally.
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
        signals.Interrupted: if a signal arrives. By then everything is saved and the user informed.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # hides startup messages and "no GPU found"
    try:
        command = typed.parse(arguments)
        installation.check()
    except RunnerError as error:
        return exit_messages.Ending(None, answers=False).failed(error)
    except SystemExit:  # the requested output, such as help, is printed
        raise SystemExit(exit_messages.written(0, is_purpose=True)) from None
    prints = bool(command.flags.get("print_config"))
    model_dir = Path(command.model_dir) if command.model_dir and not prints else None
    with signals.served() as stop:
        ending = exit_messages.Ending(model_dir, stop, answers=not prints)
        with stop.abandoning(ending.failed), exit_messages.whole_lines():
            code = _ended(command, stop, ending)
            return exit_messages.written(code, is_purpose=_is_to_print(command))


def _ended(command: Command, stop: signals.Stop, ending: exit_messages.Ending) -> int:
    """Runs the mode, reports how it ended and returns the exit code."""
    flags = command.flags
    try:
        alone = any(flags.get(name) for name in ("print_config", "dry_run", "launch"))
        if flags.get("workers") and not (alone or worker_heartbeat.is_worker()):
            from runner.command import url_folders
            from runner.launch import elastic
            from runner.studies import warm

            warm_up = functools.partial(warm.begin, flags)
            with url_folders.together(
                command.mode, command.model_dir, command.options, stop
            ) as folder:
                worker = command.replace(model_dir=folder, worker_hosts=None, task_index=None)
                return elastic.supervise(
                    command.options, Path(folder), worker.arguments(), stop, warm_up
                )
        results = _run(command, stop, ending)
        if results is not None:
            ending.results(results)
    except signals.Interrupted as error:
        ending.failed(error)
        raise
    except Exception as error:
        return ending.failed(error)
    return 0


def _is_to_print(command: Command) -> bool:
    """Returns whether printing is the only effect of the command."""
    flags = command.flags
    if flags.get("launch") or flags.get("print_config"):
        return bool(flags.get("dry_run") or flags.get("print_config"))
    return command.mode.prints and not flags.get("output")


def _run(command: Command, stop: signals.Stop, ending: exit_messages.Ending) -> Results | None:
    """Returns the results of the mode, or None if it only prints the configuration."""
    launched, mode, flags = time.time(), command.mode, command.flags
    printed = flags.get("print_config")
    if printed == "reads":
        from runner.command import url_folders
        from runner.inspection import reads

        with url_folders.looked_at(Path(command.model_dir)) as folder:
            print(reads.render(folder), flush=True)
        return None
    if not mode.is_configured:
        call = Call(None, Path(command.model_dir), stop=stop)  # type: ignore[arg-type]
        return _started(command, call)
    announce("loading TensorFlow ...")
    if mode.begin and not (printed or flags.get("dry_run") or flags.get("launch")):
        mode.begin(flags)
    # Importing leaves no garbage, and collecting would make it a quarter slower.
    with garbage.uncollected():
        from runner.core import user_code
        from runner.internals import autograph

        if flags.get("alsologtostderr"):
            from absl import logging

            logging.use_absl_handler()
            logging.get_absl_handler().python_handler.setStream(Lines())
            logging.set_verbosity(logging.INFO)
        experiment = _load(command)
        if "runs_dir" in flags and not printed:
            from runner.configuration import run_name

            source = flags.get("experiment") or flags["gin_file"][0]
            folder = Path(flags["runs_dir"], run_name.of(experiment, source))
            command = command.replace(model_dir=str(folder), runs_dir=None)
            ending.model_dir = folder
            if begun.bindings(folder):
                experiment = _load(command)
        garbage.freeze()  # before the first collection, which would search all imported objects
    autograph.keep_sources(user_code.loaded())
    if printed:
        _print(command, experiment)
        return None
    call = Call(
        experiment,
        Path(command.model_dir),
        arguments=command.arguments(groups.INHERITED),
        flags={name: value for name, value in command.flags.items() if value},
        stop=stop,
        launched=launched,
    )
    return _started(command, call)


def _load(command: Command) -> "Experiment":
    from runner import config

    flags, mode = command.flags, command.mode
    checked = mode.name and not flags.get("print_config")
    return config.load(
        flags.get("gin_file", ()),
        [*begun.bindings(command.model_dir), *flags.get("gin_params", ())],
        experiment=flags.get("experiment"),
        config_files=flags.get("config_file", ()),
        overrides=flags.get("params_override", ()),
        flags=typed.values(command.options, flags),
        trains=mode.trains if checked else None,
        evaluates=mode.evaluates if mode.name else None,
        menus=bool(flags.get("print_config")) or _has_menus(command),
    )


def _has_menus(command: Command) -> bool:
    """Returns whether command-line values may belong to alternatives that are not chosen.

    This is true for a study, which chooses later, and for its trials, which get the same values.
    """
    return command.mode.has_trials or Path(command.model_dir, layout.TRIAL).exists()


def _print(command: Command, experiment: "Experiment") -> None:
    """Prints the configuration, and checks it for the mode, if there is one."""
    from runner import config
    from runner.configuration import printing

    flags, mode = command.flags, command.mode
    changed = flags["print_config"] == "changed"
    base = f"--experiment={flags['experiment']}" if "experiment" in flags else ""
    places = config.origins(experiment)
    print(printing.render(experiment, places, otherwise=base, changed=changed), flush=True)
    if mode.name:
        config.validate(experiment, trains=mode.trains, evaluates=mode.evaluates)
    if not _has_menus(command):
        config.check_chosen(experiment)


def _started(command: Command, call: Call) -> Results | None:
    """Runs the mode here or launches it remotely. Returns None if it only prints the job."""
    if "launch" not in command.flags:
        from runner.command import execution

        return execution.run(command.mode, call, command.options).results
    from runner.command import launching

    return launching.launch(command, call)
