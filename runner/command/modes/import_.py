"""`--mode=import`."""

from pathlib import Path
from typing import Any

from runner.command.modes import groups
from runner.command.modes import option as options_of
from runner.command.modes.mode import Mode
from runner.command.modes.option import option
from runner.errors import ConfigError
from runner.runs.call import Call, Outcome


class Options(groups.Options):
    """The event files to import."""

    section = "Options of import"
    logs: Path | None = option(
        None,
        "the directory of TensorBoard's event files. The flag may be omitted: runner --mode=import "
        "logs --model_dir=runs/old",
        "DIRECTORY",
        parse=options_of.path,
        without="a directory without a flag",
    )

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        if self.logs is None:
            raise ConfigError(
                "import needs the directory of the event files, but {logs} is missing. Example: "
                "runner --mode=import logs --model_dir=runs/old",
                logs=None,
            )

    def check(self, model_dir: str) -> None:
        """Checks that there is a directory for the run."""
        super().check(model_dir)
        if not model_dir:
            raise ConfigError("import needs --model_dir, the directory of the new run")


def import_(call: Call, options: Options) -> Outcome:
    """Makes run directories of TensorBoard's event files, so that old runs can be compared."""
    from runner.inspection import importing

    assert options.logs
    return Outcome(importing.import_runs(options.logs, call.model_dir))


MODE = Mode(
    import_,
    Options,
    "Create",
    directory="for the run, or for several runs",
    positional="logs",
)
