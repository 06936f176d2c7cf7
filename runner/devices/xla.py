"""Detects what XLA cannot compile before trying it.

TensorFlow would fail in the first step without naming the field or a solution. Model Garden's
experiments request XLA, which its trainer uses only with GPUs. A run therefore continues without
XLA and reports that.
"""

import tensorflow as tf
from official.core import config_definitions

_MIRRORED = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
_MAX_POOLING = ("MaxPoolGrad", "MaxPoolGradV2", "MaxPool3DGrad")


def obstacle(runtime: config_definitions.RuntimeConfig, strategy: tf.distribute.Strategy) -> str:
    """Returns why a step cannot be compiled, or "" if it can.

    XLA needs gradients to be summed within the step, which TensorFlow does only on GPUs.
    """
    if runtime.run_eagerly:
        return "with RuntimeConfig.run_eagerly = True there is no graph to compile"
    if isinstance(strategy, _MIRRORED) and "CPU" in "".join(strategy.extended.worker_devices):
        return (
            "TensorFlow cannot compile a mirrored step for CPUs, only for GPUs "
            "(RuntimeConfig.num_gpus) or with RuntimeConfig.distribution_strategy = 'one_device'"
        )
    return ""


def obstacle_in(graph: tf.Graph, *, deterministic: bool) -> str:
    """Returns why XLA cannot compile a training step, or "" if it can.

    Args:
        graph: The step's graph.
        deterministic: Whether the step must be bit-exact.
    """
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    if any(node.op.startswith("Write") and node.op.endswith("Summary") for node in nodes):
        return "the task writes summaries in its training step (tf.summary)"
    if not deterministic:
        return ""
    if found := [node.name for node in nodes if node.op in _MAX_POOLING]:
        return (
            f"XLA has no deterministic gradient of max pooling ({found[0]!r}); "
            "RunConfig.deterministic = False allows another"
        )
    return ""
