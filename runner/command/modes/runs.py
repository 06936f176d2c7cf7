"""`--mode=runs`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from runner.command.modes import groups
from runner.command.modes import option as options_of
from runner.command.modes.mode import LOOKS, Mode
from runner.command.modes.option import option
from runner.runs.call import Call, Outcome


@dataclasses.dataclass(frozen=True)
class Options(groups.OfRuns):
    """The rows and the columns of the table."""

    section = "Options of runs"
    where: str = option(
        "",
        "the runs to show, by their columns: and, or, not, in, comparisons",
        "CONDITION",
        without="all runs",
    )
    sort: Sequence[str] = option(
        (),
        "what to sort by, separated by commas; a - before one: the highest first",
        "COLUMNS",
        parse=options_of.names,
        without="the order of their names",
    )
    columns: Sequence[str] = option(
        (),
        "what to show, separated by commas: state, best.accuracy, trainer.train_steps, "
        "learning_rate, or patterns as in 'last.*'",
        "NAMES",
        parse=options_of.names,
        without="the most informative ones",
    )
    output: Path | None = option(
        None,
        "a file for the table: .csv, .json, .jsonl or .parquet",
        "FILE",
        parse=options_of.path,
        without="a table on stdout",
    )


def runs(call: Call, options: Options) -> Outcome:
    """Lists the runs under a directory: progress, metrics, and the settings that differ."""
    from runner.inspection import runs

    wanted = runs.Wanted(options.sort, options.where, options.columns, options.output)
    return Outcome(runs.runs(call.model_dir, wanted))


MODE = Mode(runs, Options, "Look at runs", directory="with the runs", url=LOOKS, prints=True)
