"""Explains the usual cause of a difference between an uninterrupted and an interrupted run."""

from collections.abc import Sequence

from runner.run_directory.verification import comparison, tensors

# The first kind here that differs is explained. Later kinds follow from it, or differ alone.
_BY_KIND = {
    "generators": "random numbers are drawn outside training (at the start, in an evaluation), or "
    "a layer's generator is created only after the restore",
    "weights": "the inputs after a resume differ (their order is not fixed, or the pipeline has "
    "state of its own, which inputs.place has not), or the training step draws from stateful "
    "random ops (tf.random.uniform and the like) or from a generator that the model does not track",
    "loss scale": "the loss scale was not restored",
    "slots": "a slot is created only after the restore, and so starts from zero",
    "optimizer's counters": "a rate or a counter was reset after the restore",
    "averages": "the averages were updated outside training, or restarted after the restore",
    comparison.TRAINING_ROWS: "a training metric keeps some of its sums outside its variables, so "
    "checkpoints do not hold them",
    comparison.EVALUATIONS: "evaluations are not repeatable: their data have no fixed order, or "
    "the model draws random numbers in them",
}
_UNSTABLE = (
    "training is not repeatable even without an interruption: inputs in no fixed order, random "
    "numbers without a seed, or ops that add in varying order (TensorFlow's op determinism)"
)
_ABSENT = "a variable is created only after the first restore or save"
_LOST = "a bug in the runner: please report it"
_UNKNOWN = "unknown: please report it"


def first(parts: Sequence[tensors.Part]) -> tuple[str, tensors.Difference]:
    """Returns the kind and the earliest difference: the first row, or else the first tensor."""
    found = [(part.kind, d) for part in parts for d in part.differences]
    return min(found, key=lambda kind_and_difference: _when(kind_and_difference[1]))


def explain(parts: Sequence[tensors.Part], resumed: int, obstacle: str) -> str:
    """Returns the usual cause of the differences, in a sentence.

    Args:
        parts: The compared parts. At least one of them differs.
        resumed: The step from which the interrupted run first resumed.
        obstacle: Why the run itself expects that resuming is not bit-exact, or empty.
    """
    if obstacle:
        return obstacle
    found = comparison.differing(parts)
    if _when(first(parts)[1]) <= resumed:
        return _UNSTABLE
    rows = (comparison.TRAINING_ROWS, comparison.EVALUATIONS)
    if any(found[kind].missing for kind in rows if kind in found):
        return _LOST
    if any(part.missing for part in found.values()):
        return _ABSENT
    return next((cause for kind, cause in _BY_KIND.items() if kind in found), _UNKNOWN)


def _when(difference: tensors.Difference) -> float:
    return float("inf") if difference.step is None else difference.step
