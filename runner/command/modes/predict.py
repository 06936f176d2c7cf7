"""`--mode=predict`."""

from pathlib import Path
from typing import Any

from runner.command.modes import groups
from runner.command.modes import option as options_of
from runner.command.modes.mode import Mode
from runner.command.modes.option import option
from runner.core import layout
from runner.runs.call import Call, Outcome


class Options(groups.InDirectory):
    """The checkpoint, the data and the file of the predictions."""

    section = "Options of predict"
    checkpoint: str = option(
        "",
        "latest (the default), best, a step, or the path of a checkpoint",
        "WHICH",
        examples=("latest", "best"),
    )
    data: str = option(
        "",
        "validation (the default), train, test, or the name of an evaluation set",
        "NAME",
        without="the validation data",
    )
    output: Path | None = option(
        None,
        "a .jsonl, .csv, .npz or .parquet file. Default: a .jsonl file in predictions/ of the "
        "run's directory",
        "FILE",
        parse=options_of.path,
        without="a file in the run's directory",
    )
    overwrite: bool = option(False, "replace the output file instead of continuing it")

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        if self.output and "://" not in str(self.output):
            from runner.evaluation.prediction import writers

            writers.of(self.output)


def predict(call: Call, options: Options) -> Outcome:
    """Writes a checkpoint's predictions for each example of a data set to a file."""
    from runner.runs import predict

    return predict.predict(
        call, options.checkpoint, options.data, options.output, overwrite=options.overwrite
    )


def rehearse(call: Call, options: Options) -> Outcome:
    """Predicts one batch, and writes nothing."""
    from runner.runs import predict

    return predict.rehearse(
        call, options.checkpoint, options.data, options.output, overwrite=options.overwrite
    )


MODE = Mode(
    predict,
    Options,
    "Evaluate and use",
    dry_run=rehearse,
    takes_several=False,
    url=layout.PREDICTIONS,
)
