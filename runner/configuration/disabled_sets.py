"""Removes evaluation sets that are switched off, before anything else sees them."""

import re

from official.core import config_definitions as cfg

_SETS = "run.evaluation_sets"


def remove(experiment: cfg.ExperimentConfig, places: dict[str, str] | None = None) -> None:
    """Removes the sets with `enabled = False`. Idempotent.

    Args:
        experiment: It is changed.
        places: Where each value was set, by path. It is changed, too: paths contain the position
            of a set.
    """
    sets = experiment.run.evaluation_sets
    kept = [number for number, each in enumerate(sets) if each.enabled]
    if len(kept) == len(sets):
        return
    experiment.run.evaluation_sets = tuple(sets[number] for number in kept)
    places = {} if places is None else places
    for path in list(places):
        if found := re.match(rf"{re.escape(_SETS)}\[(\d+)\]", path):
            place, number = places.pop(path), int(found[1])
            if number in kept:
                places[f"{_SETS}[{kept.index(number)}]{path[found.end() :]}"] = place
