"""`--mode=ensemble`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from runner.command.modes import groups
from runner.command.modes import option as options_of
from runner.command.modes.mode import WRITES, Mode
from runner.command.modes.option import option
from runner.errors import ConfigError
from runner.runs.call import Call, Outcome


def _select(name: str, text: str) -> int:
    number = options_of.number(name, text)
    if number < 1:
        raise ConfigError(f"{{{name}}}: must be 1 or more, the members to choose", **{name: text})
    return number


@dataclasses.dataclass(frozen=True)
class Options(groups.OfRuns):
    """The members, and the data to score them on."""

    section = "Options of ensemble"
    runs: Sequence[Path] = option(
        (),
        "its members, separated by commas; by default the trials of the study in --model_dir",
        "DIRECTORIES",
        parse=options_of.directories,
        without="the trials of the study in --model_dir",
    )
    checkpoint: str = option(
        "",
        "one of each run: latest, best (the default), or a step",
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
        "also choose N members on the validation data, one after the other and with replacement, "
        "and score their mean",
        "N",
        parse=_select,
    )
    metric: str = option(
        "",
        "what --select chooses by; by default what best checkpoints are chosen by",
        "NAME[:higher|:lower]",
        without="what best checkpoints are chosen by",
    )
    dry_run: bool = option(False, "find the members, and predict nothing")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.select < 0:
            raise ConfigError(
                "{select}: must be 1 or more, the members to choose", select=self.select
            )
        if self.metric and not self.select:
            raise ConfigError(
                "{metric} is what {select} chooses by: give {select}, too", metric=None, select=None
            )


def ensemble(call: Call, options: Options) -> Outcome:
    """Averages what several runs predict, and scores the mean beside each of them."""
    if call.config is not None:
        raise ConfigError("an ensemble's runs have their own configurations: give None instead")
    from runner.studies.ensembles import ensemble

    return ensemble.ensemble(
        call,
        options.runs,
        ensemble.Choice(options.checkpoint, options.data, options.select, options.metric),
        dry_run=options.dry_run,
    )


MODE = Mode(ensemble, Options, "Many runs", evaluates=True, dry_run=ensemble, url=WRITES)
