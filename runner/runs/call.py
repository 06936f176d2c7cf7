"""What a mode is called with, and its outcome. No TensorFlow until a run needs it."""

import collections
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.configuration import limits
from runner.core import schedule, secrets, signals
from runner.history import best_evaluation, records
from runner.run_folder import provenance

if TYPE_CHECKING:  # these load TensorFlow
    import tensorflow as tf
    from official.core import base_task

    from runner import config
    from runner.evaluation import evaluator

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
    """What a user asks for.

    Attributes:
        config: The experiment, locked.
        model_dir: The training run's folder.
        checkpoint: What is evaluated, exported or predicted with: see
            `runner.checkpoints.selection`; empty: what the mode takes by default.
        data: What `predict` predicts: `validation`, `train`, `test` or the name of an evaluation
            set; empty: `validation`. For `eval`: `test`; empty: what training evaluates.
        output: Where `predict` writes; None: in the run's folder. Where a mode that has no folder
            keeps its results; None: nowhere.
        overwrite: Whether `predict` replaces its output. For a mode that trains, the name of its
            folder, to begin that anew.
        allow_config_change: Whether a run may go on with a changed configuration.
        allow_lost_history: Whether a run may go on without rows that its history has lost.
        dry_run: Do everything once and small, in a scratch folder.
        profile_steps: The first and the last training step to profile, None for none.
        arguments: The command's flags that make `config`, for a mode that starts processes.
        flags: All of the command's flags, for the record.
        train_actions: Called with the logs of each training loop.
        eval_actions: Called with the results of each evaluation.
        stop: Whether a signal has come.
        given: What a caller has made already.
        runs: The folders of an ensemble's members; none: the trials of a study in `model_dir`.
        select: How many members an ensemble chooses; 0: none.
        metric: What it chooses them by; empty: what their best checkpoints are chosen by.
        steps: The first and the last step that `replay` trains again; None: not given.
        like: Which kind of project `init` writes.
        watch: After how many seconds `report` writes its page again; 0: never.
        launched: When the command was started, in seconds since the epoch; None: unknown.
        place: Where the trials of a study run, a `runner.studies.places.Place`; None: here.
    """

    config: "config.Experiment"
    model_dir: Path
    checkpoint: str = ""
    _: dataclasses.KW_ONLY
    data: str = ""
    output: Path | None = None
    overwrite: bool | str = False
    allow_config_change: bool = False
    allow_lost_history: bool = False
    dry_run: bool = False
    profile_steps: tuple[int, int] | None = None
    arguments: Sequence[str] = ()
    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    train_actions: Sequence[schedule.Action] = ()
    eval_actions: Sequence[schedule.Action] = ()
    stop: signals.Stop = dataclasses.field(default_factory=signals.Stop)
    given: Given = Given()  # noqa: RUF009, immutable
    steps: tuple[int, int] | None = None
    like: str = ""
    runs: Sequence[Path] = ()
    select: int = 0
    metric: str = ""
    watch: float = 0.0
    launched: float | None = None
    place: Any = None

    @property
    def limits(self) -> dict[str, int]:
        """The limits of `config`, for the results; empty if there are none."""
        return limits.of(self.config)

    def command(self, mode: str) -> provenance.Command:
        """What run.json is to say was started."""
        held = list(secrets.held(self.config.as_dict()))
        return provenance.Command(mode, sys.argv, self.flags, held, self.launched)


def results(
    state: str,
    rows: Sequence[records.Evaluation],
    rule: best_evaluation.BestRule | None,
    model_dir: Path,
    **more: Any,
) -> Results:
    """The newest and the best of `rows`; of `more`, what is not empty."""
    step = rows[-1].step if rows else 0
    newest = collections.ChainMap(*(dict(row.metrics) for row in rows if row.step == step))
    best = rule.best(rows) if rule else None
    return {
        "status": state,
        "step": step,
        "metrics": records.plain(newest),
        "best": {"step": best.step, "metrics": records.plain(best.metrics)} if best else None,
        "model_dir": str(model_dir),
        **{name: value for name, value in more.items() if value},
    }
