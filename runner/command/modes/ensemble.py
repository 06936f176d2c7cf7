"""`--mode=ensemble`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.command.modes import groups
from runner.command.modes import option as options_of
from runner.command.modes.mode import WRITES, Mode
from runner.command.modes.option import option
from runner.errors import ConfigError
from runner.runs.call import Call, Outcome


def _select(name: str, text: str) -> int:
    number = options_of.number(name, text)
    if number < 1:
        raise ConfigError(f"{{{name}}}: must be 1 or more (the number of members)", **{name: text})
    return number


class Options(groups.OfRuns):
    """The members of the ensemble, and the data to score them on."""

    section = "Options of ensemble"
    runs: Sequence[Path] = option(
        (),
        "comma-separated run directories. Default: the trials of the study in --model_dir",
        "DIRECTORIES",
        parse=options_of.directories,
        without="the trials of the study in --model_dir",
    )
    checkpoint: str = option(
        "",
        "the checkpoint to use from each run: latest, best (the default), or a step",
        "WHICH",
        examples=("latest", "best"),
    )
    data: str = option(
        "",
        "validation (the default), train, test, or the name of an evaluation set",
        "NAME",
        without="the validation data",
    )
    select: int = option(
        0,
        "also select N members greedily on the validation data, with replacement, and score their "
        "average",
        "N",
        parse=_select,
    )
    metric: str = option(
        "",
        "the metric that --select optimizes. Default: the metric that selects the best checkpoint",
        "NAME[:higher|:lower]",
        without="the metric that selects the best checkpoint",
    )
    dry_run: bool = option(False, "list the members and their checkpoints without predicting")

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        if self.select < 0:
            raise ConfigError(
                "{select}: must be 1 or more (the number of members)", select=self.select
            )
        if self.metric and not self.select:
            raise ConfigError("{metric} has no effect without {select}", metric=None, select=None)


def ensemble(call: Call, options: Options) -> Outcome:
    """Averages the predictions of several runs, and scores the average and each run."""
    if call.config is not None:
        raise ConfigError("an ensemble uses its runs' configurations: pass None instead of one")
    from runner.studies.ensembles import ensemble

    return ensemble.ensemble(
        call,
        options.runs,
        ensemble.Choice(options.checkpoint, options.data, options.select, options.metric),
        dry_run=options.dry_run,
    )


MODE = Mode(ensemble, Options, "Many runs", evaluates=True, dry_run=ensemble, url=WRITES)
