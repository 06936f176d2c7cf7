"""The command in a process of its own, forked from one that has imported all it needs.

A cold start imports for several seconds. What differs is only how the process comes to be: its
number, folder, streams, signals and exit code are its own. No TensorFlow but in those processes.
"""

import json
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import IO, Any

from runner.core import signals

ARGUMENTS = "RUNNER_STUDY_ARGUMENTS"
"""Set in the environment of that process: the arguments of `config.load`, as JSON."""

NOT_WARM = 75
"""The exit code of a process that could not be forked from one that has used TensorFlow."""

_forks: Any = multiprocessing.get_context("forkserver")


def preload(modules: Sequence[str]) -> None:
    """Names the modules that are imported before any process is forked; call it before the first.

    The process that imports them has the environment of the time of the first fork.
    """
    _forks.set_forkserver_preload(list(modules))


def begin(flags: Mapping[str, Any]) -> None:
    """Starts the process from which trials are forked: it imports what a command's flags need."""
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


class Popen:
    """What is needed of `subprocess.Popen`, for `python -m runner ...`.

    Streams are files with a name, or pipes; stdout's pipe is read as text.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str | Path = ".",
        env: Mapping[str, str] | None = None,
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
    ) -> None:
        assert list(command[:3]) == [sys.executable, "-m", "runner"]
        ends, files = {}, {}
        for number, stream in enumerate((stdin, stdout, stderr)):
            if stream == subprocess.PIPE:
                reading, writing = _forks.Pipe(duplex=False)
                ends[number] = (reading, writing) if number == 0 else (writing, reading)
            elif stream is not None:
                files[number] = str(Path(stream.name).absolute())
        its = {number: end for number, (end, _) in ends.items()}
        where = str(Path(cwd).absolute())
        arguments = (command[3:], where, dict(env or os.environ), its, files)
        self._process = _forks.Process(target=_run, args=arguments)
        self._process.start()
        for end in its.values():
            end.close()
        self.pid: int = self._process.pid
        ours = [ends[number][1] if number in ends else None for number in (0, 1)]
        self.stdin: IO[str] | None
        self.stdout: IO[str] | None
        self.stdin, self.stdout = (
            end and os.fdopen(os.dup(end.fileno()), mode)
            for end, mode in zip(ours, ("w", "r"), strict=True)
        )
        for end in filter(None, ours):
            end.close()

    @property
    def returncode(self) -> int | None:
        """The exit code, negative after a signal; None while it runs."""
        code: int | None = self._process.exitcode
        return code

    def poll(self) -> int | None:
        """The same."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end.

        Raises:
            subprocess.TimeoutExpired: it has not ended after `timeout` seconds.
        """
        self._process.join(timeout)
        if (code := self.returncode) is None:
            raise subprocess.TimeoutExpired("runner", timeout or 0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """What it printed; there is too little of that to fill a pipe."""
        self.wait(timeout)
        return self.stdout.read() if self.stdout else "", None

    def send_signal(self, number: int) -> None:
        """Sends a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)


def _run(
    arguments: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    pipes: Mapping[int, Any],
    files: Mapping[int, str],
) -> None:
    """In the process itself."""
    if _is_used():
        os._exit(NOT_WARM)
    if signals.ENDS_WITH_STDIN in environment:
        os.setsid()  # a signal from the terminal is the parent's to hand on
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in files.items():
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
    for number, pipe in pipes.items():
        os.dup2(pipe.fileno(), number)
    sys.argv = ["runner", *arguments]
    sys.path.insert(0, folder)
    runpy.run_module("runner", run_name="__main__", alter_sys=True)


def _is_used() -> bool:
    """Whether TensorFlow has run something before the fork, after which nothing works in a fork."""
    if "tensorflow" not in sys.modules:
        return False
    from runner.internals import tensorflow

    return tensorflow.is_initialized()
