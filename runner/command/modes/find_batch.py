"""`--mode=find_batch`."""

from pathlib import Path

from runner.command.modes import groups
from runner.command.modes.mode import Mode
from runner.command.modes.option import option
from runner.core import output_file
from runner.runs.call import Call, Outcome


class Options(groups.Experiment):
    """The file for the results. `FindBatchConfig` has the settings of the search."""

    section = "Options of find_batch"
    output: Path | None = option(
        None,
        "a .json file for the results",
        "FILE",
        parse=output_file.named(".json"),
        without="a table on stderr",
    )


def find_batch(call: Call, options: Options) -> Outcome:
    """Tries increasing batch sizes, and reports their speed and whether they fit in memory."""
    from runner.runs import find_batch

    return Outcome(find_batch.find_batch(call, options.output, dry_run=options.dry_run))


MODE = Mode(
    find_batch,
    Options,
    "Try and verify",
    trains=True,
    dry_run=find_batch,
    takes_several=False,
    directory="",
    prints=True,
)
