"""`--mode=train_and_eval`."""

from runner.command.modes import groups
from runner.command.modes.mode import WRITES, Mode
from runner.runs.call import Call, Outcome

Options = groups.Training


def train_and_eval(call: Call, options: Options) -> Outcome:
    """Trains to the last step, and evaluates during training and at the end."""
    from runner.runs import train

    return train.train(call, options.resuming, evaluates=True)


MODE = Mode(
    train_and_eval, Options, "Train", trains=True, evaluates=True, is_training=True, url=WRITES
)
