"""The command in a separate process, forked from one that has imported all it needs."""

import os
import subprocess
import tempfile

from runner.core import signals
from runner.studies import warm

warm.preload(["runner.runs.train", "runner.runs.evaluator_run", "tasks.image_classification"])
Fork = warm.Fork


class Popen(Fork):
    """A fork with the interface of `subprocess.Popen`, as far as the tests use it."""

    def __init__(self, command, *, cwd=None, env=None, stdin=None, stdout=None, stderr=None):
        env = os.environ if env is None else env
        self._has_group = signals.ENDS_WITH_STDIN in env
        if stdout == subprocess.PIPE:  # too little is printed to be read meanwhile
            stdout = tempfile.NamedTemporaryFile("r")  # noqa: SIM115, deleted with this
        self._start(
            command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=self._has_group,
        )
        self.stdout, self.send_signal = stdout, self.send

    def wait(self, timeout=None):
        return super().wait(timeout)

    def poll(self):
        return self.code

    @property
    def returncode(self):
        return self.code

    def communicate(self, timeout=None):
        self.wait(timeout)
        return self.stdout.read(), None
