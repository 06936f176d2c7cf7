"""What a study leaves behind and says when it ends: files, pictures and the table."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.core import console, files, layout
from runner.studies import findings, summary, tables
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
    if files.read_json(folder / layout.STUDY) != tables.as_dict(found):
        from runner.studies import pictures  # which take seconds: only where something is new

        pictures.draw(folder / layout.PLOTS, found)
    tables.write(folder, found)
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
        "trials": [f"{layout.TRIALS}/{each.folder.name}" for each in chosen.trials],
        found.objective.metric: spread.mean,
        "interval": interval,
    }
