"""Hands off checkpoints, before training removes them, to evaluators that evaluate every one.

Such an evaluator registers in its directory, `eval-<name>/evaluator.json`. Before training removes
a checkpoint, it links it into the `queue/` of each live evaluator. Every checkpoint since the
registration is therefore in the run's directory or in the queue until it has been evaluated. It may
be in both, and may enter the queue after it was evaluated. The evaluator's own history is the
record of completed evaluations.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from runner.checkpoints import checkpoint_files, recovery
from runner.core import console, files, heartbeat, layout
from runner.errors import ConfigError, RunnerError
from runner.run_directory import watch

GRACE_SECONDS = 600.0
"""How long an evaluator is considered live after its last heartbeat.

An evaluator that is killed and restarted within that time misses nothing. If it never returns,
checkpoints are no longer kept for it afterwards, because its queue would fill the disk.
"""


@contextlib.contextmanager
def registered(
    folder: Path,
    *,
    policy: str,
    metrics: Sequence[str],
    seconds: float = heartbeat.SECONDS,
    note: console.Note = console.say,
) -> Iterator[None]:
    """A context in which the evaluator of `folder` is live.

    A clean end and a configuration error remove the registration. Another error, a signal or a kill
    leaves it, because the evaluator is expected to restart.

    Args:
        folder: `eval-<name>` in the run's directory.
        policy: `latest` or `every`, as in `run_config.EvaluatorConfig`.
        metrics: The names that its evaluations produce.
        seconds: The time between two heartbeats.
        note: Called if a heartbeat fails.
    """
    path = folder / layout.EVALUATOR
    said = {"policy": policy, "metrics": list(metrics), "host": socket.gethostname()}
    files.write_json(path, {**said, "pid": os.getpid()})
    try:
        with heartbeat.beating(lambda: os.utime(path), seconds=seconds, note=note):
            yield
    except ConfigError:
        files.remove(path)
        raise
    files.remove(path)


class Handover:
    """Hands off checkpoints to the live evaluators of a run, from the process that trains.

    An evaluator is live while its registration keeps changing. Only this process's clock measures
    the time since a change, because the clocks of two machines may differ.

    Args:
        model_dir: The run's directory.
        clock: Returns seconds. Tests inject it.
    """

    def __init__(self, model_dir: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._model_dir = model_dir
        self._clock = clock
        self._glances: dict[Path, watch.Glance] = {}
        self._alive: dict[Path, float] = {}  # when each was last seen to change

    def live(self) -> list[Path]:
        """The directories of the live evaluators that evaluate every checkpoint."""
        now = self._clock()
        there = [path / layout.EVALUATOR for path in layout.evaluators(self._model_dir)]
        for path in there:
            if self._glances.setdefault(path, watch.Glance(path)).changed():
                self._alive[path] = now
        return [
            path.parent
            for path in there
            if now - self._alive.get(path, now) < GRACE_SECONDS
            and _said(path).get("policy") == "every"
        ]

    def hand_over(self, path: Path) -> None:
        """Links checkpoint `path`, which is about to be removed, into the queue of each.

        A checkpoint without an index is ignored.

        Raises:
            OSError: a queue cannot be written.
        """
        done: set[Path] = set()
        while checkpoint_files.exists(path) and (folders := set(self.live()) - done):
            for folder in folders:
                recovery.clear_leftovers(
                    folder / layout.QUEUE
                )  # from a trainer that was killed while it linked
                checkpoint_files.link(path, folder / layout.QUEUE / path.name)
            done |= folders  # copies take time, so others may have registered in between


def queued(folder: Path) -> list[Path]:
    """The checkpoints in an evaluator's queue, oldest first."""
    return checkpoint_files.there(folder / layout.QUEUE)


def metrics_of(model_dir: Path, name: str) -> list[str] | None:
    """The metrics that evaluator `name` produces, or None if it is not registered."""
    metrics = _said(layout.evaluator(model_dir, name) / layout.EVALUATOR).get("metrics")
    return [str(metric) for metric in metrics] if isinstance(metrics, list) else None


def _said(path: Path) -> dict[str, Any]:
    """Reads a registration. Returns {} if that fails, because training must continue."""
    try:
        said = files.read_json(path)
    except (OSError, RunnerError):
        return {}
    return said if isinstance(said, dict) else {}
