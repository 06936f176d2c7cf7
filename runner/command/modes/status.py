"""`--mode=status`."""

from runner.command.modes import groups
from runner.command.modes.mode import LOOKS, Mode
from runner.runs.call import Call, Outcome

Options = groups.Watching


def status(call: Call, options: Options) -> Outcome:
    """Shows the progress of a run, a study or a directory of runs, and a run's time breakdown."""
    from runner.inspection import status

    return Outcome(status.status(call.model_dir, options.watch))


MODE = Mode(status, Options, "Look at runs", url=LOOKS, prints=True)
