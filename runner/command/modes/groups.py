"""Option groups that the options classes of several modes inherit."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from runner.command.modes import option as options
from runner.command.modes.option import option
from runner.errors import ConfigError

if TYPE_CHECKING:
    from runner.runs.call import Resuming

# The modules that check values are imported on use: `--help` needs only the descriptions.

RUN = "Options of the command"


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of every mode. A subclass may check its values when it is created."""

    section: ClassVar[str] = RUN
    alsologtostderr: bool = option(
        False,
        "also show the logs of Model Garden and TensorFlow",
        parse=options.truth,
        bare=True,
        shell=True,
    )

    def check(self, model_dir: str) -> None:
        """Raises ConfigError if the options do not fit the run's directory, which may be a URL."""


@dataclasses.dataclass(frozen=True)
class Launch(Options):
    """The executor of the command."""

    section: ClassVar[str] = RUN
    launch: str | None = option(
        None,
        "run the command elsewhere: slurm, kubernetes, local, ray; LaunchConfig says with what. "
        "With --dry_run, print what would be submitted",
        "WHERE",
        shell=True,
        without="a command that runs here",
        examples=("slurm", "kubernetes", "local", "ray"),
    )

    def __post_init__(self) -> None:
        if self.launch is not None:
            from runner.launch import launchers

            launchers.check(self.launch)


@dataclasses.dataclass(frozen=True)
class OfRuns(Launch):
    """Options of a mode that inspects runs, which have their own configuration."""

    section: ClassVar[str] = "Options of --launch"
    dry_run: bool = option(False, "print what would be submitted", shell=True)
    gin_file: Sequence[str] = option(
        (), "sets LaunchConfig; repeatable", "FILE", repeated=True, shell=True
    )
    gin_params: Sequence[str] = option(
        (), "sets LaunchConfig; repeatable", "NAME=VALUE", repeated=True, shell=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for one in options.of(type(self)):
            is_of_job = one.shell and one.name in ("dry_run", "gin_file", "gin_params")
            if is_of_job and getattr(self, one.name) and not self.launch:
                raise ConfigError(
                    f"--{one.name} has no effect without --launch: each run has its own "
                    "configuration"
                )


@dataclasses.dataclass(frozen=True)
class Experiment(Launch):
    """Options of a mode that needs an experiment: its configuration, and a dry run."""

    section: ClassVar[str] = "Configuration"
    experiment: str | None = option(
        None,
        "an experiment registered with Model Garden, or by a module that a gin file imports",
        "NAME",
        shell=True,
    )
    gin_file: Sequence[str] = option(
        (),
        "repeatable, in order. Looked for in the working directory, then among the experiments "
        "that come with the runner. Without it, the run in --model_dir keeps its configuration "
        "(config.gin)",
        "FILE",
        repeated=True,
        shell=True,
    )
    gin_params: Sequence[str] = option(
        (),
        "a binding, after the files; repeatable, in order. --gin.NAME=VALUE is short for it",
        "NAME=VALUE",
        repeated=True,
        shell=True,
    )
    config_file: Sequence[str] = option(
        (),
        "YAML or JSON that overrides single values; repeatable, in order",
        "FILE",
        repeated=True,
        shell=True,
    )
    params_override: Sequence[str] = option(
        (),
        "the same as text: 'trainer.train_steps=500,task.init_checkpoint=a' or YAML",
        "VALUES",
        repeated=True,
        shell=True,
    )
    enable_async_checkpointing: bool | None = option(
        None,
        "sets run.async_checkpoints, which is on; =false: training waits for checkpoints",
        parse=options.truth,
        bare=True,
        shell=True,
        sets={"run.async_checkpoints": None},
    )
    worker_hosts: str | None = option(
        None,
        "sets runtime.worker_hosts: all workers of a run, for the strategy "
        "'multi_worker_mirrored'; each is started by the same command",
        "HOST:PORT,...",
        shell=True,
        sets={"runtime.worker_hosts": None},
    )
    task_index: int | None = option(
        None,
        "sets runtime.task_index: which of them this one is",
        "N",
        parse=options.number,
        shell=True,
        sets={"runtime.task_index": None},
    )
    tpu: str | None = option(
        None,
        "sets runtime.tpu, which the strategy 'tpu' uses",
        "ADDRESS",
        shell=True,
        sets={"runtime.tpu": None},
    )
    tf_data_service: str | None = option(
        None,
        "sets tf_data_service_address of the training and the validation data",
        "ADDRESS",
        shell=True,
        sets={
            f"task.{data}.tf_data_service_address": None
            for data in ("train_data", "validation_data")
        },
    )
    print_config: str | None = option(
        None,
        "print every value and where it was set, checked for the mode, then exit; =changed: "
        "without the defaults; =reads: how often the run in --model_dir has read each",
        choices=("all", "changed", "reads"),
        bare="all",
        shell=True,
    )
    dry_run: bool = option(
        False, "one step, one batch, a checkpoint and back, in a scratch directory; then end"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.launch and self.print_config:
            raise ConfigError("--print_config and --launch: the configuration is printed here")


INHERITED = (
    *("experiment", "gin_file", "gin_params", "config_file", "params_override"),
    *("tpu", "tf_data_service", "enable_async_checkpointing"),
)
"""The options of `Experiment` that a child process needs for the same configuration."""


@dataclasses.dataclass(frozen=True)
class InDirectory(Experiment):
    """Options of a mode that needs an experiment and works in a run's directory."""

    section: ClassVar[str] = RUN
    runs_dir: str | None = option(
        None,
        "instead of --model_dir: the directory below which the run has one of its name, "
        "RunConfig.name",
        "DIRECTORY",
        shell=True,
    )

    def check(self, model_dir: str) -> None:
        """Checks the combination of the two directories."""
        super().check(model_dir)
        if not self.runs_dir:
            return
        if model_dir:
            raise ConfigError("--runs_dir and --model_dir: give one of them")
        if "://" in self.runs_dir:
            raise ConfigError(f"--runs_dir={self.runs_dir}: it must be a local directory")
        if getattr(self, "workers", None):
            raise ConfigError("--workers needs --model_dir in place of --runs_dir")


@dataclasses.dataclass(frozen=True)
class Workers(InDirectory):
    """Options of a mode that several workers can run together."""

    section: ClassVar[str] = "Workers"
    workers: str | None = option(
        None,
        "number of workers on this machine, or on those in --worker_hosts. They are restarted on "
        "failure. A range such as 2..4 sets the minimum and maximum. Sets "
        "runtime.distribution_strategy",
        "N",
        shell=True,
        sets={"runtime.distribution_strategy": "multi_worker_mirrored"},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.workers is not None:
            from runner.launch.bounds import Bounds

            Bounds.parse(self.workers)


@dataclasses.dataclass(frozen=True)
class Training(Workers):
    """Options of a mode that trains a run."""

    section: ClassVar[str] = "Training"
    overwrite: bool | str = option(
        False,
        "with the name of the run's directory: remove the run in it, and start over",
        "NAME",
        bare=True,
    )
    allow_config_change: bool = option(False, "resume a run although its configuration has changed")
    allow_lost_history: bool = option(
        False, "resume a run although rows of its history.jsonl are gone"
    )
    profile_steps: tuple[int, int] | None = option(
        None,
        "a profile of these steps, both included, for TensorBoard's profile plugin",
        "FIRST:LAST",
        parse=options.steps,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.profile_steps:
            if self.dry_run:
                raise ConfigError(
                    "{profile_steps} and {dry_run}: a dry run profiles nothing",
                    profile_steps=None,
                    dry_run=None,
                )
            options.check_steps("profile_steps", self.profile_steps)

    def check(self, model_dir: str) -> None:
        """Checks that the run to overwrite may be overwritten."""
        super().check(model_dir)
        if not self.overwrite:
            return
        from runner.devices import cluster
        from runner.run_directory import overwrite

        for name in ("launch", "workers"):
            if getattr(self, name):
                raise ConfigError(
                    f"--overwrite and --{name}: whoever starts the run again would start over each "
                    "time; remove the directory yourself, or choose another --model_dir"
                )
        if "://" in model_dir:
            raise ConfigError(
                f"{{overwrite}}: {model_dir} is not a local directory", overwrite=None
            )
        if self.worker_hosts or cluster.find(os.environ):
            raise ConfigError(
                "{overwrite} is for one process, and this is one of several workers", overwrite=None
            )
        if model_dir:
            overwrite.check(Path(model_dir), self.overwrite)

    @property
    def resuming(self) -> "Resuming":
        """The options for starting the run."""
        from runner.runs.call import Resuming

        return Resuming(
            self.overwrite, self.allow_config_change, self.allow_lost_history, self.profile_steps
        )


@dataclasses.dataclass(frozen=True)
class Watching(OfRuns):
    """Options of a mode that can show runs repeatedly."""

    section: ClassVar[str] = "Watching"
    watch: float = option(
        0.0,
        "again every so many seconds, 10 by default, until all runs have ended",
        "SECONDS",
        bare="10",
        parse=options.seconds,
        without="once, or --watch for every 10 seconds",
    )
