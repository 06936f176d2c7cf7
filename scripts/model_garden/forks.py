"""Runs functions in forks of a process that has imported all modules."""

import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 900  # limit for one run of one experiment

Run = Callable[[str, Path, Path], dict[str, Any]]
"""Runs the experiment with a name, with a file of overrides, in a directory."""


def forked(run: Run, name: str, file: Path, folder: Path) -> dict[str, Any]:
    """Returns the result of `run` in a separate process. It has the key `error` on failure."""
    result, log = folder.with_suffix(".json"), folder.with_suffix(".log")
    if result.exists():
        stored: dict[str, Any] = json.loads(result.read_text())
        return stored
    folder.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        _child(run, name, file, folder)
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() - start > SECONDS:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            result.write_text(json.dumps({"error": f"still running after {SECONDS} s"}))
            break
        time.sleep(0.2)
    if not result.exists():
        last = (log.read_text(errors="replace").strip().splitlines() or [""])[-1]
        result.write_text(json.dumps({"error": f"exit status {status}: {last}"}))
    results: dict[str, Any] = json.loads(result.read_text())
    results["seconds"] = round(time.monotonic() - start, 1)
    result.write_text(json.dumps(results))
    return results


def _child(run: Run, name: str, file: Path, folder: Path) -> None:
    """Runs in a fork and never returns."""
    result, log = folder.with_suffix(".json"), folder.with_suffix(".log")
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(target, 1)
    os.dup2(target, 2)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        result.write_text(json.dumps(run(name, file, folder)))
    except SystemExit:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line[:1] != "{"]
        said = [line for line in lines if line.startswith("runner: ")]
        result.write_text(json.dumps({"error": "\n".join(said[-1:] or lines[-1:])}))
    except BaseException as error:
        traceback.print_exc()
        result.write_text(json.dumps({"error": f"{type(error).__name__}: {error}"[:2000]}))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def alone(work: Callable[[], object]) -> None:
    """Calls `work` in a separate process, so that TensorFlow does not start in this one."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        work()
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(0)
