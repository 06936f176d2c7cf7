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
        "the file to write. Default: report.html, or crate.zip, in the run's directory",
        "FILE",
        parse=options_of.path,
        without="report.html in the run's directory",
    )
    format: str = option(
        "html",
        "the format: an HTML page (the default), or a Workflow Run RO-Crate, a .zip file with "
        "what others need to check and repeat the run or study",
        choices=("html", "ro-crate"),
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
        ends = (".zip",) if self.format == "ro-crate" else (".html", ".htm")
        if self.output and self.output.suffix not in ends:
            raise ConfigError(f"{{output}}: must end with {ends[0]}", output=str(self.output))
        if self.format == "ro-crate" and (self.runs or self.watch):
            raise ConfigError(
                "--format=ro-crate records the run or study in --model_dir, once: omit --runs and "
                "--watch"
            )


def report(call: Call, options: Options) -> Outcome:
    """Writes a self-contained HTML report about a run, several runs or a study."""
    if options.format == "ro-crate":
        from runner.inspection import crate

        return Outcome(crate.write(call.model_dir, options.output))
    from runner.inspection import report

    return Outcome(report.report(call.model_dir, options.runs, options.output, watch=options.watch))


MODE = Mode(report, Options, "Look at runs", url=LOOKS, url_needs="output")
