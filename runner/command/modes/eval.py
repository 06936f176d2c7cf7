"""`--mode=eval`."""

from runner.command.modes import groups
from runner.command.modes.mode import EVALUATES, Mode
from runner.command.modes.option import option
from runner.runs.call import Call, Outcome


class Options(groups.Workers):
    """The checkpoints to evaluate, and the data."""

    section = "Options of eval"
    checkpoint: str = option(
        "",
        "latest (the default), best, all, steps (1000,2000), a range (1000:5000), the mean of the "
        "weights at several steps (mean:1000,2000), or the path of a checkpoint or of a directory "
        "with checkpoints",
        "WHICH",
        examples=("latest", "best", "all"),
    )
    data: str = option(
        "",
        "test, to evaluate the best weights on the test data",
        "NAME",
        without="the validation data",
    )


def evaluate(call: Call, options: Options) -> Outcome:
    """Evaluates the checkpoints given by `--checkpoint`, by default the newest."""
    from runner.runs import evaluate

    return evaluate.evaluate(call, options.checkpoint, options.data)


MODE = Mode(evaluate, Options, "Evaluate and use", evaluates=True, url=EVALUATES)
