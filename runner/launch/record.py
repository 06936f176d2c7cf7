"""Writes `workers/supervisor.json`: the members and the restarts of a run. No TensorFlow."""

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.core import files, layout
from runner.launch.membership import Generation, Verdict
from runner.run_directory import supervised

_KEPT = 100


class Record:
    """Writes the record, in the supervisor that has the chief or is the first to see an end.

    Args:
        folder: The run's directory.
        least: The smallest number of workers.
        most: The largest.
    """

    def __init__(self, folder: Path, least: int, most: int) -> None:
        self._folder = folder
        self._said: dict[str, Any] = {"state": "", "generation": 0, "hosts": []}
        self._said |= {"least": least, "most": most, "slow": []}

    def state(
        self, state: str, generation: Generation | None = None, slow: Sequence[str] = ()
    ) -> None:
        """Records the state of the workers."""
        self._said |= {"state": state, "slow": list(slow)}
        if generation:
            self._said |= {"generation": generation.number, "hosts": generation.hosts}
        self._write(self._restarts())

    def ended(self, generation: Generation, verdict: Verdict) -> None:
        """Records how a generation has ended."""
        names = {"restart": "restarting", "regroup": "regrouping", "leave": "ended"}
        self._said |= {"state": names[verdict.then], "generation": generation.number}
        self._said["hosts"] = generation.hosts  # also if another machine has the chief
        facts = dataclasses.asdict(verdict)
        row = {"time": time.time(), "generation": generation.number}
        row |= {"workers": len(generation.hosts)}
        row |= {name: facts[name] for name in ("worker", "code", "reason")}
        failed = verdict.then != "leave" or verdict.code not in (0, 130, 143)
        self._write([*self._restarts(), *([row] if failed else [])][-_KEPT:])

    def _restarts(self) -> list[Any]:
        return list((supervised.read(self._folder) or {}).get("restarts", []))

    def _write(self, restarts: list[Any]) -> None:
        path = self._folder / layout.WORKERS / layout.SUPERVISOR
        with contextlib.suppress(OSError):  # only informative
            files.write_json(path, {**self._said, "restarts": restarts})
