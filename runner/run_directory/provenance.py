"""`run.json`: when, with which command, code and packages a run was started. No TensorFlow."""

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner.core import console, files, installation, layout, secrets, user_code
from runner.errors import RunnerError
from runner.storage import display_names

_PACKAGES = (
    installation.DISTRIBUTION,
    "tensorflow",
    "tf-keras",
    "tf-models-official",
    "gin-config",
    "numpy",
    "keras",
    "tensorflow-text",
    "tensorflow-datasets",
)
_LONGEST_DIFF = 1_000_000  # characters
_ROOT = Path(__file__).parents[2]
_OURS = ("runner", "tasks")  # packages

LOST = "ended without recording how: killed, out of memory, or its directory was moved"
"""The reason for an attempt that could not record how it ended."""


class Command(NamedTuple):
    """The command that was started.

    Attributes:
        mode: The command's mode.
        arguments: The process's arguments, starting with the program's name.
        flags: The values of the flags.
        secrets: Strings that are masked wherever they appear in the record.
        launched: When the process was started, in seconds since the epoch, or None if unknown.
    """

    mode: str
    arguments: Sequence[str]
    flags: Mapping[str, Any]
    secrets: Sequence[str] = ()
    launched: float | None = None


class RunRecord:
    """The record of one run: one row per attempt, stored in `run.json` without secrets.

    Args:
        model_dir: The run's directory.
        command: The command that was started.
        lost: Facts about the previous attempt, including `pid`. They are used if it was killed.
        task: The module of the task, which is loaded.

    Attributes:
        was_lost: Whether the previous attempt ended without recording how.
    """

    def __init__(
        self,
        model_dir: Path,
        command: Command,
        lost: Mapping[str, Any] | None = None,
        *,
        task: str | None = None,
    ) -> None:
        self._path = model_dir / layout.RUN
        self._secrets = command.secrets
        self._starts = _starts(self._path)
        for start in self._starts:
            start.pop("reads", None)  # long, and nearly equal each time
            if start.get("ended") is None:  # this process holds the directory now
                start["state"] = "lost"
                start.setdefault("reason", LOST)
        before = self._starts[-1] if self._starts else {"state": None}
        self.was_lost = before["state"] == "lost"
        if lost and before["state"] == "lost" and before.get("pid") == lost.get("pid"):
            before.update(lost)
        self._start: dict[str, Any] = {
            "mode": command.mode,
            "command": secrets.masked_all(command.arguments, self._secrets),
            "flags": secrets.masked_all(command.flags, self._secrets),
            "folder": str(Path.cwd()),
            "launched": command.launched,
            "job": os.environ.get("SLURM_JOB_ID"),
            "started": time.time(),
            "ended": None,
            "state": "running",
            "step": None,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "machine": machine(),
            "versions": versions(),
            "code": {
                **(code(Path.cwd(), self._secrets) or {}),
                "runner": _runner(),
                "task": _of_module(task),
            },
        }
        self._starts.append(self._start)
        self._write()

    def note(self, **facts: Any) -> None:
        """Adds facts that become known later, such as the devices."""
        self._start.update(secrets.masked_all(facts, self._secrets))
        self._write()

    def end(self, state: str, step: int | None = None, **facts: Any) -> None:
        """Records how and at which step this attempt ended."""
        step = self._start["step"] if step is None else step
        self.note(ended=time.time(), state=state, step=step, **facts)

    def _write(self) -> None:
        files.write_json(self._path, {"starts": self._starts})


def _starts(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of earlier attempts.

    A damaged record is moved aside, as no resume needs it.
    """
    try:
        before = files.read_json(path)
        return [dict(start) for start in before["starts"]] if before is not None else []
    except (KeyError, RunnerError, TypeError, ValueError):
        aside = path.parent / layout.DAMAGED / path.name
        files.make_folder(aside.parent)
        path.replace(aside)
        name, kept = display_names.of(path), display_names.of(aside)
        console.say(f"{name} was damaged and is rewritten; the old file is in {kept}")
        return []


@functools.cache
def versions() -> Mapping[str, str]:
    """Returns the versions of the installed packages that a result depends on."""
    found = {}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def sources() -> dict[str, str]:
    """Returns a digest of each Python source file that a result depends on, by module name.

    These are all modules of the runner and of its bundled tasks, and the user's imported modules.
    """
    paths = {
        ".".join(path.relative_to(_ROOT).with_suffix("").parts): path
        for package in _OURS
        for path in (_ROOT / package).rglob("*.py")
    }
    imported = {name: Path(file) for name, file in user_code.modules().items()}
    digests = {}
    for name, path in {**paths, **imported}.items():
        if path.suffix == ".py":
            with contextlib.suppress(OSError):  # in a zip file, or removed since
                digests[name] = _digest(path, path.stat().st_mtime_ns)
    return digests


@functools.cache
def _digest(path: Path, _: int) -> str:
    """The digest of a file, which is read once for each time of its last change."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def commit(folder: Path) -> str:
    """Returns the commit of the git repository around `folder`, or "" without repository or git."""
    return (_git(folder, "rev-parse", "HEAD") or "").strip()


def machine() -> dict[str, Any]:
    """Describes this machine's hardware: its processor, cores and memory in bytes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": _after("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": cores,
        "memory": 1024 * int((_after("/proc/meminfo", "MemTotal") or "0").split()[0]),
    }


def _after(path: str, name: str) -> str:
    """Returns the value of `name` in a file of the kernel, or an empty string."""
    with contextlib.suppress(OSError):
        for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(name):
                return line.partition(":")[2].strip()
    return ""


@functools.cache
def _runner() -> Mapping[str, Any]:
    """The runner's version, and what `_tracked` finds out about its loaded code."""
    return {"version": versions().get(_PACKAGES[0]), **_tracked(Path(__file__))}


def _of_module(name: str | None) -> dict[str, Any]:
    """Returns a module's name, file and the file's digest, plus the result of `_tracked`."""
    path = getattr(sys.modules.get(name or ""), "__file__", None)
    if not path:
        return {"module": name}
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return {"module": name, "file": path, "sha256": digest, **_tracked(Path(path))}


def _tracked(file: Path) -> dict[str, Any]:
    """Returns a file's commit and whether its directory has changed, empty if not in git."""
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return {}
    return {
        "commit": commit(file.parent),
        "changed": bool(_git(file.parent, "diff", "HEAD", "--stat", ".")),
    }


def code(folder: Path, known: Sequence[str] = ()) -> dict[str, Any] | None:
    """Returns the commit of the git repository around `folder`, and the differences from it.

    Args:
        folder: A directory within the repository.
        known: Secrets to mask.

    Returns:
        `commit`, `branch`, `diff` against the commit (cut off after a million characters) and
        `untracked` files. None if there is no repository or no git.
    """
    if not (head := commit(folder)):
        return None
    diff = _git(folder, "diff", "HEAD", "--no-color", "--no-ext-diff") or ""
    diff = secrets.masked(diff, known)
    if len(diff) > _LONGEST_DIFF:
        diff = diff[:_LONGEST_DIFF] + f"\n[{len(diff) - _LONGEST_DIFF} more characters]\n"
    untracked = _git(folder, "ls-files", "--others", "--exclude-standard") or ""
    return {
        "commit": head,
        "branch": (_git(folder, "rev-parse", "--abbrev-ref", "HEAD") or "").strip(),
        "diff": diff,
        "untracked": untracked.splitlines(),
    }


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
