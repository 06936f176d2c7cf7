"""Finds metrics that lie between 0 and 1, or between 0 and 100. No TensorFlow."""

import math
import re
from collections.abc import Iterable

from runner.studies.statistics import UNBOUNDED, Bounds

SHARES = (
    "accuracy",
    "acc",
    "auc",
    "auroc",
    "precision",
    "recall",
    "f1",
    "f1_score",
    "exact_match",
    "iou",
    "expected_calibration_error",
    "ece",
)
"""A metric is a share if its name is one of these, or ends in `_` and one of these."""

_IS_SHARE = re.compile(rf"(.*_)?({'|'.join(SHARES)})", re.IGNORECASE)


def of(name: str, values: Iterable[float]) -> Bounds:
    """Returns the lowest and the highest value that a metric can have.

    Args:
        name: The metric's name. The part before a slash, as in `test/accuracy`, is ignored.
        values: Its values in a study. Values that are not finite are ignored.

    Returns:
        0 and 1 for a share. 0 and 100 if a value is above 1, as in percent. A metric with another
        name, or with a value outside these bounds, is unbounded.
    """
    if not _IS_SHARE.fullmatch(name.rpartition("/")[2]):
        return UNBOUNDED
    known = [value for value in values if math.isfinite(value)]
    highest = 1.0 if max(known, default=0.0) <= 1 else 100.0
    inside = all(0 <= value <= highest for value in known)
    return (0.0, highest) if inside else UNBOUNDED
