"""The command in a process of its own, forked from one that has imported all it needs.

A cold start imports for several seconds. What differs is only how the process comes to be: its
number, folder, streams, signals and exit code are its own.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    ["runner.runs.train", "runner.runs.evaluator_run", "tasks.image_classification"]
)


class Popen:
    """What the tests use of `subprocess.Popen`, for `python -m runner ...`.

    Streams are files with a name, or pipes; stdout's pipe is read as text.
    """

    def __init__(self, command, *, cwd=".", env=None, stdin=None, stdout=None, stderr=None):
        assert command[:3] == [sys.executable, "-m", "runner"]
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
        self.pid = self._process.pid
        ours = [ends[number][1] if number in ends else None for number in (0, 1)]
        self.stdin, self.stdout = (
            end and os.fdopen(os.dup(end.fileno()), mode)
            for end, mode in zip(ours, ("w", "r"), strict=True)
        )
        for end in filter(None, ours):
            end.close()

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("runner", timeout)
        return self._process.exitcode

    def communicate(self, timeout=None):
        """What it printed; there is too little of that to fill a pipe."""
        self.wait(timeout)
        return self.stdout.read(), None

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def _run(arguments, folder, environment, pipes, files):
    """In the process itself."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in files.items():
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), number)
    for number, pipe in pipes.items():
        os.dup2(pipe.fileno(), number)
    sys.argv = ["runner", *arguments]
    sys.path.insert(0, folder)

    from runner import main

    main.console()
