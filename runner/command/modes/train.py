"""`--mode=train`."""

from runner.command.modes import groups
from runner.command.modes.mode import WRITES, Mode
from runner.runs.call import Call, Outcome

Options = groups.Training


def train(call: Call, options: Options) -> Outcome:
    """Trains to the last step, resuming from the newest checkpoint if there is one."""
    from runner.runs import train

    return train.train(call, options.resuming, evaluates=False)


MODE = Mode(train, Options, "Train", trains=True, is_training=True, url=WRITES)
