"""Selects the trials of a study to test, once, after validation has chosen. No TensorFlow."""

from collections.abc import Sequence

from runner.run_directory.state import FINISHED
from runner.studies import summary
from runner.studies.trial import Trial


def due(trials: Sequence[Trial]) -> list[Trial]:
    """Returns the finished trials of the chosen configuration that are not tested yet.

    They cover all seeds and folds.

    Args:
        trials: All trials of a study that has no training left.
    """
    chosen = summary.of(trials).to_test
    counted = chosen.counted if chosen else ()
    return [one for one in counted if one.state in FINISHED and not one.tests]
