"""`--mode=log`."""

from typing import Any

from runner.command.modes import groups
from runner.command.modes.mode import Mode
from runner.command.modes.option import option
from runner.core import layout, plugins
from runner.runs.call import Call, Outcome

_NAMES = plugins.names("runner.run_directory.loggers", "to_")


class Options(groups.OfRuns):
    """The loggers to export to."""

    section = "Options of log"
    to: str = option(
        "",
        f"comma-separated list of {', '.join(_NAMES)}. Rows that were logged before are skipped",
        "LOGGERS",
        examples=_NAMES,
    )
    dry_run: bool = option(False, "count the missing rows without logging them")

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        from runner.run_directory.loggers import log

        log.names(self.to)


def log(call: Call, options: Options) -> Outcome:
    """Exports the metrics of a run or a study to MLflow, W&B or CSV, skipping logged rows."""
    from runner.run_directory.loggers import log

    to = log.names(options.to)
    return Outcome(log.log(call.model_dir, to, dry_run=options.dry_run))


MODE = Mode(log, Options, "Look at runs", dry_run=log, url=layout.LOGGERS)
