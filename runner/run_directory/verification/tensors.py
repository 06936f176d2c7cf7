"""Compares two checkpoints bit by bit. No TensorFlow.

The comparison leaves out everything that may differ between two equal runs:

- `save_counter` counts the checkpoints of one manager, and an interrupted run saves more of them.
- The object graph, because tensors are compared by name.
- The extent of the logs, because the logs themselves are compared.
- An input iterator's state, because threads fill its buffers at varying times. Only its existence
  is compared. If training continued with the wrong batch, the weights show it.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from runner.checkpoints import tensor_bundle
from runner.internals import checkpoint_keys

_SLOT = re.escape(checkpoint_keys.SLOT)
_INPUTS = "input iterator"
_LEFT_OUT = (
    f"save_counter{checkpoint_keys.VALUE}",
    f"logs{checkpoint_keys.VALUE}",
    checkpoint_keys.OBJECT_GRAPH,
)

# The kind of a variable by its name in a checkpoint. The first matching pattern is used.
_KINDS = {
    "averages": rf"{_SLOT}.*/average/",
    "slots": rf"{_SLOT}|^optimizer/.*_variables/",
    "loss scale": r"^optimizer/.*loss_scale/",
    "optimizer's counters": r"^optimizer/",
    "generators": r"(^|/)(_state_var|generators?)/",
    "training metrics": r"^train_metrics/",
    "parts of replicas": r"^replicas/",
    "global step": r"^global_step/",
    _INPUTS: r"^inputs/|(^|/)iterators?/",
    "weights": "",
}


@dataclasses.dataclass(frozen=True)
class Difference:
    """One value that differs between the runs.

    Attributes:
        place: A variable's name, or a row's step and field.
        what: How it differs.
        step: A row's training step, or None for anything else.
        bits: The number of differing bits, or 0 if they cannot be counted.
        missing: Whether one of the runs lacks it, or has it twice.
        apart: The largest difference between values, or 0 if it cannot be computed.
    """

    place: str
    what: str
    step: int | None = None
    bits: int = 0
    missing: bool = False
    apart: float = 0.0

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


@dataclasses.dataclass(frozen=True)
class Part:
    """The comparison of everything of one kind.

    Attributes:
        kind: `weights`, `slots`, ..., `training rows`, `evaluations`, `best checkpoint`, ...
        compared: The number of distinct tensors or rows in the two runs.
        differences: The differences, by name or by step.
    """

    kind: str
    compared: int
    differences: tuple[Difference, ...] = ()

    @property
    def differing(self) -> int:
        """The number of tensors or rows that differ. A row with several differing fields is one."""
        return len({d.place if d.step is None else d.step for d in self.differences})

    @property
    def bits(self) -> int:
        """The number of differing bits."""
        return sum(difference.bits for difference in self.differences)

    @property
    def apart(self) -> float:
        """The largest difference between values, as far as it can be computed."""
        return max((difference.apart for difference in self.differences), default=0.0)

    @property
    def missing(self) -> int:
        """The number of missing or duplicate tensors or rows."""
        return sum(difference.missing for difference in self.differences)


def compare(first: Path, second: Path) -> list[Part]:
    """Compares the tensors of two checkpoints (paths without `.index`), with a part for each kind.

    Raises:
        tensor_bundle.DamagedError: one of them is missing or truncated.
    """
    old, new = (_Tensors(path) for path in (first, second))
    names: dict[str, list[str]] = {kind: [] for kind in ("weights", *_KINDS)}
    for name in sorted({*old.names, *new.names}):
        names[kind_of(name)].append(name)
    return [
        Part(kind, len(found), tuple(_differences(found, old, new)))
        for kind, found in names.items()
        if found
    ]


def kind_of(name: str) -> str:
    """Returns the kind of the variable with this name in a checkpoint: `weights`, `slots`, ..."""
    return next(kind for kind, pattern in _KINDS.items() if re.search(pattern, name))


class _Tensors:
    """A checkpoint's tensors that are compared."""

    def __init__(self, path: Path) -> None:
        self._bundle = tensor_bundle.Bundle(path)
        self.names = [name for name in self._bundle.names if name not in _LEFT_OUT]
        self.raw, self.read = self._bundle.raw, self._bundle.read
        self.is_changed = self._bundle.is_changed


def _differences(names: Iterable[str], old: _Tensors, new: _Tensors) -> Iterator[Difference]:
    for name in names:
        place = name.removesuffix(checkpoint_keys.VALUE)
        if name not in old.names or name not in new.names:
            whose = "first" if name in old.names else "second"
            yield Difference(place, f"only in the {whose} run's checkpoint", missing=True)
        elif kind_of(name) != _INPUTS and (found := _bits(old.read(name), new.read(name))):
            both = {"first": old, "second": new}
            changed = [whose for whose, tensors in both.items() if tensors.is_changed(name)]
            after = "".join(
                f"; the {whose} run's was changed after it was saved" for whose in changed
            )
            yield Difference(place, found[0] + after, bits=found[1], apart=found[2])


def _bits(old: np.ndarray, new: np.ndarray) -> tuple[str, int, float] | None:
    """Returns how two tensors differ, in how many bits, and by how much, or None if equal."""
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        kinds = [f"{array.dtype.name} {list(array.shape)}" for array in (old, new)]
        return f"{kinds[0]} in the first run, {kinds[1]} in the second", 0, 0.0
    if old.tobytes() == new.tobytes():
        return None
    raw = [np.frombuffer(array.tobytes(), np.uint8).reshape(old.size, -1) for array in (old, new)]
    changed = raw[0] ^ raw[1]
    places = changed.any(axis=1)
    with np.errstate(all="ignore"):
        apart = np.abs(old.ravel()[places].astype(float) - new.ravel()[places].astype(float)).max()
    apart = float(apart) if np.isfinite(apart) else 0.0
    furthest = f", by at most {apart:.3g}" if apart else ""
    count = f"{places.sum():,} of {old.size:,} values differ"
    return count + furthest, int(np.unpackbits(changed).sum()), apart
