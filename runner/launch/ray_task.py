"""Runs a command on a Ray node, in a separate process that ends with the task.

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
    """A command and its environment.

    Attributes:
        arguments: The arguments of the Python interpreter.
        work_dir: The working directory of the command.
        environment: The variables to add to the node's environment.
        output: The file for its output.
        answer: The file for its stdout, or empty to use `output`.
    """

    arguments: Sequence[str]
    work_dir: str
    environment: Mapping[str, str]
    output: str
    answer: str = ""


def run(command: Command) -> int:
    """Runs the command and returns its exit code.

    The first `ray.cancel` becomes a SIGTERM, after which the command saves a checkpoint and ends.
    """
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
    """Yields a list that fills on `ray.cancel`, instead of an exception at an arbitrary point."""
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


def missing(folders: Sequence[str]) -> list[str]:
    """Returns the directories that this node cannot access."""
    return [each for each in folders if not Path(each).is_dir()]
