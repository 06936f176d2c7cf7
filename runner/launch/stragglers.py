"""Detects workers that slow down the others. No TensorFlow.

All workers take a step together, so their step times are equal and the slowest one sets the speed.
The time that each worker spends by itself differs: its CPU time, and its time waiting for inputs.
"""

import contextlib
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.core import files
from runner.errors import RunnerError
from runner.run_directory import watch

_TIMES = 1.5  # the others' median
_SHARE = 0.2  # of a step's time, as the minimum difference
_IN_A_ROW = 3
_KINDS = {"waiting": "waits for inputs", "working": "computes"}


class Stragglers:
    """Reads the heartbeats of the workers of a generation.

    Args:
        folder: The run's `workers/`.
        hosts: The workers' addresses.
    """

    def __init__(self, folder: Path, hosts: Sequence[str]) -> None:
        self._hosts = hosts
        self._paths = [folder / f"{index}.json" for index in range(len(hosts))]
        self._glances = [watch.Glance(path) for path in self._paths]
        self._newest: list[Mapping[str, Any]] = [{} for _ in hosts]
        self._slow = [0] * len(hosts)
        self.found: list[str] = []

    def look(self) -> bool:
        """Updates `found`, and returns whether it names other workers. Call it periodically."""
        changed = [index for index, each in enumerate(self._glances) if each.changed()]
        for index in changed:
            with contextlib.suppress(OSError, RunnerError):
                self._newest[index] = files.read_json(self._paths[index]) or {}
        before, found = self.found, []
        for index in range(len(self._hosts)):
            complaint = self._complaint(index)
            if index in changed:
                self._slow[index] = self._slow[index] + 1 if complaint else 0
            if complaint and self._slow[index] >= _IN_A_ROW:
                found.append(complaint)
        is_new = [line.split(":")[0] for line in found] != [line.split(":")[0] for line in before]
        if is_new:
            self.found = found
        return is_new

    def _complaint(self, index: int) -> str:
        own = self._newest[index]
        for kind, does in _KINDS.items():
            others = [
                each[kind]
                for other, each in enumerate(self._newest)
                if other != index and kind in each
            ]
            if kind not in own or not others:
                continue
            usual = statistics.median(others)
            if own[kind] > _TIMES * usual and own[kind] - usual > _SHARE * own["seconds"]:
                return (
                    f"worker {index} on {self._hosts[index].replace(':', ' port ')} is slow: it "
                    f"{does} for {own[kind]:.3g} s per step, the others for {usual:.3g} s"
                )
        return ""
