"""A command that is to run elsewhere, and what became of it. No TensorFlow."""

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner.core import layout, signals
from runner.launch.bounds import Bounds


@dataclasses.dataclass(frozen=True)
class Job:
    """What a launcher is given.

    Attributes:
        mode: The command's mode.
        is_training: Whether that trains the run in its folder, which has a status.json.
        is_study: Whether several starts of the command share its work.
        arguments: All its flags but `--launch`, checked.
        model_dir: The run's or the study's folder, or its URL; empty for a mode without one.
        work_dir: The folder in which the command was given.
        config: The `LaunchConfig`, checked.
        strategy: The experiment's `RuntimeConfig.distribution_strategy`; empty without one.
        workers: How many `--workers` asks for; None without it.
        stop: Whether a signal has come, for a launcher that waits for the end.
    """

    mode: str
    arguments: Sequence[str]
    model_dir: str
    work_dir: Path
    config: Any  # its class would load TensorFlow
    strategy: str = ""
    workers: Bounds | None = None
    is_training: bool = False
    is_study: bool = False
    stop: signals.Stop = dataclasses.field(default_factory=signals.Stop)

    @property
    def command(self) -> list[str]:
        """The whole command, on a machine that has this one's files."""
        return [sys.executable, "-m", "runner", *self.arguments]

    @property
    def folder(self) -> Path | None:
        """The run's folder as a path; None if there is none."""
        return Path(self.model_dir) if self.model_dir and "://" not in self.model_dir else None

    @property
    def logs(self) -> Path:
        """The folder for its logs: in the run's folder if there is one."""
        return (self.folder or self.work_dir) / layout.LAUNCH

    @property
    def name(self) -> str:
        """What it is called where jobs are listed."""
        return self.config.name or Path(self.model_dir or self.mode).name

    @property
    def set_here(self) -> Mapping[str, str]:
        """The environment that `LaunchConfig.environment` gives values for."""
        pairs = (each.partition("=") for each in self.config.environment)
        return {name: value for name, equals, value in pairs if equals}


class Submitted(NamedTuple):
    """A job that has been submitted.

    Attributes:
        job: How its launcher calls it.
        log: Where its log is, or the command that shows it.
        cancel: The command that ends it.
    """

    job: str
    log: str
    cancel: str


class Plan(NamedTuple):
    """What would be submitted.

    Attributes:
        text: As `--dry_run` prints it: a script, a manifest.
        submit: Submits it; returns its answer if it has waited for the end.
    """

    text: str
    submit: Callable[[], Submitted | dict[str, Any]]
