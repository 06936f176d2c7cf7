"""Evaluations kept in columns: a run has many, and as objects they take six times the memory."""

import math
import zlib
from array import array
from collections.abc import Sequence
from typing import overload

from runner.history import records

_STEP = "\0"  # stands for the step in a checkpoint's name, where nothing else can be that

_Form = tuple[str, tuple[str, ...]]  # a row's checkpoint and the names of its metrics


class Evaluations(Sequence[records.Evaluation]):
    """Rows in the order in which they were added; each is made anew when it is asked for."""

    def __init__(self) -> None:
        self._steps = array("q")
        self._seconds = array("d")
        self._times = array("d")
        self._values = array("d")  # of metrics, row after row
        self._ends = array("q")  # of each row's among them
        self._forms: list[_Form] = []
        self._known: dict[_Form, _Form] = {}  # each once

    def append(self, row: records.Evaluation) -> None:
        """Adds one."""
        form = (row.checkpoint.replace(str(row.step), _STEP), tuple(row.metrics))
        self._forms.append(self._known.setdefault(form, form))
        self._values.extend(math.nan if x != x else x for x in row.metrics.values())  # one NaN
        self._ends.append(len(self._values))
        self._times.append(row.time)
        self._seconds.append(row.seconds)
        self._steps.append(row.step)

    def __len__(self) -> int:
        return len(self._steps)

    @overload
    def __getitem__(self, place: int) -> records.Evaluation: ...
    @overload
    def __getitem__(self, place: slice) -> list[records.Evaluation]: ...
    def __getitem__(self, place: int | slice) -> records.Evaluation | list[records.Evaluation]:
        found = range(len(self))[place]
        return self._row(found) if isinstance(found, int) else [self._row(n) for n in found]

    def digest(self, count: int) -> int:
        """A number below 2**63 that tells the steps and values of the first `count` from others."""
        values = self._values[: self._ends[count - 1] if count else 0]
        return zlib.crc32(values) << 31 ^ zlib.crc32(self._steps[:count])

    def __eq__(self, other: object) -> bool:
        """Whether `other` has the same rows, in a list or otherwise; NaN is like nothing."""
        return isinstance(other, Sequence) and list(self) == list(other)

    def _row(self, n: int) -> records.Evaluation:
        step, end = self._steps[n], self._ends[n]
        checkpoint, names = self._forms[n]
        values = self._values[end - len(names) : end]
        return records.Evaluation(
            step,
            dict(zip(names, values, strict=True)),
            self._seconds[n],
            self._times[n],
            checkpoint.replace(_STEP, str(step)),
        )
