"""`--mode=eval`."""

import dataclasses

from runner.command.modes import groups
from runner.command.modes.mode import EVALUATES, Mode
from runner.command.modes.option import option
from runner.runs.call import Call, Outcome


@dataclasses.dataclass(frozen=True)
class Options(groups.Workers):
    """The checkpoints to evaluate, and the data."""

    section = "Options of eval"
    checkpoint: str = option(
        "",
        "latest (the default), best, all, steps and ranges as in 1000,2000 and 1000:5000, the mean "
        "of their weights as in mean:1000,2000, or the path of a checkpoint or a directory, also "
        "of another run",
        "WHICH",
        examples=("latest", "best", "all"),
    )
    data: str = option(
        "", "test, which tests the best weights", "NAME", without="the validation data"
    )


def evaluate(call: Call, options: Options) -> Outcome:
    """Evaluates the checkpoints that --checkpoint names."""
    from runner.runs import evaluate

    return evaluate.evaluate(call, options.checkpoint, options.data)


MODE = Mode(evaluate, Options, "Evaluate and use", evaluates=True, url=EVALUATES)
