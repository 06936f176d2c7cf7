"""What a study leaves behind and says when it ends: files, pictures and the table."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.core import console, layout
from runner.studies import findings, pictures, summary, tables
from runner.studies.trial import Trial


def publish(folder: Path, trials: Sequence[Trial]) -> dict[str, Any]:
    """Writes study.json, the tables and plots/ of a study, and shows a person what they say.

    Args:
        folder: The study's.
        trials: All its trials, by number.

    Returns:
        For JSON: `best`, the chosen configuration with its interval, or None; `findings`, in words.
    """
    found = summary.of(trials)
    tables.write(folder, found)
    pictures.draw(folder / layout.PLOTS, found)
    console.say(tables.render(found, width=console.STDERR.width))
    return {"best": _best(found), "findings": findings.comparisons(found)}


def _best(found: summary.Summary) -> dict[str, Any] | None:
    chosen = found.chosen
    if chosen is None:
        return None
    spread = chosen.best[found.objective.metric]
    interval = None if math.isnan(spread.low) else [spread.low, spread.high]
    return {
        "parameters": chosen.parameters,
        "trials": [each.number for each in chosen.trials],
        found.objective.metric: spread.mean,
        "interval": interval,
    }
