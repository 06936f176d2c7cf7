"""`--mode=replay`."""

from pathlib import Path
from typing import Any

from runner.command.modes import groups
from runner.command.modes import option as options_of
from runner.command.modes.mode import Mode
from runner.command.modes.option import option
from runner.core import layout
from runner.errors import ConfigError
from runner.runs.call import Call, Outcome


class Options(groups.OfRuns):
    """The steps to train again, and the output directory."""

    section = "Options of replay"
    steps: tuple[int, int] | None = option(
        None,
        "the steps to train again. The last is computed but not applied, and its batch is saved",
        "FIRST:LAST",
        parse=options_of.steps,
    )
    output: Path | None = option(
        None,
        "the output directory. Default: a directory in replay/ of the run's directory",
        "DIRECTORY",
        parse=options_of.path,
        without="a directory in the run's",
    )
    overwrite: bool = option(False, "replace the contents of the output directory")

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        if self.steps is None:
            raise ConfigError(
                "{steps} is missing. Give the first and last step to train again, as in 1190:1201",
                steps=None,
            )
        options_of.check_steps("steps", self.steps)


def replay(call: Call, options: Options) -> Outcome:
    """Trains a few steps of a run again, and shows statistics of each layer and gradient."""
    from runner.runs import replay

    assert options.steps is not None
    results = replay.replay(call, options.steps, options.output, overwrite=options.overwrite)
    return Outcome(results)


MODE = Mode(replay, Options, "Try and verify", trains=True, url=layout.REPLAY)
