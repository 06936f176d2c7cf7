"""What a run's file of predictions shows: samples, a confusion matrix, calibration. No TensorFlow.

Training keeps no predictions; `--mode=predict` does, in the run's folder. The newest file of JSON
lines or Parquet counts. The matrix needs the columns `class` (or `probabilities`) and `label`, the
calibration `probabilities`, too.
"""

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet

from runner.core import files, layout

_ROWS = 50_000  # read at most
_SAMPLES = 12
_CLASSES = 40  # of a matrix that is still read
_BINS = 10
_CELL = 90  # characters of a value


@dataclasses.dataclass(frozen=True)
class Predictions:
    """What there is to show.

    Attributes:
        file: The file's name.
        count: How many rows were read.
        whole: Whether that is all.
        names: The columns of the samples.
        samples: Rows of text, those that are wrong first if that can be told.
        wrong: How many of them are wrong; 0 if that cannot be told.
        matrix: How often each label (row) was taken for each class; None where there is none.
        bins: Of each bin of confidence: mean confidence, accuracy, share of the examples.
        error: The expected calibration error; None where there is none.
    """

    file: str
    count: int
    whole: bool
    names: Sequence[str]
    samples: Sequence[Sequence[str]]
    wrong: int = 0
    matrix: Sequence[Sequence[int]] | None = None
    bins: Sequence[tuple[float, float, float]] = ()
    error: float | None = None


def of(folder: Path, problems: list[str]) -> Predictions | None:
    """What the newest file of predictions in a run's folder shows; None if there is none."""
    files = [*folder.glob(f"{layout.PREDICTIONS}/*.jsonl")]
    files += folder.glob(f"{layout.PREDICTIONS}/*.parquet")
    try:
        path = max(files, key=lambda each: each.stat().st_mtime, default=None)
        rows = _read(path) if path else []
    except (OSError, ValueError) as error:
        problems.append(f"{folder / layout.PREDICTIONS}: {' '.join(str(error).split())}")
        return None
    if not path or not rows:
        return None
    labels, classes, confidence = _classified(rows)
    return _made(path, rows, labels, classes, confidence)


def _read(path: Path) -> list[Mapping[str, Any]]:
    if path.suffix == ".parquet":
        batches = parquet.ParquetFile(path).iter_batches(batch_size=1_000)
        found = itertools.chain.from_iterable(batch.to_pylist() for batch in batches)
        return list(itertools.islice(found, _ROWS + 1))
    with path.open(encoding="utf-8") as file:
        rows = [files.loads(line) for line in itertools.islice(file, _ROWS + 1)]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path.name} is not a file of predictions")
    return rows


def _classified(
    rows: Sequence[Mapping[str, Any]],
) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """Labels, classes and confidences, [rows]; None where the columns do not have them."""
    labels = _whole([row.get("label") for row in rows])
    classes = _whole([row.get("class") for row in rows])
    try:
        shares = np.array([row["probabilities"] for row in rows], float)
    except (KeyError, TypeError, ValueError):
        shares = np.zeros(0)
    good = shares.ndim == 2 and shares.shape[1] > 1 and np.isfinite(shares).all()
    if classes is None and good:
        classes = shares.argmax(1)
    return labels, classes, shares.max(1) if good else None


def _whole(values: Sequence[Any]) -> np.ndarray | None:
    """The values, if they are numbers of classes."""
    kinds = {type(each) for each in values}
    if kinds != {int} or min(values) < 0:
        return None
    return np.array(values)


def _made(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    labels: np.ndarray | None,
    classes: np.ndarray | None,
    confidence: np.ndarray | None,
) -> Predictions:
    count = min(len(rows), _ROWS)
    order, wrong = np.arange(count), np.zeros(count, bool)
    matrix, error = None, None
    bins: Sequence[tuple[float, float, float]] = ()
    if labels is not None and classes is not None:
        wrong = (labels != classes)[:count]
        order = np.concatenate([np.flatnonzero(wrong), np.flatnonzero(~wrong)])
        size = int(max(labels.max(), classes.max())) + 1
        if size <= _CLASSES:
            counts = np.zeros((size, size), int)
            np.add.at(counts, (labels[:count], classes[:count]), 1)
            matrix = counts.tolist()
        if confidence is not None:
            bins, error = _calibration(confidence[:count], ~wrong)
    chosen = order[:_SAMPLES]
    names = list(dict.fromkeys(name for n in chosen for name in rows[n]))
    return Predictions(
        file=path.name,
        count=count,
        whole=len(rows) <= _ROWS,
        names=names,
        samples=[[_cell(rows[n].get(name)) for name in names] for n in chosen],
        wrong=int(wrong[chosen].sum()),
        matrix=matrix,
        bins=bins,
        error=error,
    )


def _calibration(
    confidence: np.ndarray, right: np.ndarray
) -> tuple[list[tuple[float, float, float]], float]:
    """The bins and the expected calibration error, with bins of equal width."""
    place = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    bins = []
    for n in range(_BINS):
        here = place == n
        if here.any():
            row = confidence[here].mean(), right[here].mean(), here.mean()
            bins.append((float(row[0]), float(row[1]), float(row[2])))
    return bins, sum(share * abs(sure - hit) for sure, hit, share in bins)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list) and value and all(isinstance(each, float) for each in value):
        said = "[" + ", ".join(f"{each:.3g}" for each in value) + "]"
    else:
        said = value if isinstance(value, str) else json.dumps(value, default=str)
    return said if len(said) <= _CELL else f"{said[: _CELL - 1]}…"
