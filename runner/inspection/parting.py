"""Finds the first step at which two runs differ, bit by bit. No TensorFlow.

It compares training rows, evaluations and decisions by step, and the checkpoints that both runs
still have tensor by tensor.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.checkpoints import tensor_bundle
from runner.core import layout, text
from runner.errors import RunnerError
from runner.inspection import differences
from runner.internals import checkpoint_keys
from runner.run_directory.run import Run
from runner.run_directory.verification import comparison, tensors

_SHOWN = 3  # differences of a checkpoint to list


@dataclasses.dataclass(frozen=True)
class Parted:
    """The result of a comparison of two runs.

    Attributes:
        step: The first step at which they differ. None if they do not, or the step is unknown.
        same_until: The last step before that at which they are known to be equal, or None.
        is_same: Whether everything that was compared is equal.
        lines: The differences, in sentences.
        before: Earlier differences in code, packages, machine and attempts.
    """

    step: int | None
    same_until: int | None
    is_same: bool
    lines: Sequence[str]
    before: Sequence[str]

    @property
    def sentence(self) -> str:
        """The result as a sentence."""
        if self.is_same:
            return "nothing to compare" if self.same_until is None else "the same, bit by bit"
        if self.same_until is None:
            return "not the same at any step that both have"
        if self.step is None:
            return f"the same at all steps that both have, up to step {self.same_until:,}"
        return f"the same until step {self.same_until:,}"


class _Found:
    """Collects the steps at which the runs are equal, and those at which they differ."""

    def __init__(self) -> None:
        self.same: set[int] = set()
        self.apart: dict[int | None, list[str]] = {}

    def note(self, step: int | None, line: str) -> None:
        self.apart.setdefault(step, []).append(line)


def of(first: Run, second: Run) -> Parted:
    """Compares two runs, which are not read strictly."""
    found = _Found()
    _compare_rows(first, second, found)
    _compare_checkpoints(first, second, found)
    steps = [step for step in found.apart if step is not None]
    step = min(steps, default=None)
    earlier = [each for each in found.same if step is None or each < step]
    order: Callable[[int | None], float] = lambda each: float("inf") if each is None else each  # noqa: E731
    lines = [line for each in sorted(found.apart, key=order) for line in found.apart[each]]
    return Parted(
        step=step,
        same_until=max(earlier, default=None),
        is_same=not found.apart,
        lines=lines,
        before=_before(first, second, step) if found.apart else (),
    )


def _compare_rows(first: Run, second: Run, found: _Found) -> None:
    """Records the first difference of each kind of rows."""
    old, new = (_rows(run, found) for run in (first, second))
    for kind in old:
        common = {row["step"] for row in old[kind]} & {row["step"] for row in new[kind]}
        _note_rows(comparison.compare_rows(kind, old[kind], new[kind]), common, found)


def _rows(run: Run, found: _Found) -> dict[str, list[Mapping[str, Any]]]:
    """Returns the rows of a run by kind. Those that cannot be compared are recorded."""
    rows, history = run.training_rows, run.history
    good = [row for row in rows if isinstance(row, dict) and isinstance(row.get("step"), int)]
    if bad := len(rows) - len(good):
        path = run.directory / layout.TRAINING_ROWS
        found.note(None, f"{path}: {text.counted(bad, 'line')} without a step")
    for name in (layout.TRAINING_ROWS, layout.HISTORY):
        if error := run.damage.get(str(run.directory / name)):
            found.note(None, f"{name} can only be compared in part: {error}")
    return comparison.by_kind(good, history)


def _note_rows(part: tensors.Part, common: set[int], found: _Found) -> None:
    """Records where rows of one kind start to differ, given the steps that both runs have."""
    missing = [each for each in part.differences if each.missing]
    apart = [each for each in part.differences if not each.missing]
    parted = min((each.step for each in apart if each.step is not None), default=None)
    found.same |= {step for step in common if parted is None or step < parted}
    if apart:
        others = len({each.step for each in apart}) - 1
        more = f", and {text.counted(others, 'more step')}" if others else ""
        found.note(parted, f"{part.kind}: {apart[0]}{more}")
    if missing:
        more = f", and {text.counted(len(missing) - 1, 'more step')}" if missing[1:] else ""
        found.note(None, f"{part.kind}: {missing[0]}{more}")


def _compare_checkpoints(first: Run, second: Run, found: _Found) -> None:
    """Records the differences in checkpoints that both runs have, including the best ones."""
    ours, theirs = first.checkpoints, second.checkpoints
    for name in sorted(ours.keys() & theirs.keys(), key=lambda name: (ours[name], name)):
        step = ours[name]
        try:
            parts = tensors.compare(first.directory / name, second.directory / name)
        except (RunnerError, ValueError) as error:
            found.note(step, f"{name} cannot be compared: {error}")
            continue
        if any(part.differences for part in parts):
            found.note(step, _sentence(name, parts, _variables(first.directory / name)))
        else:
            found.same.add(step)


def _sentence(name: str, parts: Sequence[tensors.Part], variables: Mapping[str, str]) -> str:
    """Formats `ckpt-1250 differs in 12 tensors (4 weights, 8 slots): dense/kernel: 1 of ...`."""
    differing = [part for part in parts if part.differences]
    counts = ", ".join(f"{part.differing:,} {part.kind}" for part in differing)
    all_of = [each for part in differing for each in part.differences]
    shown = "".join(
        f"\n    {_place(each.place, variables)}: {each.what}" for each in all_of[:_SHOWN]
    )
    more = f"\n    and {len(all_of) - _SHOWN:,} more" if len(all_of) > _SHOWN else ""
    total = text.counted(sum(part.differing for part in differing), "tensor")
    return f"{name} differs in {total} ({counts}):{shown}{more}"


def _variables(path: Path) -> dict[str, str]:
    try:
        return tensor_bundle.Bundle(path).variables
    except (RunnerError, ValueError, KeyError):  # it has no object graph
        return {}


def _place(key: str, variables: Mapping[str, str]) -> str:
    """Returns a variable's key, with its name if that is more specific."""
    name = variables.get(f"{key}{checkpoint_keys.VALUE}", "").partition(":")[0]
    return f"{key} ({name})" if name and not key.endswith(name) else key


def _before(first: Run, second: Run, step: int | None) -> list[str]:
    """Returns the differences in the environments of the runs before a step."""
    starts = [_until(each, step) for each in (first, second)]
    found = []
    pair = [each[-1] if each else {} for each in starts]
    for about in (differences.code, differences.packages, differences.machine, differences.data):
        found += [f"{each.name}: {' against '.join(each.values)}" for each in about(pair)]
    counts = [len(each) for each in starts]
    if max(counts) > 1:
        found.append(f"started {counts[0]} and {text.counted(counts[1], 'time')} until then")
    return found


def _until(run: Run, step: int | None) -> list[Mapping[str, Any]]:
    """Returns the attempts of a run that started before it reached a step."""
    found: list[Mapping[str, Any]] = []
    for start in run.attempts:
        reached = found[-1].get("step") if found else None
        if step is not None and isinstance(reached, int) and reached >= step:
            break
        found.append(start)
    return found
