"""`--mode=compare`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from runner.command.modes import groups
from runner.command.modes import option as options_of
from runner.command.modes.mode import Mode
from runner.command.modes.option import option
from runner.core import output_file
from runner.errors import ConfigError
from runner.runs.call import Call, Outcome


@dataclasses.dataclass(frozen=True)
class Options(groups.OfRuns):
    """The runs to compare, and a file for their differences."""

    section = "Options of compare"
    runs: Sequence[Path] = option(
        (),
        "the runs, which may also be given without a flag",
        "DIRECTORIES",
        parse=options_of.directories,
        without="directories without a flag",
    )
    output: Path | None = option(
        None,
        "a file for all differences, .json",
        "FILE",
        parse=output_file.named(".json"),
        without="a table on stdout",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.runs) < 2:
            raise ConfigError(
                "compare needs two runs or more: {runs} is missing or names only one; the command "
                "is runner --mode=compare runs/a runs/b",
                runs=None,
            )


def compare(_: Call, options: Options) -> Outcome:
    """Compares runs: `runner --mode=compare runs/a runs/b`. Exit code 5 if they differ."""
    from runner.inspection import compare

    return Outcome(compare.compare(options.runs, options.output))


MODE = Mode(compare, Options, "Look at runs", directory="", positional="runs", prints=True)
