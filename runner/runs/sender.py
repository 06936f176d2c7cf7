"""Sends one message in a separate process: `python -m runner.runs.sender SECONDS`.

The message and its target are read from stdin as JSON. Standard library only.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def main() -> None:
    """Sends the message from stdin. Logs a failure or a timeout."""
    seconds, job = float(sys.argv[1]), json.load(sys.stdin)

    def too_long(*_: object) -> None:
        _note(job, f"no answer within {seconds:g} s")
        os.killpg(0, signal.SIGKILL)  # also kills a command's children

    signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        _send(job["target"], job["message"])
    except Exception as error:
        _note(job, str(error))


def _send(target: str, message: Mapping[str, Any]) -> None:
    whole = json.dumps(message).encode()
    if target.startswith(("https://", "http://")):
        request = urllib.request.Request(target, whole, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request):
            return
    values = {"RUNNER_EVENT": message["event"], "RUNNER_TEXT": message["text"]}
    options: dict[str, Any] = {"input": whole, "env": {**os.environ, **values}}
    done = subprocess.run(target, shell=True, capture_output=True, **options)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise RuntimeError(f"exit code {done.returncode}" + (f": {said}" if said else ""))


def _note(job: Mapping[str, Any], why: str) -> None:
    if job["log"]:
        with Path(job["log"]).open("a", encoding="utf-8") as file:
            when = time.strftime("%Y-%m-%d %H:%M:%S")
            file.write(f"{when} not sent: {why}: {job['message']['text']}\n")


if __name__ == "__main__":
    main()
