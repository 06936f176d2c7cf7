"""Whether a resumed run is bit-identical to one that was never stopped, and why not."""

import tensorflow as tf
from official.core import config_definitions

from runner.core import text
from runner.data import pipeline

# Kernels that keep their random state to themselves, where no checkpoint reaches it.
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


def stateful_random_ops(graph: tf.Graph) -> list[str]:
    """The ops of a graph and its functions that draw random numbers no checkpoint can repeat.

    Returns:
        `type 'name'` each.
    """
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return sorted({f"{node.op} {node.name!r}" for node in nodes if node.op in _STATEFUL})


def describe(
    data: config_definitions.DataConfig,
    graph: tf.Graph | None,
    step: int,
    *,
    remembered: bool,
    deterministic: bool,
    lost: str = "",
) -> str:
    """How exactly training goes on at `step`: one line for the log.

    Args:
        data: Describes the training inputs.
        graph: A training step's; None for an eager one, which cannot be looked into.
        step: Where training starts.
        remembered: Whether the checkpoint holds the state of the inputs.
        deterministic: Whether ops give the same bits every time.
        lost: Why those of the inputs do not all the same; empty: they do.
    """
    drawn = stateful_random_ops(graph) if graph else []
    if drawn:
        return (
            "a resume is not exact, because the training step draws from stateful random ops: "
            f"{text.some(drawn)}"
        )
    if graph is None:
        return "a resume may be inexact: the training step runs eagerly and cannot be looked into"
    if not deterministic:
        return "a resume may be inexact, because RunConfig.deterministic is False"
    if lost:
        return f"a resume is not exact in its inputs, because {lost}"
    if pipeline.is_placed(data):
        return "a resume is exact: inputs are placed by step"
    if remembered:
        return "a resume is exact: the state of the inputs is in the checkpoint"
    if getattr(data, "deterministic", None) is False:
        return "a resume is not exact, because the task's inputs are not deterministic"
    return (
        f"a resume is exact by replaying the inputs ({step:,} batches this time), unless they run "
        "Python that draws numbers of its own"
    )
