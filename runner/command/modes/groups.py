"""Option groups that the options classes of several modes inherit."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from runner.command.modes import option as options
from runner.command.modes.option import option
from runner.errors import ConfigError

if TYPE_CHECKING:
    from runner.runs.call import Resuming

# The modules that check values are imported on use: `--help` needs only the descriptions.

RUN = "Options of the command"


class Options:
    """Options of every mode, from values by name. A subclass may check them when it is created."""

    section: ClassVar[str] = RUN
    alsologtostderr: bool = option(
        False,
        "also show the logs of Model Garden and TensorFlow",
        parse=options.truth,
        bare=True,
        shell=True,
    )

    def __init__(self, **values: Any) -> None:
        defaults = {each.name: each.default for each in options.of(type(self))}
        vars(self).update({**defaults, **values})

    def replace(self, **values: Any) -> Self:
        """Returns the same options with other values."""
        return type(self)(**{**vars(self), **values})

    def check(self, model_dir: str) -> None:
        """Raises ConfigError if the options do not fit the run's directory, which may be a URL."""


class Launch(Options):
    """The executor of the command."""

    section: ClassVar[str] = RUN
    launch: str | None = option(
        None,
        "run the command as a job on slurm, kubernetes, ray or local (this machine). LaunchConfig "
        "sets its resources. With --dry_run, print the job without submitting it",
        "WHERE",
        shell=True,
        without="a command that runs here",
        examples=("slurm", "kubernetes", "local", "ray"),
    )

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        if self.launch is not None:
            from runner.launch import launchers

            launchers.check(self.launch)


class OfRuns(Launch):
    """Options of a mode that inspects runs, which have their own configuration."""

    section: ClassVar[str] = "Options of --launch"
    dry_run: bool = option(False, "print the job without submitting it", shell=True)
    gin_file: Sequence[str] = option(
        (), "a gin file that sets LaunchConfig. Repeatable", "FILE", repeated=True, shell=True
    )
    gin_params: Sequence[str] = option(
        (),
        "a gin binding that sets LaunchConfig. Repeatable",
        "NAME=VALUE",
        repeated=True,
        shell=True,
    )

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        for one in options.of(type(self)):
            is_of_job = one.shell and one.name in ("dry_run", "gin_file", "gin_params")
            if is_of_job and getattr(self, one.name) and not self.launch:
                raise ConfigError(
                    f"--{one.name} has no effect without --launch, because each run has its own "
                    "configuration"
                )


class Experiment(Launch):
    """Options of a mode that needs an experiment: its configuration, and a dry run."""

    section: ClassVar[str] = "Configuration"
    experiment: str | None = option(
        None,
        "an experiment registered by Model Garden or by a module that a gin file imports",
        "NAME",
        shell=True,
    )
    gin_file: Sequence[str] = option(
        (),
        "a gin file, searched for in the working directory, then among the bundled experiments. "
        "Repeatable, applied in order. Default: config.gin of the run in --model_dir, if any",
        "FILE",
        repeated=True,
        shell=True,
    )
    gin_params: Sequence[str] = option(
        (),
        "a gin binding, applied after the gin files. Repeatable. Short form: --gin.NAME=VALUE",
        "NAME=VALUE",
        repeated=True,
        shell=True,
    )
    config_file: Sequence[str] = option(
        (),
        "a YAML or JSON file that overrides single values. Repeatable, applied in order",
        "FILE",
        repeated=True,
        shell=True,
    )
    params_override: Sequence[str] = option(
        (),
        "overrides of single values as text, 'trainer.train_steps=500,task.init_checkpoint=a' or "
        "YAML. Repeatable",
        "VALUES",
        repeated=True,
        shell=True,
    )
    enable_async_checkpointing: bool | None = option(
        None,
        "write checkpoints in the background (the default), or =false to make training wait for "
        "them. Sets run.async_checkpoints",
        parse=options.truth,
        bare=True,
        shell=True,
        sets={"run.async_checkpoints": None},
    )
    worker_hosts: str | None = option(
        None,
        "addresses of all workers, for the strategy 'multi_worker_mirrored'. Start every worker "
        "with the same command and its own --task_index. Sets runtime.worker_hosts",
        "HOST:PORT,...",
        shell=True,
        sets={"runtime.worker_hosts": None},
    )
    task_index: int | None = option(
        None,
        "index of this worker in --worker_hosts, from 0. Sets runtime.task_index",
        "N",
        parse=options.number,
        shell=True,
        sets={"runtime.task_index": None},
    )
    tpu: str | None = option(
        None,
        "address of the TPU for the strategy 'tpu'. Sets runtime.tpu",
        "ADDRESS",
        shell=True,
        sets={"runtime.tpu": None},
    )
    tf_data_service: str | None = option(
        None,
        "address of a tf.data service. Sets tf_data_service_address of the training and validation "
        "data",
        "ADDRESS",
        shell=True,
        sets={
            f"task.{data}.tf_data_service_address": None
            for data in ("train_data", "validation_data")
        },
    )
    print_config: str | None = option(
        None,
        "print every value and where it was set, check them for the mode, then exit. =changed "
        "omits the defaults. =reads prints how often the run in --model_dir has read each value",
        choices=("all", "changed", "reads"),
        bare="all",
        shell=True,
    )
    dry_run: bool = option(
        False,
        "check the setup without changing the run, then exit. For example, training modes train "
        "one step, and save and restore a checkpoint, in a temporary directory",
    )

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        if self.launch and self.print_config:
            raise ConfigError("--print_config and --launch cannot be combined")


INHERITED = (
    *("experiment", "gin_file", "gin_params", "config_file", "params_override"),
    *("tpu", "tf_data_service", "enable_async_checkpointing"),
)
"""The options of `Experiment` that a child process needs for the same configuration."""


class InDirectory(Experiment):
    """Options of a mode that needs an experiment and works in a run's directory."""

    section: ClassVar[str] = RUN
    runs_dir: str | None = option(
        None,
        "the parent directory of runs, as an alternative to --model_dir. RunConfig.name sets the "
        "name of the run's directory in it",
        "DIRECTORY",
        shell=True,
    )

    def check(self, model_dir: str) -> None:
        """Checks the combination of the two directories."""
        super().check(model_dir)
        if not self.runs_dir:
            return
        if model_dir:
            raise ConfigError("--runs_dir and --model_dir cannot be combined")
        if "://" in self.runs_dir:
            raise ConfigError(f"--runs_dir={self.runs_dir}: it must be a local directory")
        if getattr(self, "workers", None):
            raise ConfigError("--workers needs --model_dir instead of --runs_dir")


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

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        if self.workers is not None:
            from runner.launch.bounds import Bounds

            Bounds.parse(self.workers)


class Training(Workers):
    """Options of a mode that trains a run."""

    section: ClassVar[str] = "Training"
    overwrite: bool | str = option(
        False,
        "delete the run in --model_dir and start over. NAME must be the name of that directory",
        "NAME",
        bare=True,
    )
    clear_logs: bool = option(
        False, "delete the TensorBoard events that the run has written, and continue"
    )
    allow_config_change: bool = option(False, "resume even if the configuration has changed")
    allow_lost_history: bool = option(False, "resume even if rows of history.jsonl are missing")
    profile_steps: tuple[int, int] | None = option(
        None,
        "profile these steps (inclusive) for TensorBoard's profile plugin",
        "FIRST:LAST",
        parse=options.steps,
    )

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        if self.profile_steps:
            if self.dry_run:
                raise ConfigError(
                    "{profile_steps} has no effect with {dry_run}",
                    profile_steps=None,
                    dry_run=None,
                )
            options.check_steps("profile_steps", self.profile_steps)

    def check(self, model_dir: str) -> None:
        """Checks that what is to be deleted may be deleted."""
        super().check(model_dir)
        for chosen in ("overwrite", "clear_logs"):
            for name in ("launch", "workers"):
                if getattr(self, chosen) and getattr(self, name):
                    raise ConfigError(
                        f"--{chosen} and --{name} cannot be combined: each restart would delete "
                        "again. Delete the files yourself, or choose another --model_dir"
                    )
        if not self.overwrite:
            return
        from runner.devices import cluster
        from runner.run_directory import overwrite

        if "://" in model_dir:
            raise ConfigError(
                f"{{overwrite}}: {model_dir} is not a local directory", overwrite=None
            )
        if self.worker_hosts or cluster.find(os.environ):
            raise ConfigError("{overwrite} is not available with several workers", overwrite=None)
        if model_dir:
            overwrite.check(Path(model_dir), self.overwrite)

    @property
    def resuming(self) -> "Resuming":
        """The options for starting the run."""
        from runner.runs.call import Resuming

        return Resuming(
            self.overwrite,
            self.clear_logs,
            self.allow_config_change,
            self.allow_lost_history,
            self.profile_steps,
        )


class Watching(OfRuns):
    """Options of a mode that can show runs repeatedly."""

    section: ClassVar[str] = "Watching"
    watch: float = option(
        0.0,
        "repeat every N seconds (10 if no number is given) until all runs have ended",
        "SECONDS",
        bare="10",
        parse=options.seconds,
        without="once, or --watch for every 10 seconds",
    )
