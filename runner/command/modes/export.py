"""`--mode=export`."""

from runner.command.modes import groups
from runner.command.modes.mode import Mode
from runner.command.modes.option import option
from runner.core import layout
from runner.runs.call import Call, Outcome


class Options(groups.InDirectory):
    """The checkpoint to export. `ExportConfig` has the settings of the export."""

    section = "Options of export"
    checkpoint: str = option(
        "",
        "latest, best, a step, or the path of a checkpoint. Default: best, or else latest",
        "WHICH",
        examples=("latest", "best"),
    )


def export(call: Call, options: Options) -> Outcome:
    """Exports a checkpoint as servable models, and validates their scores before publishing."""
    from runner.runs import export

    return export.export(call, options.checkpoint)


def rehearse(call: Call, options: Options) -> Outcome:
    """Restores the checkpoint and evaluates one batch. Converts and publishes nothing."""
    from runner.runs import export

    return export.rehearse(call, options.checkpoint)


MODE = Mode(
    export,
    Options,
    "Evaluate and use",
    evaluates=True,
    dry_run=rehearse,
    takes_several=False,
    url=layout.EXPORT,
)
