"""Processes that measure in turns: each waits while another one uses the machine.

A script with contenders ends with `serve(CONTENDERS)`. A contender is a function

    def contender(folder: Path, pause: Pause, **case: Any) -> None

that calls `pause(result)` at the end of each round; `pause` returns when the next one begins. The
first round builds and warms up, and its result is dropped.
"""

import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

Pause = Callable[[Any], None]
"""Sends a round's result; returns when the next one begins, or raises `CaseOverError`."""

Measure = Callable[..., None]
"""A contender."""

Rounds = dict[str, list[Any]]
"""The result of each round, by contender."""


class CaseOverError(Exception):
    """Raised by `pause` after the last round."""


class Contender:
    """A process of `script` that measures what its contender `name` does.

    Args:
        script: A file beside this one.
        name: A key of its `CONTENDERS`.
        **environment: Variables to set in addition to those of this process.
    """

    def __init__(self, script: str, name: str, **environment: str) -> None:
        self._name = name
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed by __exit__
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name(script), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **environment},
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind:
            self._process.kill()
        self._process.communicate()  # closes its stdin: it removes its folder and exits
        self._log.close()

    def begin(self, **case: Any) -> None:
        """Starts building and warming up; `take` returns when that is done."""
        self._tell(json.dumps(case))

    def round(self) -> Any:
        """Runs its next round and returns the result."""
        self._tell("go")
        return self.take()

    def end(self) -> None:
        """Ends the case."""
        self._tell("end")

    def take(self) -> Any:
        """Waits for its next answer."""
        assert self._process.stdout
        answer = self._process.stdout.readline()
        if not answer:
            self._log.seek(0)
            sys.exit(f"{self._name} has exited:\n{self._log.read()}")
        return json.loads(answer)

    def _tell(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()


def alternate(contenders: Mapping[str, Contender], repeats: int, **case: Any) -> Rounds:
    """Builds concurrently, measures one after the other, in reverse order every second round."""
    for contender in contenders.values():
        contender.begin(**case)
    for contender in contenders.values():
        contender.take()
    found: Rounds = {name: [] for name in contenders}
    for number in range(repeats):
        for name in list(contenders)[:: -1 if number % 2 else 1]:
            found[name].append(contenders[name].round())
    for contender in contenders.values():
        contender.end()
    return found


def serve(contenders: Mapping[str, Measure]) -> None:
    """Runs the contender named on the command line, on requests from stdin."""
    answers = os.fdopen(os.dup(1), "w")  # kept apart from what contenders print
    os.dup2(2, 1)

    def pause(found: Any) -> None:
        print(json.dumps(found), file=answers, flush=True)
        if sys.stdin.readline().strip() != "go":
            raise CaseOverError

    contender = contenders[sys.argv[1]]
    while case := sys.stdin.readline():
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(CaseOverError):
            contender(Path(folder), pause, **json.loads(case))
        gc.collect()
