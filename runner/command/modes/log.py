"""`--mode=log`."""

import dataclasses

from runner.command.modes import groups
from runner.command.modes.mode import Mode
from runner.command.modes.option import option
from runner.core import layout, plugins
from runner.runs.call import Call, Outcome

_NAMES = plugins.names("runner.run_directory.loggers", "to_")


@dataclasses.dataclass(frozen=True)
class Options(groups.OfRuns):
    """The loggers."""

    section = "Options of log"
    to: str = option(
        "",
        f"{', '.join(_NAMES)}, separated by commas; what they have already is not logged again",
        "LOGGERS",
        examples=_NAMES,
    )
    dry_run: bool = option(False, "only count the rows that are missing")

    def __post_init__(self) -> None:
        super().__post_init__()
        from runner.run_directory.loggers import log

        log.names(self.to)


def log(call: Call, options: Options) -> Outcome:
    """Logs what a run or a study has to MLflow, W&B or CSV, as far as it is not there yet."""
    from runner.run_directory.loggers import log

    to = log.names(options.to)
    return Outcome(log.log(call.model_dir, to, dry_run=options.dry_run))


MODE = Mode(log, Options, "Look at runs", dry_run=log, url=layout.LOGGERS)
