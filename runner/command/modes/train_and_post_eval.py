"""`--mode=train_and_post_eval`."""

import dataclasses

from runner.command.modes import groups
from runner.command.modes.mode import WRITES, Mode
from runner.runs.call import Call, Outcome

Options = groups.Training


def train_and_post_eval(call: Call, options: Options) -> Outcome:
    """Trains to the last step, then evaluates the newest checkpoint."""
    from runner.runs import evaluate, train, workers

    with workers.joined(call) as joined:
        training = dataclasses.replace(joined, mode="train")
        trained = train.train(training, options.resuming, evaluates=False).results
        evaluated = evaluate.evaluate(dataclasses.replace(joined, mode="eval"), "latest")
    return Outcome({**trained, "metrics": evaluated.results.get("metrics")}, evaluated.evaluator)


MODE = Mode(
    train_and_post_eval, Options, "Train", trains=True, evaluates=True, is_training=True, url=WRITES
)
