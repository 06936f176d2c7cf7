"""Determines whether a resumed run is bit-exact, and if not, why."""

from typing import NamedTuple

import tensorflow as tf
from official.core import config_definitions

from runner.core import text

_NOT = "resuming is not bit-exact, because "
_MAYBE_NOT = "resuming may not be bit-exact, because "

# Kernels that keep their random state internally, out of reach of checkpoints.
_STATEFUL = frozenset(
    {
        "RandomUniform",
        "RandomUniformInt",
        "RandomStandardNormal",
        "TruncatedNormal",
        "ParameterizedTruncatedNormal",
        "RandomGamma",
        "RandomPoisson",
        "RandomPoissonV2",
        "RandomShuffle",
        "Multinomial",
    }
)


class Exactness(NamedTuple):
    """A line for the log, which ends with the obstacle if resuming is not bit-exact."""

    beginning: str
    obstacle: str = ""


def stateful_random_ops(graph: tf.Graph) -> list[str]:
    """The ops of a graph and its functions whose random state is not in checkpoints.

    Returns:
        `type 'name'` of each op.
    """
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return sorted({f"{node.op} {node.name!r}" for node in nodes if node.op in _STATEFUL})


def of(
    data: config_definitions.DataConfig,
    graph: tf.Graph | None,
    *,
    placed: bool,
    inputs_saved: bool,
    deterministic: bool,
    lost: str = "",
    reshuffled: str = "",
) -> Exactness:
    """Returns whether training resumes bit-exactly.

    Args:
        data: Describes the training inputs.
        graph: The graph of a training step. None for an eager step, which cannot be inspected.
        placed: Whether the inputs are indexed by step.
        inputs_saved: Whether the checkpoint holds the state of the inputs.
        deterministic: Whether ops are deterministic.
        lost: Why the inputs are not deterministic. Empty if they are.
        reshuffled: Describes resumes that have continued with newly shuffled inputs.
    """
    if reshuffled:
        return Exactness("this run is not bit-exact: ", reshuffled)
    drawn = stateful_random_ops(graph) if graph else []
    if drawn:
        ops = text.some(drawn)
        return Exactness(_NOT, f"the training step draws from stateful random ops: {ops}")
    if graph is None:
        return Exactness("resuming may not be bit-exact: ", "the training step runs eagerly")
    if not deterministic:
        return Exactness(_MAYBE_NOT, "RunConfig.deterministic is False")
    if lost:
        return Exactness(_NOT, f"the inputs are not deterministic: {lost}")
    if placed:
        return Exactness("resuming is bit-exact (inputs are indexed by step)")
    if inputs_saved:
        return Exactness("resuming is bit-exact (checkpoints contain the state of the inputs)")
    if getattr(data, "deterministic", None) is False:
        return Exactness(_NOT, "the task's inputs are not deterministic")
    return Exactness(
        "resuming is bit-exact by reading the inputs from the start, unless they draw random "
        "numbers in Python"
    )
