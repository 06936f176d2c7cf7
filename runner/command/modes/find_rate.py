"""`--mode=find_rate`."""

from pathlib import Path

from runner.command.modes import groups
from runner.command.modes.mode import Mode
from runner.command.modes.option import option
from runner.core import output_file
from runner.runs.call import Call, Outcome


class Options(groups.Experiment):
    """The file for the results. `FindRateConfig` has the settings of the search."""

    section = "Options of find_rate"
    output: Path | None = option(
        None,
        "a .json file for the results, or a plot (.png, .svg, .pdf) with a .json file next to it",
        "FILE",
        parse=output_file.named(".json", *output_file.PICTURES),
        without="a table on stderr",
    )


def find_rate(call: Call, options: Options) -> Outcome:
    """Increases the learning rate over a few training steps, and suggests a value."""
    from runner.runs import find_rate

    return Outcome(find_rate.find_rate(call, options.output, dry_run=options.dry_run))


MODE = Mode(find_rate, Options, "Try and verify", dry_run=find_rate, directory="", prints=True)
