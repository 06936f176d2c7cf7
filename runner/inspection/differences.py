"""The differences between runs in configuration, environment and results. No TensorFlow."""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from runner.core import text
from runner.inspection import columns, resolved, runs_table
from runner.inspection.rows import Row
from runner.run_directory.run import Run

_MOST_LAYERS = 20
_ABSENT = "-"


@dataclasses.dataclass(frozen=True)
class Difference:
    """One value that differs between runs.

    Attributes:
        name: Its name.
        values: Its value in each run, as text.
        note: How far they are apart.
    """

    name: str
    values: Sequence[str]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Section:
    """The differences of one kind.

    Attributes:
        name: The kind.
        counts: Whether such a difference makes runs unequal. Otherwise, it may only explain one.
        differences: The differences.
    """

    name: str
    counts: bool
    differences: Sequence[Difference]


def sections(rows: Sequence[Row], runs: Sequence[Run]) -> list[Section]:
    """Returns all differences between at least two runs.

    Configuration, data, model, progress and metrics decide whether they are equal. Code, packages
    and machine only explain differences.

    Args:
        rows: The runs as rows.
        runs: The runs.
    """
    starts = [run.attempts[-1] if run.attempts else {} for run in runs]
    made: list[tuple[str, bool, Iterable[Difference]]] = [
        ("configuration", True, _configuration(rows)),
        ("notes", False, _facts(rows, ("tags", "notes"))),
        ("code", False, code(starts)),
        ("packages", False, packages(starts)),
        ("machine", False, machine(starts)),
        ("data", True, itertools.chain(data(starts), _exactness(runs))),
        ("model", True, _overview([run.overview for run in runs])),
        ("progress", True, _facts(rows, ("state", "step", "evaluations"))),
        ("pace", False, _pace(rows)),
        ("metrics", True, _metrics(rows)),
    ]
    return [Section(name, counts, _all(found, len(rows))) for name, counts, found in made]


def _all(found: Iterable[Difference], runs: int) -> tuple[Difference, ...]:
    """Returns the differences, or a difference that reports a malformed file."""
    try:
        return tuple(found)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return (Difference("a file is damaged", [str(error)] * runs),)


def _of(name: str, values: Sequence[Any], note: str = "") -> Iterator[Difference]:
    """Yields a difference if the values are not all equal."""
    if len({_ABSENT if value in (None, "", (), []) else repr(value) for value in values}) > 1:
        yield Difference(name, [_shown(value) for value in values], note)


def _shown(value: Any) -> str:
    if value is None or value in ("", (), []):
        return _ABSENT
    return resolved.shown(list(value) if isinstance(value, tuple) else value)


def _configuration(rows: Sequence[Row]) -> Iterator[Difference]:
    yield from _of("task", [row.task for row in rows])
    values = [row.configuration for row in rows]
    for path in resolved.differing(values):
        if path not in ("run.tags", "run.notes"):
            found = [resolved.get(each, path) for each in values]
            yield Difference(path, [resolved.shown(value) for value in found])


def _facts(rows: Sequence[Row], names: Iterable[str]) -> Iterator[Difference]:
    for name in names:
        yield from _of(name, [columns.FACTS[name](row) for row in rows])


def code(starts: Sequence[Mapping[str, Any]]) -> Iterator[Difference]:
    """Yields the differences in commits and in changed files of an attempt of each run."""
    found = [each.get("code") or {} for each in starts]
    yield from _of("commit", [each.get("commit", "")[:12] for each in found])
    for name, key in (("runner", "commit"), ("task", "sha256")):
        known = [str((each.get(name) or {}).get(key) or "")[:12] for each in found]
        yield from _of(f"{key} of the {name}", known if all(known) else [])
    changes = [_changed_files(each.get("diff") or "") for each in found]
    names = dict.fromkeys(name for each in changes for name in each)
    for name in names:
        lines = [each.get(name, "") for each in changes]
        if len(set(lines)) > 1:
            yield Difference(
                f"changes of {name}",
                [text.counted(_edited(each), "line") if each else _ABSENT for each in lines],
            )
    untracked = [sorted(each.get("untracked") or []) for each in found]
    yield from _of("files not in git", untracked)


def _changed_files(diff: str) -> dict[str, str]:
    """Splits a git diff by file."""
    parts = re.split(r"(?m)^diff --git a/.* b/(.*)$", diff)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _edited(diff: str) -> int:
    return len(re.findall(r"(?m)^[+-](?![+-]{2} )", diff))


def _exactness(runs: Sequence[Run]) -> Iterator[Difference]:
    yield from _of("not bit-exact", [run.not_exact for run in runs])


def packages(starts: Sequence[Mapping[str, Any]]) -> Iterator[Difference]:
    """Yields the differences in the versions of Python and of packages."""
    found = [{"python": each.get("python"), **(each.get("versions") or {})} for each in starts]
    for name in dict.fromkeys(name for each in found for name in each):
        yield from _of(name, [each.get(name) for each in found])


def machine(starts: Sequence[Mapping[str, Any]]) -> Iterator[Difference]:
    """Yields the differences in machines, their processors, memory and devices."""
    for name in ("host", "platform"):
        yield from _of(name, [each.get(name) for each in starts])
    found = [each.get("machine") or {} for each in starts]
    for name in ("processor", "cores"):
        yield from _of(name, [each.get(name) for each in found])
    yield from _of("memory", [text.size(each["memory"]) if each else None for each in found])
    yield from _of("devices", [each.get("devices") for each in starts])


def data(starts: Sequence[Mapping[str, Any]]) -> Iterator[Difference]:
    """Yields the differences in data, by the name in the configuration, if their content differs.

    If an attempt did not record its data, none are returned.
    """
    found = [each.get("data") for each in starts]
    if any(each is None for each in found):
        return
    known = [each or {} for each in found]
    if len({tuple(sorted(facts["digest"] for facts in each.values())) for each in known}) < 2:
        return  # the same files, perhaps at another path
    for name in dict.fromkeys(name for each in known for name in each):
        yield from _of(name, [_files(each.get(name)) for each in known])


def _files(facts: Mapping[str, Any] | None) -> str:
    if not facts:
        return ""
    return f"{text.counted(facts['files'], 'file')}, {facts['bytes']:,} B, {facts['digest'][:8]}"


def _overview(found: Sequence[Mapping[str, Any]]) -> Iterator[Difference]:
    if not all(found):
        return
    for name in ("parameters", "trainable_parameters", "forward_flops_per_example"):
        yield from _of(name.replace("_", " "), [each.get(name) for each in found])
    layers = [_layers(one.get("layers", [])) for one in found]
    names = dict.fromkeys(name for each in layers for name in each)
    differing = [each for name in names for each in _of(name, [one.get(name) for one in layers])]
    yield from differing[:_MOST_LAYERS]
    if (more := len(differing) - _MOST_LAYERS) > 0:
        yield Difference(f"{text.counted(more, 'more layer')}", [_ABSENT] * len(found))


def _layers(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Returns each layer by a name without the numbers that Keras adds within a process."""
    found: dict[str, str] = {}
    for row in rows:
        plain = re.sub(r"_\d+(?=/|$)", "", row["layer"])
        names = (plain if n == 1 else f"{plain} ({n})" for n in itertools.count(1))
        found[next(name for name in names if name not in found)] = _layer(row)
    return found


def _layer(facts: Mapping[str, Any]) -> str:
    shapes = ("x".join(map(str, shape)) or "scalar" for shape in facts.get("shapes", []))
    frozen = "" if facts.get("trainable") or not facts.get("not_trainable") else ", frozen"
    return f"{facts.get('kind')} {' '.join(shapes)}{frozen}"


def _pace(rows: Sequence[Row]) -> Iterator[Difference]:
    yield from _of("time", [text.duration(row.seconds) for row in rows])
    yield from _of("steps/s", [runs_table.pace(row.rate) for row in rows])
    yield from _of("starts", [row.starts for row in rows])


def _metrics(rows: Sequence[Row]) -> Iterator[Difference]:
    """Yields metrics at the best, the last and the final evaluation, and in training."""
    yield from _of("best step", [row.best_step for row in rows])
    for at, metrics in columns.METRICS.items():
        values = [metrics(row) for row in rows]
        for name in dict.fromkeys(name for each in values for name in each):
            each = [one.get(name) for one in values]
            shown = name if name.startswith(f"{at}/") else f"{at} {name}"
            yield from _of(shown, each, _apart(each))


def _apart(values: Sequence[float | None]) -> str:
    """Returns how much the other values exceed the first."""
    first, *others = values
    if first is None or not math.isfinite(first):
        return ""
    gaps = [None if each is None else each - first for each in others]
    return " ".join(_ABSENT if gap is None else f"{gap:+.3g}" for gap in gaps)
