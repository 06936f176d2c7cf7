"""`--mode=compare`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.command.modes import groups
from runner.command.modes import option as options_of
from runner.command.modes.mode import Mode
from runner.command.modes.option import option
from runner.core import output_file
from runner.errors import ConfigError
from runner.runs.call import Call, Outcome


class Options(groups.OfRuns):
    """The runs to compare, and the file for the differences."""

    section = "Options of compare"
    runs: Sequence[Path] = option(
        (),
        "the runs to compare. The flag may be omitted: runner --mode=compare runs/a runs/b",
        "DIRECTORIES",
        parse=options_of.directories,
        without="directories without a flag",
    )
    output: Path | None = option(
        None,
        "a .json file for all differences",
        "FILE",
        parse=output_file.named(".json"),
        without="a table on stdout",
    )

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        if len(self.runs) < 2:
            raise ConfigError(
                "compare needs at least two runs, but {runs} is missing or has only one. Example: "
                "runner --mode=compare runs/a runs/b",
                runs=None,
            )


def compare(_: Call, options: Options) -> Outcome:
    """Compares runs, as in `runner --mode=compare runs/a runs/b`. Exits with 5 if they differ."""
    from runner.inspection import compare

    return Outcome(compare.compare(options.runs, options.output))


MODE = Mode(compare, Options, "Look at runs", directory="", positional="runs", prints=True)
