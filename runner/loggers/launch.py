"""Starts the processes that log a run; nothing they do reaches the one that trains."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.core import console

_FOLLOW = "runner.loggers.follow"
_started: list[subprocess.Popen[bytes]] = []


def start(names: Sequence[str], folder: Path) -> None:
    """Starts a process for each logger and does not wait for it.

    Args:
        names: The loggers'.
        folder: The run's, or the study's.
    """
    _started[:] = [each for each in _started if each.poll() is None]
    for name in names:
        command = [sys.executable, "-m", _FOLLOW, name, str(folder.absolute())]
        try:
            made = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a signal from the terminal is not for it
            )
        except OSError as error:
            console.say(f"logger {name} was not started, and the run goes on: {error}")
        else:
            _started.append(made)
