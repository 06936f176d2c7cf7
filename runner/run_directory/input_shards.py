"""Checks that the sources of indexed training data have not changed since the run started.

`inputs.json` has the sources, their settings, such as the weight in a mixture, and the fingerprints
of their shards. A shard may move. A missing, added or changed source, setting or shard would change
which example each step is trained on.
"""

import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.core import console, files, layout
from runner.data import order
from runner.errors import ConfigError

_Source = Mapping[str, Any]


def check(
    folder: Path,
    placements: Sequence[order.Placement],
    *,
    allow: bool,
    note: Callable[[str], object],
) -> None:
    """Compares the sources with the previous attempt's.

    Args:
        folder: The run's directory.
        placements: The training data.
        allow: Whether the run may continue with other data.
        note: Called with each change that is accepted.

    Raises:
        ConfigError: the data differ, and `allow` is false.
    """
    path = folder / layout.INPUTS
    now, before = _sources(placements), files.read_json(path)
    if before is None:
        return
    if "sources" not in before:  # an earlier version stored the first source only
        before, now = {"sources": [before]}, now[:1]
    changes = list(_changes(_by_name(before["sources"]), _by_name(now)))
    if changes and not allow:
        lines = "".join(f"\n  {change}" for change in changes)
        raise ConfigError(
            f"the run was trained on other data ({path}):{lines}\n"
            "To train on the data as they are now, pass {allow_config_change}",
            allow_config_change=True,
        )
    for change in changes:
        console.say(f"changed: {change}")
        note(change)


def write(folder: Path, placements: Sequence[order.Placement]) -> None:
    """Stores the sources that the run is trained on from now on, if there are any."""
    path, now = folder / layout.INPUTS, {"sources": _sources(placements)}
    if now["sources"] and files.read_json(path) != now:
        files.write_json(path, now)


def _sources(placements: Sequence[order.Placement]) -> list[_Source]:
    """Returns each source once. A pipeline may be built several times."""
    found: list[_Source] = []
    for part in (part for placement in placements for part in placement.source.parts()):
        source = {
            "name": part.mixed_as,
            "source": part.source.name,
            "settings": dict(part.settings),
            "shards": [
                {"name": Path(shard.path).name, **shard._asdict()} for shard in part.source.shards
            ],
        }
        if source not in found:
            found.append(source)
    return found


def _by_name(sources: Sequence[_Source]) -> dict[tuple[str, int], _Source]:
    """Returns sources by their names in a mixture and their numbers among those of this name."""
    found, counts = {}, collections.Counter[str]()
    for source in sources:
        name = source.get("name", "")
        found[name, counts[name]] = source
        counts[name] += 1
    return found


def _changes(
    before: Mapping[tuple[str, int], _Source], now: Mapping[tuple[str, int], _Source]
) -> Iterator[str]:
    """Describes the differences."""
    for key, old in before.items():
        if key not in now:
            yield f"the training data lack the source {_label(old)}"
    for key, new in now.items():
        if key not in before:
            yield f"the training data have a new source, {_label(new)}"
            continue
        was, settings = before[key].get("settings", {}), new["settings"]
        for name in {**was, **settings}:
            if was.get(name) != settings.get(name):
                values = f"{_shown(was.get(name))} -> {_shown(settings.get(name))}"
                yield f"the source {_label(new)}: {name} {values}"
        if change := _change(before[key]["shards"], new["shards"]):
            yield change


def _change(before: Sequence[Any], now: Sequence[Any]) -> str:
    """Describes the first difference of shards, or returns an empty string if there is none."""
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


def _label(source: _Source) -> str:
    return repr(source["name"]) if source.get("name") else str(source["source"])


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
