"""Starts the processes that log a run, isolated from the one that trains.

They outlive it. When the run ends or is killed, they still send the remaining data.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from runner.core import console
from runner.core.child import Child, Tie

_FOLLOW = "runner.run_directory.loggers.follow"
_started: list[Child] = []


def start(names: Sequence[str], folder: Path) -> None:
    """Starts a process for each logger and does not wait for it.

    Args:
        names: The loggers'.
        folder: The run's, or the study's.
    """
    _started[:] = [process for process in _started if process.code is None]
    for name in names:
        command = [sys.executable, "-m", _FOLLOW, name, str(folder.absolute())]
        try:
            process = Child(command, tie=Tie.DETACHED)
        except OSError as error:
            console.say(f"logger {name} was not started; the run continues: {error}")
        else:
            _started.append(process)
