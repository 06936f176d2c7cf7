"""Checks that the shards of indexed training data have not changed since the run started.

Their fingerprints are in `inputs.json`. A shard may move. A missing, added or changed shard would
change which example each step is trained on.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.core import console, files, layout
from runner.data import order
from runner.errors import ConfigError


def check(
    folder: Path, placements: Sequence[order.Placement], *, resumed: bool, allow: bool
) -> None:
    """Compares the shards with the previous attempt's, and stores them.

    Args:
        folder: The run's directory.
        placements: The training data.
        resumed: Whether the run has trained before.
        allow: Whether the run may continue with other shards.

    Raises:
        ConfigError: a shard differs, and `allow` is false.
    """
    path = folder / layout.INPUTS
    now = [
        {"name": Path(shard.path).name, **shard._asdict()}
        for placement in placements[:1]
        for shard in placement.source.shards
    ]
    stored = files.read_json(path) if resumed else None
    before = stored["shards"] if stored else None
    if before is not None and (change := _change(before, now)):
        if not allow:
            raise ConfigError(
                f"{change} ({path}).\nTo train on the data as they are now, pass "
                "--allow_config_change"
            )
        console.say(f"{change}; continuing with the data as they are now")
    if now and before != now:
        files.write_json(path, {"source": placements[0].source.name, "shards": now})


def _change(before: Sequence[Any], now: Sequence[Any]) -> str:
    """Describes the difference, or returns an empty string if there is none."""
    for old, new in zip(before, now, strict=False):
        if old["name"] != new["name"]:
            return f"the training data have the shard {new['path']} instead of {old['name']}"
        if old["fingerprint"] != new["fingerprint"]:
            return f"{new['path']} has changed since the run was trained on it"
    if len(before) > len(now):
        return f"the training data lack the shard {before[len(now)]['path']}"
    if len(now) > len(before):
        return f"the training data have a new shard, {now[len(before)]['path']}"
    return ""
