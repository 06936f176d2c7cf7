"""`--mode=continuous_eval`."""

from runner.command.modes import groups
from runner.command.modes.mode import FOLLOWS, Mode
from runner.runs.call import Call, Outcome

Options = groups.InDirectory


def continuous_eval(call: Call, _: Options) -> Outcome:
    """Evaluates each new checkpoint of a training run in progress, until the run ends."""
    from runner.runs import evaluate

    return evaluate.continuous_eval(call)


MODE = Mode(continuous_eval, Options, "Evaluate and use", evaluates=True, url=FOLLOWS)
