"""What XLA does not compile, refused before it is tried.

TensorFlow finds it in the first step, and names neither the field nor a way out.
"""

import tensorflow as tf
from official.core import config_definitions

from runner.errors import ConfigError

_MIRRORED = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
_MAX_POOLING = ("MaxPoolGrad", "MaxPoolGradV2", "MaxPool3DGrad")


def check_runtime(
    runtime: config_definitions.RuntimeConfig, strategy: tf.distribute.Strategy
) -> None:
    """Raises ConfigError where `runtime` asks for XLA, and no step would be compiled with it.

    TensorFlow adds up gradients without leaving the step, as XLA needs it, on GPUs alone.
    """
    if not runtime.enable_xla:
        return
    if runtime.run_eagerly:
        raise ConfigError("RuntimeConfig.enable_xla = True has no effect with run_eagerly = True")
    if isinstance(strategy, _MIRRORED) and "CPU" in "".join(strategy.extended.worker_devices):
        raise ConfigError(
            "RuntimeConfig.enable_xla = True: TensorFlow does not compile a mirrored step for "
            "CPUs. It compiles one for GPUs (RuntimeConfig.num_gpus), and that of "
            "RuntimeConfig.distribution_strategy = 'one_device'"
        )


def check_deterministic(graph: tf.Graph) -> None:
    """Raises ConfigError where a step holds what XLA compiles only if it may be nondeterministic.

    Args:
        graph: Of a training step.
    """
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    if found := [node.name for node in nodes if node.op in _MAX_POOLING]:
        raise ConfigError(
            "RuntimeConfig.enable_xla = True: XLA has no deterministic gradient of max pooling "
            f"({found[0]!r}); RunConfig.deterministic = False lets it have another"
        )
