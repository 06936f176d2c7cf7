"""What Ray does on a node: runs a command in a process of its own, which ends with the task.

No TensorFlow, and no Ray.
"""

import contextlib
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from runner.core.child import Child

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
    with _cancelled() as cancels:
        child = Child(
            [sys.executable, *command.arguments],
            directory=Path(command.work_dir),
            environment=command.environment,
            log=Path(command.output),
            answer=Path(command.answer) if command.answer else None,
        )
        if child.wait_until(lambda: cancels, poll_seconds=_POLL_SECONDS):
            child.send(signal.SIGTERM)
        return child.wait() or 0


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
