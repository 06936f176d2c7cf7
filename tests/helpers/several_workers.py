"""One run on several workers of this machine, each a warm process."""

import json
import subprocess
import sys
import time

from warm import Popen

from runner.launch import ports

MULTI = "multi_worker_mirrored"
DIGITS = ("--gin_file=digits.gin", f"--gin.RuntimeConfig.distribution_strategy={MULTI!r}")


def addresses(count):
    """`localhost:port` of each, which no connection takes meanwhile."""
    return [f"localhost:{port}" for port in ports.free(count)]


class Workers:
    """The same command `count` times; `processes[0]` is the chief.

    `each` has more flags for some of them, `where` their working directories, `hosts` the addresses
    of all. `only` is the number of the one that is started, if the others are not.
    """

    def __init__(
        self,
        log,
        mode,
        folder,
        *flags,
        count=2,
        each=None,
        digits=True,
        where=None,
        hosts=None,
        only=None,
    ):
        hosts = ",".join(hosts or addresses(count))
        log.mkdir(exist_ok=True)
        self._logs = [log / f"{folder.name}-{index}.err" for index in range(count)]
        self.processes = []
        for index, path in enumerate(self._logs):
            if only not in (None, index):
                continue
            command = [sys.executable, "-m", "runner", f"--mode={mode}", *flags]
            command += DIGITS if digits else ()
            command.append("--gin.RunConfig.system_seconds=0")
            command += [f"--model_dir={folder}", f"--worker_hosts={hosts}", f"--task_index={index}"]
            with path.open("a") as errors:
                process = Popen(
                    [*command, *((each or {}).get(index, ()))],
                    cwd=(where or {}).get(index, "."),
                    stdout=subprocess.PIPE,
                    stderr=errors,
                )
            self.processes.append(process)

    def wait_until(self, done, seconds=600):
        """Waits for something that happens while all of them run."""
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end
            assert all(each.poll() is None for each in self.processes), self.said()
            time.sleep(0.02)

    def wait(self, timeout=600):
        """The exit code of each."""
        return [process.wait(timeout) for process in self.processes]

    def results(self):
        """The JSON that each printed."""
        return [json.loads(each.stdout.read().splitlines()[-1]) for each in self.processes]

    def said(self, index=0):
        """What a worker printed to stderr."""
        return self._logs[index].read_text()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
