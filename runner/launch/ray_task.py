"""What Ray does on a node: runs a command in a process of its own, which ends with the task.

No TensorFlow, and no Ray.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from runner.core import signals

_POLL_SECONDS = 0.1


class Command(NamedTuple):
    """What is run, and where.

    Attributes:
        arguments: Those of Python.
        work_dir: The folder in which the command was given.
        environment: What is added to the node's.
        output: The file for what it prints.
        answer: The file for its stdout; empty: the same.
    """

    arguments: Sequence[str]
    work_dir: str
    environment: Mapping[str, str]
    output: str
    answer: str = ""


def run(command: Command) -> int:
    """The command's exit code. The first `ray.cancel` becomes a SIGTERM: it saves and ends."""
    environment = {**os.environ, **command.environment, signals.ENDS_WITH_STDIN: "1"}
    files = Path(command.output), Path(command.answer or os.devnull)
    with files[0].open("ab") as output, files[1].open("wb") as answer:
        process = subprocess.Popen(
            [sys.executable, *command.arguments],
            cwd=command.work_dir,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=answer if command.answer else output,
            stderr=output,
            start_new_session=True,
        )
    cancelled = False
    while True:
        try:
            if (code := process.poll()) is not None:
                return code
            time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:
            if not cancelled:
                process.send_signal(signal.SIGTERM)
            cancelled = True


def missing(folders: Sequence[str]) -> list[str]:
    """Those of the folders that this node does not see."""
    return [each for each in folders if not Path(each).is_dir()]
