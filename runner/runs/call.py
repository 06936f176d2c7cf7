"""The arguments of a mode in addition to its options, and its outcome. No TensorFlow."""

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.core import signals
from runner.errors import ConfigError

if TYPE_CHECKING:  # most of these load TensorFlow
    import tensorflow as tf
    from official.core import base_task

    from runner.config import Experiment
    from runner.core import schedule
    from runner.evaluation import evaluator
    from runner.run_directory import provenance

Results = dict[str, Any]


class OrbitSummaries(NamedTuple):
    """The writers of a program's summary managers. Values then have Orbit's tags.

    Attributes:
        train: The writer for summaries of training steps. None uses the run's own file.
        validation: The writer for summaries of evaluations. None uses the run's own file.
    """

    train: "tf.summary.SummaryWriter | None" = None
    validation: "tf.summary.SummaryWriter | None" = None


class Given(NamedTuple):
    """Objects made by the caller, which replace those described by the configuration.

    Attributes:
        strategy: Its scope is entered here.
        task: The task of `config.task`.
        summaries: For an Orbit program, None for others.
        official: Whether the configuration is Model Garden's own, without `run`.
        objects: The data and the model in memory for each run of a mode that uses several. See
            `runner.runs.in_memory`.
        eval_tasks: The tasks of the evaluation sets with a separate task, by the set's name.
    """

    strategy: "tf.distribute.Strategy | None" = None
    task: "base_task.Task | None" = None
    summaries: OrbitSummaries | None = None
    official: bool = False
    eval_tasks: "Mapping[str, base_task.Task] | None" = None
    objects: Mapping[str, Any] | None = None

    @property
    def tags(self) -> Mapping[str, str]:
        """TensorBoard's tags of values that do not use their own name."""
        from runner.reporting import tensorboard

        return tensorboard.SHARED_TAGS if self.summaries is None else {}


class Outcome(NamedTuple):
    """A mode's result.

    Attributes:
        results: For JSON.
        evaluator: Holds the weights, or None for a dry run, or if other processes held them.
    """

    results: Results
    evaluator: "evaluator.Evaluator | None" = None


@dataclasses.dataclass(frozen=True)
class Call:
    """The arguments of a mode, in addition to its options.

    Attributes:
        config: The experiment, locked.
        model_dir: The training run's directory.
        mode: The mode's name, for the record.
        arguments: The command's flags that produce `config`, for a mode that starts processes, or
            None if there are none.
        flags: All of the command's flags, for the record.
        train_actions: Called with the logs of each training loop.
        eval_actions: Called with the results of each evaluation.
        watchers: Called with the `training_run.TrainingRun` before it trains.
        stop: Reports whether a signal has arrived.
        given: Objects made by the caller.
        launched: When the command was started, in seconds since the epoch, or None if unknown.
        place: The executor of a study's trials, a `runner.studies.places.Place`. None uses this
            machine.
        trial: Configures a trial of a study, given its bindings and its overrides. None uses
            `config.again`.
    """

    config: "Experiment"
    model_dir: Path
    _: dataclasses.KW_ONLY
    mode: str = ""
    arguments: Sequence[str] | None = None
    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    train_actions: "Sequence[schedule.Action]" = ()
    eval_actions: "Sequence[schedule.Action]" = ()
    watchers: Sequence[Callable[[Any], object]] = ()
    stop: signals.Stop = dataclasses.field(default_factory=signals.Stop)
    given: Given = Given()  # noqa: RUF009, immutable
    launched: float | None = None
    place: Any = None
    trial: "Callable[[Sequence[str], Sequence[str]], Experiment] | None" = None

    @property
    def limits(self) -> dict[str, int]:
        """The limits of `config`, for the results, or empty if there are none."""
        from runner.configuration import limits

        return limits.of(self.config)

    def loaded_from(self) -> Sequence[str]:
        """The flags with which a separate process has the same configuration.

        Raises:
            ConfigError: there are none, as the configuration was made or changed in Python.
        """
        if self.arguments is None:
            raise ConfigError(
                f"{self.mode} starts processes, which load the configuration from its files: pass "
                "what runner.load returns, unchanged"
            )
        return self.arguments

    def command(self) -> "provenance.Command":
        """Returns the command to record in run.json."""
        from runner.core import secrets
        from runner.run_directory import provenance

        held = list(secrets.held(self.config.as_dict()))
        return provenance.Command(self.mode, sys.argv, self.flags, held, self.launched)


class Resuming(NamedTuple):
    """Controls how training starts.

    Attributes:
        overwrite: The name of the run's directory, to remove the run in it and start over.
        clear_logs: Whether the run's TensorBoard events are removed first.
        allow_config_change: Whether a run may continue with a changed configuration.
        allow_lost_history: Whether a run may continue without rows that its history has lost.
        profile_steps: The first and the last training step to profile, None for none.
    """

    overwrite: bool | str = False
    clear_logs: bool = False
    allow_config_change: bool = False
    allow_lost_history: bool = False
    profile_steps: tuple[int, int] | None = None
