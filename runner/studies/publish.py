"""What a study leaves behind and says when it ends: files, pictures and the table."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.core import console, files, layout
from runner.studies import findings, statistics, summary, tables
from runner.studies.trial import Trial


def publish(folder: Path, trials: Sequence[Trial]) -> dict[str, Any]:
    """Writes study.json, the tables and plots/ of a study, and shows a person what they say.

    Args:
        folder: The study's.
        trials: All its trials, by number.

    Returns:
        For JSON: `best`, the chosen configuration with its interval, or None; `findings`, in words;
        `test`, if the chosen one was tested.
    """
    found = summary.of(trials)
    if files.read_json(folder / layout.STUDY) != tables.as_dict(found):
        from runner.studies import pictures  # which take seconds: only where something is new

        pictures.draw(folder / layout.PLOTS, found)
    tables.write(folder, found)
    console.say(tables.render(found, width=console.STDERR.width))
    tested = found.to_test.test if found.to_test else {}
    test = {name: {"mean": each.mean, "interval": _interval(each)} for name, each in tested.items()}
    said = {"best": _best(found), "findings": findings.comparisons(found)}
    return {**said, "test": test} if test else said


def _best(found: summary.Summary) -> dict[str, Any] | None:
    chosen = found.chosen
    if chosen is None:
        return None
    spread = chosen.best[found.objective.metric]
    return {
        "parameters": chosen.parameters,
        "trials": [f"{layout.TRIALS}/{each.folder.name}" for each in chosen.trials],
        found.objective.metric: spread.mean,
        "interval": _interval(spread),
    }


def _interval(spread: statistics.Spread) -> list[float] | None:
    return None if math.isnan(spread.low) else [spread.low, spread.high]
