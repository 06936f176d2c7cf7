"""A command to run remotely, and the result of submitting it. No TensorFlow."""

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner.core import layout, signals
from runner.launch.bounds import Bounds


@dataclasses.dataclass(frozen=True)
class Job:
    """The input of a launcher.

    Attributes:
        mode: The command's mode.
        is_training: Whether the mode trains the run in its directory, which has a status.json.
        is_study: Whether several instances of the command share its work.
        arguments: All its flags except `--launch`, validated.
        model_dir: The run's or the study's directory or URL, or empty for a mode without one.
        work_dir: The working directory of the command.
        config: The `LaunchConfig`, validated.
        strategy: The experiment's `RuntimeConfig.distribution_strategy`, or empty without one.
        workers: The value of `--workers`, or None without it.
        stop: Reports whether a signal has arrived, for a launcher that waits for the end.
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
        """The full command, for a machine with access to this machine's files."""
        return [sys.executable, "-m", "runner", *self.arguments]

    @property
    def folder(self) -> Path | None:
        """The run's directory as a path, or None if there is none."""
        return Path(self.model_dir) if self.model_dir and "://" not in self.model_dir else None

    @property
    def logs(self) -> Path:
        """The directory for its logs, inside the run's directory if there is one."""
        return (self.folder or self.work_dir) / layout.LAUNCH

    @property
    def name(self) -> str:
        """Its name in lists of jobs."""
        return self.config.name or Path(self.model_dir or self.mode).name

    @property
    def set_here(self) -> Mapping[str, str]:
        """The environment variables with a value in `LaunchConfig.environment`."""
        pairs = (each.partition("=") for each in self.config.environment)
        return {name: value for name, equals, value in pairs if equals}


class Submitted(NamedTuple):
    """A job that has been submitted.

    Attributes:
        job: Its id in the launcher.
        log: The path of its log, or the command that shows it.
        cancel: The command that ends it.
    """

    job: str
    log: str
    cancel: str


class Plan(NamedTuple):
    """A job that is ready to submit.

    Attributes:
        text: The output of `--dry_run`: a script or a manifest.
        submit: Submits it. Returns its answer if it has waited for the end.
    """

    text: str
    submit: Callable[[], Submitted | dict[str, Any]]
