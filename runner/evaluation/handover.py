"""What training keeps for evaluators that are to evaluate every checkpoint.

Such an evaluator registers in its folder, `eval-<name>/evaluator.json`. Before training removes a
checkpoint it links it into the `queue/` of each live evaluator. So a checkpoint that was there
when an evaluator registered, or came later, is in the run's folder or in the queue until the
evaluator has evaluated it and removed it there. It may be in both, and come to the queue after it
was evaluated: the evaluator's own rows say what it has done. (What training had begun to remove
at the very moment of registering counts as removed before.)
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
from runner.run_folder import watch

GRACE_SECONDS = 600.0
"""How long after its last sign of life was seen an evaluator still counts as living.

One that was killed, and is started again within that time, has missed nothing. For one that never
comes back, no more than that is kept: its queue would fill the disk.
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
    """Inside, the evaluator of `folder` counts as living.

    The registration goes with a clean end, and with a mistake in the configuration, which no other
    start of the same mends. It stays when another error, a signal or a kill ends the block: the
    evaluator is expected back.

    Args:
        folder: `eval-<name>` in the run's folder.
        policy: `latest` or `every`, as in `run_config.EvaluatorConfig`.
        metrics: The names that its evaluations produce.
        seconds: How often it gives a sign of life.
        note: Told when it cannot.
    """
    path = folder / layout.EVALUATOR
    said = {"policy": policy, "metrics": list(metrics), "host": socket.gethostname()}
    files.write_json(path, {**said, "pid": os.getpid()})
    try:
        with heartbeat.beating(lambda: os.utime(path), seconds=seconds, note=note):
            yield
    except ConfigError:
        path.unlink(missing_ok=True)
        raise
    path.unlink(missing_ok=True)


class Handover:
    """The evaluators of a run that get every checkpoint, as the process that trains sees them.

    One lives as long as its registration changes now and then. How long ago that was is measured by
    this process's clock alone, from the look that saw it: the clocks of two machines may differ.

    Args:
        model_dir: The run's folder.
        clock: Seconds, for tests to inject.
    """

    def __init__(self, model_dir: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._model_dir = model_dir
        self._clock = clock
        self._glances: dict[Path, watch.Glance] = {}
        self._alive: dict[Path, float] = {}  # when each was last seen changed

    def live(self) -> list[Path]:
        """Their folders."""
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

        One that lost its index is left out.

        Raises:
            OSError: a queue cannot be written.
        """
        done: set[Path] = set()
        while checkpoint_files.exists(path) and (folders := set(self.live()) - done):
            for folder in folders:
                recovery.clear_leftovers(folder / layout.QUEUE)  # what a killed trainer half linked
                checkpoint_files.link(path, folder / layout.QUEUE / path.name)
            done |= folders  # copies take time, and others may have registered meanwhile


def queued(folder: Path) -> list[Path]:
    """The checkpoints in an evaluator's queue, all of them whole, the oldest first."""
    return checkpoint_files.there(folder / layout.QUEUE)


def metrics_of(model_dir: Path, name: str) -> list[str] | None:
    """The names that the evaluations of evaluator `name` produce, None where none is registered."""
    metrics = _said(layout.evaluator(model_dir, name) / layout.EVALUATOR).get("metrics")
    return [str(metric) for metric in metrics] if isinstance(metrics, list) else None


def _said(path: Path) -> dict[str, Any]:
    """What an evaluator wrote; nothing where it cannot be read: that must not end training."""
    try:
        said = files.read_json(path)
    except (OSError, RunnerError):
        return {}
    return said if isinstance(said, dict) else {}
