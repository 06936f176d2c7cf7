"""`--mode=report`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.command.modes import groups
from runner.command.modes import option as options_of
from runner.command.modes.mode import LOOKS, Mode
from runner.command.modes.option import option
from runner.errors import ConfigError
from runner.runs.call import Call, Outcome


class Options(groups.Watching):
    """The runs of the report, and its file."""

    section = "Options of report"
    output: Path | None = option(
        None,
        "the .html file to write. Default: report.html in the run's directory",
        "FILE",
        parse=options_of.path,
        without="report.html in the run's directory",
    )
    runs: Sequence[Path] = option(
        (),
        "comma-separated run directories to show on one page, which is written to --model_dir",
        "DIRECTORIES",
        parse=options_of.directories,
        without="what is in --model_dir",
    )

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        if self.output and self.output.suffix not in (".html", ".htm"):
            raise ConfigError("{output}: must end with .html", output=str(self.output))


def report(call: Call, options: Options) -> Outcome:
    """Writes a self-contained HTML report about a run, several runs or a study."""
    from runner.inspection import report

    return Outcome(report.report(call.model_dir, options.runs, options.output, watch=options.watch))


MODE = Mode(report, Options, "Look at runs", url=LOOKS, url_needs="output")
