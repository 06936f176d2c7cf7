"""Publishes the results of a study when it ends: files, plots and the table."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.core import console, files, layout
from runner.studies import across, findings, statistics, summary, tables
from runner.studies.trial import Trial


def publish(folder: Path, trials: Sequence[Trial], data_set: str = "") -> dict[str, Any]:
    """Writes study.json, the tables and plots/ of a study, and prints its results.

    Args:
        folder: The study's directory.
        trials: All trials of the study, by number.
        data_set: The parameter that names the data set, if there are several.

    Returns:
        A dict for JSON with these keys:

        - `best`: The chosen configuration with its interval, or None.
        - `findings`: The comparisons in words.
        - `front`: The parameters of the configurations on the Pareto front, with the objectives, if
          there are several.
        - `test`: The test of the chosen configuration, if it was tested.
        - `across`: The configurations over all data sets, if there are several.
    """
    found = summary.of(trials)
    rows = across.of(found, data_set) if data_set and found.chosen else []
    if files.read_json(folder / layout.STUDY) != tables.as_dict(found, rows):
        from runner.studies import pictures  # takes seconds, so only if the summary is new

        pictures.draw(folder / layout.PLOTS, found)
        if rows:
            path = folder / layout.PLOTS / f"{found.objective.metric}-profile"
            pictures.draw_profiles(path, rows, found.objective.metric)
    tables.write(folder, found, rows)
    console.say(tables.render(found, width=console.STDERR.width))
    if rows:
        console.say(across.render(rows, found.objective.metric))
    tested = found.to_test.test if found.to_test else {}
    test = {name: {"mean": each.mean, "interval": _interval(each)} for name, each in tested.items()}
    said: dict[str, Any] = {"best": _best(found), "findings": findings.comparisons(found)}
    said |= {"test": test} if test else {}
    said |= {"front": front} if (front := _front(found)) else {}
    return {**said, "across": across.as_dict(rows)} if rows else said


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


def _front(found: summary.Summary) -> list[dict[str, Any]]:
    names = [each.name for each in found.goals.objectives]
    return [
        {"parameters": each.parameters, **{name: each.means[name] for name in names}}
        for each in found.front
    ]


def _interval(spread: statistics.Spread) -> list[float] | None:
    return None if math.isnan(spread.low) else [spread.low, spread.high]
