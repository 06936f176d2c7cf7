"""Runs the command in a process forked from one that has already imported its modules.

A cold start spends several seconds on imports. The forked process behaves like a fresh one: it has
its own process id, directory, streams, signals and exit code. Only the processes to fork from load
TensorFlow.
"""

import json
import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from runner.core import child

ARGUMENTS = "RUNNER_STUDY_ARGUMENTS"
"""Set in the environment of the process to fork from: the arguments of `config.load`, as JSON."""

NOT_WARM = 75
"""The exit code of a process that could not be forked, because TensorFlow had been used before."""

_PIPES = {0: "stdin", 1: "stdout"}

_forks: Any = multiprocessing.get_context("forkserver")


def preload(modules: Sequence[str]) -> None:
    """Sets the modules to import before any process is forked. Call it before the first fork.

    The process that imports them keeps the environment of the time of the first fork.
    """
    _forks.set_forkserver_preload(list(modules))


def begin(flags: Mapping[str, Any]) -> None:
    """Starts the process from which trials are forked. It imports the modules the flags need."""
    given = {
        "gin_files": flags.get("gin_file", []),
        "gin_params": flags.get("gin_params", []),
        "experiment": flags.get("experiment"),
        "config_files": flags.get("config_file", []),
        "overrides": flags.get("params_override", []),
    }
    preload(["runner.studies.preloaded"])
    os.environ[ARGUMENTS] = json.dumps(given)
    try:
        forkserver.ensure_running()
    finally:
        del os.environ[ARGUMENTS]


class Fork(child.Child):
    """`python -m runner ...`, or another module, forked instead of started."""

    _execs = False  # if a fork would hang: starts a new process, instead of ending with NOT_WARM

    def _start(self, command: Sequence[str], **options: Any) -> None:
        assert list(command[:2]) == [sys.executable, "-m"]
        pipes = {number: name for number, name in _PIPES.items() if options[name] == child.PIPE}
        ends = {number: _forks.Pipe(duplex=False)[:: 1 if number else -1] for number in pipes}
        files = {
            number: str(Path(options[name].name).absolute())
            for number, name in {1: "stdout", 2: "stderr"}.items()
            if options[name] and number not in pipes
        }
        arguments = (
            command[2:],
            str(Path(options["cwd"] or ".").absolute()),
            dict(options["env"]),
            {number: theirs for number, (_, theirs) in ends.items()},
            files,
            options["start_new_session"],
            self._execs,
        )
        self._process = _forks.Process(target=_run, args=arguments)
        self._process.start()
        for number, (ours, theirs) in ends.items():
            pipe = os.fdopen(os.dup(ours.fileno()), "rb" if number else "wb")
            setattr(self, pipes[number], pipe)
            ours.close()
            theirs.close()

    @property
    def code(self) -> int | None:
        """The exit code, negative after a signal, or None while it runs."""
        code: int | None = self._process.exitcode
        return code

    def wait(self, seconds: float | None = None) -> int | None:
        """Waits for the end, at most this long. Returns the exit code, or None if it still runs."""
        self._process.join(seconds)
        return self.code


def _run(
    command: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    pipes: Mapping[int, Any],
    files: Mapping[int, str],
    has_session: bool,
    execs: bool,
) -> None:
    """Runs in the forked process."""
    if _is_used() and not execs:
        os._exit(NOT_WARM)
    if has_session:
        os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in files.items():
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
    for number, pipe in pipes.items():
        os.dup2(pipe.fileno(), number)
    if _is_used():
        os.execv(sys.executable, [sys.executable, "-m", *command])
    sys.argv = [*command]
    sys.path.insert(0, folder)
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)


def _is_used() -> bool:
    """Returns whether TensorFlow was used before the fork, which makes it unusable in the fork."""
    if "tensorflow" not in sys.modules:
        return False
    from runner.internals import tensorflow

    return tensorflow.is_initialized()
