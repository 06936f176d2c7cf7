"""What XLA does not compile, found out before it is tried.

TensorFlow finds it in the first step, and names neither the field nor a way out. Model Garden's
experiments ask for XLA, and its trainer uses it with GPUs only: so where it cannot be had, a run
goes on without it, and says so.
"""

import tensorflow as tf
from official.core import config_definitions

_MIRRORED = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
_MAX_POOLING = ("MaxPoolGrad", "MaxPoolGradV2", "MaxPool3DGrad")


def obstacle(runtime: config_definitions.RuntimeConfig, strategy: tf.distribute.Strategy) -> str:
    """Why no step would be compiled; empty where it would.

    TensorFlow adds up gradients without leaving the step, as XLA needs it, on GPUs alone.
    """
    if runtime.run_eagerly:
        return "RuntimeConfig.run_eagerly = True leaves no graph to compile"
    if isinstance(strategy, _MIRRORED) and "CPU" in "".join(strategy.extended.worker_devices):
        return (
            "TensorFlow does not compile a mirrored step for CPUs. It compiles one for GPUs "
            "(RuntimeConfig.num_gpus), and that of RuntimeConfig.distribution_strategy = "
            "'one_device'"
        )
    return ""


def obstacle_in(graph: tf.Graph) -> str:
    """What of a training step XLA compiles only if it may be nondeterministic; else empty."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    if found := [node.name for node in nodes if node.op in _MAX_POOLING]:
        return (
            f"XLA has no deterministic gradient of max pooling ({found[0]!r}); "
            "RunConfig.deterministic = False lets it have another"
        )
    return ""
