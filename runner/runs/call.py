"""What a mode is called with besides its options, and its outcome. No TensorFlow."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.core import schedule, signals
from runner.errors import ConfigError

if TYPE_CHECKING:  # these load TensorFlow
    import tensorflow as tf
    from official.core import base_task

    from runner import config
    from runner.evaluation import evaluator
    from runner.run_folder import provenance

Results = dict[str, Any]


class OrbitSummaries(NamedTuple):
    """The writers of a program's summary managers; values have Orbit's tags then.

    Attributes:
        train: Takes the summaries of training steps; None: the run's own file does.
        validation: The same for evaluations.
    """

    train: "tf.summary.SummaryWriter | None" = None
    validation: "tf.summary.SummaryWriter | None" = None


class Given(NamedTuple):
    """Objects made by the caller, used instead of what the configuration describes.

    Attributes:
        strategy: Its scope is entered here.
        task: Of `config.task`.
        summaries: For a program of Orbit's, None for others.
        official: Whether the configuration is Model Garden's own, without the section `run`.
        eval_tasks: Of the evaluation sets that have a task of their own, by the set's name.
    """

    strategy: "tf.distribute.Strategy | None" = None
    task: "base_task.Task | None" = None
    summaries: OrbitSummaries | None = None
    official: bool = False
    eval_tasks: "Mapping[str, base_task.Task] | None" = None

    @property
    def tags(self) -> Mapping[str, str]:
        """TensorBoard's tags of values that do not have their own name."""
        from runner.reporting import tensorboard

        return tensorboard.SHARED_TAGS if self.summaries is None else {}


class Outcome(NamedTuple):
    """A mode's result.

    Attributes:
        results: For JSON.
        evaluator: Holds the weights; None where other processes did, or a dry run.
    """

    results: Results
    evaluator: "evaluator.Evaluator | None" = None


@dataclasses.dataclass(frozen=True)
class Call:
    """What a mode is called with, besides its options.

    Attributes:
        config: The experiment, locked.
        model_dir: The training run's folder.
        mode: The mode's name, for the record.
        arguments: The command's flags that make `config`, for a mode that starts processes.
        flags: All of the command's flags, for the record.
        train_actions: Called with the logs of each training loop.
        eval_actions: Called with the results of each evaluation.
        stop: Whether a signal has come.
        given: What a caller has made already.
        launched: When the command was started, in seconds since the epoch; None: unknown.
        place: Where the trials of a study run, a `runner.studies.places.Place`; None: here.
    """

    config: "config.Experiment"
    model_dir: Path
    _: dataclasses.KW_ONLY
    mode: str = ""
    arguments: Sequence[str] = ()
    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    train_actions: Sequence[schedule.Action] = ()
    eval_actions: Sequence[schedule.Action] = ()
    stop: signals.Stop = dataclasses.field(default_factory=signals.Stop)
    given: Given = Given()  # noqa: RUF009, immutable
    launched: float | None = None
    place: Any = None

    @property
    def limits(self) -> dict[str, int]:
        """The limits of `config`, for the results; empty if there are none."""
        from runner.configuration import limits

        return limits.of(self.config)

    def loaded_from(self) -> Sequence[str]:
        """The flags with which a separate process has the same configuration.

        Raises:
            ConfigError: there are none, as the configuration was made or changed in Python.
        """
        if not self.arguments:
            raise ConfigError(
                f"{self.mode} starts processes, which load the configuration from its files: pass "
                "what runner.load returns, unchanged"
            )
        return self.arguments

    def command(self) -> "provenance.Command":
        """What run.json is to say was started."""
        from runner.core import secrets
        from runner.run_folder import provenance

        held = list(secrets.held(self.config.as_dict()))
        return provenance.Command(self.mode, sys.argv, self.flags, held, self.launched)


class Resuming(NamedTuple):
    """How training starts.

    Attributes:
        overwrite: The name of the run's folder, to remove the run in it and start over.
        allow_config_change: Whether a run may go on with a changed configuration.
        allow_lost_history: Whether a run may go on without rows that its history has lost.
        profile_steps: The first and the last training step to profile, None for none.
    """

    overwrite: bool | str = False
    allow_config_change: bool = False
    allow_lost_history: bool = False
    profile_steps: tuple[int, int] | None = None
