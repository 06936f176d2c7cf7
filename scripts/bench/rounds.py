"""Runs processes that measure in turns: each waits while another one uses the machine.

A contender is a function in a module of this package:

    def contender(folder: Path, pause: Pause, **case: Any) -> None

It calls `pause(result)` at the end of each round. `pause` returns when the next round begins. The
first round builds and warms up, and `alternate` drops its result.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

_SETS = 3  # sets of processes, because two processes of the same program differ by 1 or 2 %

Pause = Callable[[Any], None]
"""Sends a round's result. Returns when the next round begins, or raises at the end of the case."""

Rounds = dict[str, list[Any]]
"""The result of each round, by contender."""


class Contender:
    """A process that measures.

    Args:
        module: A module of this package.
        name: A contender in it.
        **environment: Variables to set in addition to those of this process.
    """

    def __init__(self, module: str, name: str, **environment: str) -> None:
        self._name = name
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed by __exit__
        self._process = subprocess.Popen(
            [sys.executable, "-m", "scripts.bench.serve", module, name],
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
            self.kill()
        self._process.communicate()  # closes its stdin: it cleans up and exits
        self._log.close()

    def begin(self, **case: Any) -> None:
        """Starts building and warming up. `take` returns when that is done."""
        self._tell(json.dumps(case))

    def round(self) -> Any:
        """Runs its next round and returns the result."""
        self._tell("go")
        return self.take()

    def end(self) -> None:
        """Ends the case."""
        self._tell("end")

    def kill(self) -> None:
        """Ends the process at once."""
        self._process.kill()

    def take(self) -> Any:
        """Waits for the next answer of the process, and returns it."""
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


def once(
    module: str, name: str, *, environment: Mapping[str, str] | None = None, **case: Any
) -> Any:
    """Returns the first result of a contender in a new process."""
    with Contender(module, name, **(environment or {})) as contender:
        contender.begin(**case)
        return contender.take()


@contextlib.contextmanager
def contenders(module: str, *names: str) -> Iterator[dict[str, Contender]]:
    """Starts a process for each contender, by name. They end with the block."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(Contender(module, name)) for name in names}


def alternate(running: Mapping[str, Contender], repeats: int, **case: Any) -> Rounds:
    """Builds concurrently, then measures in turns, in reverse order in every second round."""
    for contender in running.values():
        contender.begin(**case)
    for contender in running.values():
        contender.take()
    results: Rounds = {name: [] for name in running}
    for number in range(repeats):
        for name in list(running)[:: -1 if number % 2 else 1]:
            results[name].append(running[name].round())
    for contender in running.values():
        contender.end()
    return results


def in_sets(module: str, names: Sequence[str], repeats: int, **case: Any) -> Rounds:
    """Runs the rounds of three sets of new processes."""
    results: Rounds = {name: [] for name in names}
    for _ in range(_SETS):
        with contenders(module, *names) as running:
            for name, more in alternate(running, repeats, **case).items():
                results[name] += more
    return results


def seconds(call: Callable[[], object]) -> float:
    """Returns the duration of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def transposed(results: Sequence[Mapping[str, Any]]) -> Rounds:
    """Turns a list of figures per round into a list of rounds per figure."""
    return {name: [result[name] for result in results] for name in results[0]}
