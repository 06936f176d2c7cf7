"""`workers/supervisor.json`: the members of a multi-worker run. No TensorFlow."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.core import files, layout, text
from runner.errors import RunnerError
from runner.run_directory import status

_SHOWN = 5
_LISTS = ("hosts", "slow", "restarts")


def read(model_dir: Path) -> dict[str, Any] | None:
    """Returns the file's contents for the run in `model_dir`, or None if it had no supervisor.

    Returns:
        A dict with these keys:

        - `state`: `forming`, `running`, `regrouping`, `restarting` or `ended`.
        - `generation`: The number of the generation.
        - `hosts`: The workers' addresses, the chief's first.
        - `least` and `most`: The minimum and maximum number of workers.
        - `slow`: Messages about slow workers.
        - `restarts`: The last hundred, each with `time` (seconds since the epoch), `generation`,
          `workers` (how many there were), `worker` (the number of the one that caused it, or null),
          `code` and `reason`.
    """
    with contextlib.suppress(OSError, RunnerError):
        found = files.read_json(model_dir / layout.WORKERS / layout.SUPERVISOR)
        if not isinstance(found, dict) or not _is_whole(found):
            return None
        seen = status.read(model_dir)
        if found.get("state") == "running" and seen and seen.ended:  # the file was not updated
            found["state"] = "ended"
        return found
    return None


def _is_whole(found: Mapping[str, Any]) -> bool:
    """Returns whether all values that are shown exist."""
    if not all(isinstance(found.get(name), list) for name in _LISTS):
        return False
    texts = [found.get("state"), *found["hosts"], *found["slow"]]
    rows = found["restarts"]
    return all(isinstance(each, str) for each in texts) and all(
        isinstance(row, dict) and isinstance(row.get("reason"), str) for row in rows
    )


def lines(found: Mapping[str, Any] | None) -> list[str]:
    """Describes the workers, the slow ones among them, and the last restarts."""
    if not found:
        return []
    hosts, restarts = found["hosts"], found["restarts"]
    again = text.counted(len(restarts), "restart") if restarts else "no restart"
    said = [f"{text.counted(len(hosts), 'worker')} ({text.some(hosts)}), {found['state']}; {again}"]
    return [*said, *found["slow"], *(f"  {row['reason']}" for row in restarts[-_SHOWN:])]
