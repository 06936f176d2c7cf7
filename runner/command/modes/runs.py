"""`--mode=runs`."""

from collections.abc import Sequence
from pathlib import Path

from runner.command.modes import groups
from runner.command.modes import option as options_of
from runner.command.modes.mode import LOOKS, Mode
from runner.command.modes.option import option
from runner.runs.call import Call, Outcome


class Options(groups.OfRuns):
    """The runs and columns of the table."""

    section = "Options of runs"
    where: str = option(
        "",
        "show only runs for which this condition on columns holds, as in 'accuracy > 0.9'. "
        "Operators: and, or, not, in, comparisons",
        "CONDITION",
        without="all runs",
    )
    sort: Sequence[str] = option(
        (),
        "comma-separated columns to sort by. Prefix a column with - to sort the highest first",
        "COLUMNS",
        parse=options_of.names,
        without="the order of their names",
    )
    columns: Sequence[str] = option(
        (),
        "comma-separated columns to show, such as state, best.accuracy, trainer.train_steps or "
        "learning_rate, or patterns such as 'last.*'",
        "NAMES",
        parse=options_of.names,
        without="the most informative ones",
    )
    output: Path | None = option(
        None,
        "a .csv, .json, .jsonl or .parquet file for the table",
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
