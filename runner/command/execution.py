"""Runs a mode: validates its configuration, provides local directories, translates errors."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from runner import errors
from runner.command import url_folders
from runner.command.modes.mode import LOOKS, Mode
from runner.core import console, layout, streams, user_code
from runner.errors import ConfigError, RunnerError
from runner.runs.call import Call, Outcome


def run(mode: Mode, call: Call, options: Any) -> Outcome:
    """Validates the configuration for `mode` and runs it, or its dry run.

    Args:
        mode: The mode.
        call: The mode's arguments.
        options: An instance of the mode's options class.

    Raises:
        ConfigError: the mode cannot run this configuration.
    """
    streams.fill()
    call = dataclasses.replace(call, mode=mode.name)
    if mode.is_configured:
        _prepare(mode, call, options)
    with url_folders.local(mode, call, options) as (call, options):
        if mode.directory and (mode.is_configured or mode.url not in ("", LOOKS)):
            layout.check(call.model_dir)
        with _plainly():
            outcome = _run(mode, call, options)
        return outcome._replace(results=url_folders.named(outcome.results))


def _prepare(mode: Mode, call: Call, options: Any) -> None:
    """Validates the configuration, and completes it."""
    if call.config is None:
        raise ConfigError(
            f"{mode.name} needs a configuration: pass the result of runner.load, or the directory "
            f"of a run that has {layout.GIN}"
        )
    from runner import config
    from runner.configuration import multitask

    if mode.trains or call.config.trainer.optimizer_config.ema is not None:
        from runner.runs import compiled_model

        compiled_model.bring_optimizer(call.config)
    if not mode.takes_several:
        multitask.check_one(call.config.task, "{mode}", mode=mode.name)
    for line in config.prepare(call.config, trains=mode.trains, evaluates=mode.evaluates):
        console.say(line)
    end = call.config.trainer.train_steps
    if (profiled := getattr(options, "profile_steps", None)) and profiled[1] > end:
        raise ConfigError(
            f"{{profile_steps}}: the run ends at step {end} (TrainerConfig.train_steps)",
            profile_steps=":".join(map(str, profiled)),
        )


def _run(mode: Mode, call: Call, options: Any) -> Outcome:
    if not getattr(options, "dry_run", False):
        return mode.function(call, options)
    if mode.dry_run:
        return mode.dry_run(call, options)
    from runner.runs import dry_run

    return Outcome(
        dry_run.rehearse(
            call,
            trains=mode.trains,
            evaluates=mode.evaluates,
            checkpoint=getattr(options, "checkpoint", None),
            allow_config_change=getattr(options, "allow_config_change", False),
        )
    )


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Translates errors with a known cause into readable ones, within the block."""
    try:
        yield
    except (RunnerError, OSError):
        raise
    except Exception as error:
        if readable := errors.from_graph(error) or user_code.advice(error):
            raise readable from error
        raise
