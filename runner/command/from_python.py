"""`runner.run`: calls a mode from Python. No TensorFlow, except in modes that compute."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner import errors
from runner.command import execution, parser, table, typed
from runner.command.modes import groups
from runner.command.modes.mode import Mode
from runner.core import signals
from runner.errors import ConfigError
from runner.run_directory import begun
from runner.runs.call import Call, Results

if TYPE_CHECKING:
    from runner.config import Experiment

_OBJECTS = ("train", "validation", "model")  # in memory, as `runner.fit` takes them
_TAKE_OBJECTS = ("eval", "predict", "export", "ensemble")


def run(
    config: "Experiment | None",
    model_dir: str | Path | None,
    name: str,
    arguments: Mapping[str, Any],
    **actions: Any,
) -> Results:
    """Runs a mode, and restores the settings of the process afterwards.

    Args:
        config: The experiment, or None to use the configuration of the run in `model_dir`.
        model_dir: The run's directory.
        name: The name of the mode.
        arguments: The options of the mode.
        actions: Further attributes of the call.

    Raises:
        RunnerError: the mode failed. The message names arguments.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(errors.in_python())
        mode = table.named(name, f"mode = {name!r}")
        objects, arguments = _objects(mode, arguments)
        if mode.is_configured or mode.trains or mode.evaluates:
            from runner.devices import process_state

            stack.enter_context(process_state.restored())
        stop = stack.enter_context(signals.served())
        typed.check_model_dir(mode, model_dir)
        options = options_of(mode, arguments)
        options.check(str(model_dir or ""))
        more: dict[str, Any] = {}
        if mode.is_configured:
            config = _configured(config, model_dir, mode)
            if values := typed.values(options, arguments):
                from runner.config import again

                assert config is not None
                config = again(config, flags=values)
            more = _of_children(config)
        if objects:
            from runner.models import models
            from runner.runs import in_memory

            stack.enter_context(models.lent(objects.get("model")))
            config, more["given"] = in_memory.placed(config, model_dir, objects)
        call = Call(
            config,  # type: ignore[arg-type]
            Path(model_dir or ""),
            stop=stop,
            **more,
            **actions,
        )
        return execution.run(mode, call, options).results


def options_of(mode: Mode, arguments: Mapping[str, Any]) -> Any:
    """Creates the options of a mode from Python's arguments.

    Raises:
        ConfigError: an argument is unknown, is only for another mode or for the command line, or
            has a wrong value.
    """
    known = table.options(mode)
    values = {}
    for name, value in arguments.items():
        if name not in known:
            if value is False and table.taking(name):
                continue  # False has no effect in any mode
            raise parser.unknown_argument(name, mode)
        if known[name].shell and value is not known[name].default:
            where = "; pass it to runner.load" if name in groups.INHERITED else ""
            raise ConfigError(f"{name} is only available on the command line{where}")
        is_default = value == known[name].default
        values[name] = value if is_default else known[name].value(value)
    return mode.options(**values)


def _objects(mode: Mode, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Separates data and a model in memory from the options.

    Raises:
        ConfigError: the mode takes none.
    """
    found = {name: arguments[name] for name in _OBJECTS if arguments.get(name) is not None}
    if found and mode.name not in _TAKE_OBJECTS:
        raise ConfigError(
            f"{mode.name} takes no {next(iter(found))} from memory; "
            f"{', '.join(_TAKE_OBJECTS)} do, and runner.fit trains on data in memory"
        )
    return found, {name: value for name, value in arguments.items() if name not in _OBJECTS}


def _configured(
    config: "Experiment | None", model_dir: str | Path | None, mode: Mode
) -> "Experiment | None":
    """Returns the experiment, or that of the run in the directory, or None if there is neither."""
    if config is not None or not mode.directory or not (own := begun.configuration(model_dir)):
        return config
    from runner.config import load

    return load(own)


def _of_children(config: "Experiment | None") -> dict[str, Any]:
    """Returns the arguments with which child processes get the same configuration."""
    if config is None:
        return {}
    from runner.config import arguments

    return {"arguments": arguments(config) or None}
