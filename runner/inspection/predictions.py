"""Summarizes a run's predictions: samples, a confusion matrix, calibration. No TensorFlow.

Training stores no predictions. `--mode=predict` writes them to the run's directory, and the newest
file of JSON lines or Parquet is used. The matrix needs the columns `class` (or `probabilities`) and
`label`. The calibration also needs `probabilities`.
"""

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runner.core import files, layout

_ROWS = 50_000  # read at most
_SAMPLES = 12
_CLASSES = 40  # in a matrix that is still legible
_BINS = 10
_CELL = 90  # characters of a value


@dataclasses.dataclass(frozen=True)
class Predictions:
    """The summary of a file of predictions.

    Attributes:
        file: The file's name.
        count: The number of rows read.
        whole: Whether the file has no more rows.
        names: The columns of the samples.
        samples: Rows of text. Wrong predictions come first, if they can be identified.
        wrong: The number of wrong samples, or 0 if that is unknown.
        matrix: Counts of each label (row) and predicted class (column), or None.
        bins: For each bin of confidence: mean confidence, accuracy, fraction of the examples.
        error: The expected calibration error, or None if unavailable.
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
    """Summarizes the newest predictions in a run's directory. Returns None if there are none."""
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
        from pyarrow import parquet  # slow to import

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
    """Returns labels, classes and confidences [rows], each None if the columns lack them."""
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
    """Returns the values if they are class indices."""
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
    """Returns the bins, of equal width, and the expected calibration error."""
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
