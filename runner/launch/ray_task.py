"""What Ray does on a node: runs a command in a process of its own, which ends with the task.

No TensorFlow, and no Ray.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
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
    with _cancelled() as cancels:
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
        was_told = False
        while (code := process.poll()) is None:
            if cancels and not was_told:
                process.send_signal(signal.SIGTERM)
                was_told = True
            time.sleep(_POLL_SECONDS)
        return code


@contextlib.contextmanager
def _cancelled() -> Iterator[list[int]]:
    """What is no longer empty after a `ray.cancel`: as an exception, it might come anywhere."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


def missing(folders: Sequence[str]) -> list[str]:
    """Those of the folders that this node does not see."""
    return [each for each in folders if not Path(each).is_dir()]
