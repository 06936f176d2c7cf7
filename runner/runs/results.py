"""The results of a mode that trains or evaluates, as printed at the end. No TensorFlow."""

import collections
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.history import best_evaluation, records
from runner.runs.call import Results


def results(
    state: str,
    rows: Sequence[records.Evaluation],
    rule: best_evaluation.BestRule | None,
    model_dir: Path,
    **more: Any,
) -> Results:
    """Returns the newest and the best of `rows`, and the entries of `more` that are not empty."""
    step = rows[-1].step if rows else 0
    newest = collections.ChainMap(*(dict(row.metrics) for row in rows if row.step == step))
    best = rule.best(rows) if rule else None
    return {
        "status": state,
        "step": step,
        "metrics": records.plain(newest),
        "best": {"step": best.step, "metrics": records.plain(best.metrics)} if best else None,
        "model_dir": str(model_dir),
        **{name: value for name, value in more.items() if value},
    }
