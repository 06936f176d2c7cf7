"""The test of a study: once, of what was chosen by validation. No TensorFlow."""

from collections.abc import Sequence

from runner.run_folder.state import FINISHED
from runner.studies import summary
from runner.studies.trial import Trial


def due(trials: Sequence[Trial]) -> list[Trial]:
    """The finished trials of the chosen configuration that are not tested yet: all seeds, folds.

    Args:
        trials: All trials of a study that has nothing left to train.
    """
    chosen = summary.of(trials).to_test
    counted = chosen.counted if chosen else ()
    return [one for one in counted if one.state in FINISHED and not one.tests]
