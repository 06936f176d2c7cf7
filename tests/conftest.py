"""Two logical CPU devices, set before TensorFlow starts: for the tests of `mirrored`."""

import gc
import os
import signal
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.framework import ops

from runner.devices import garbage
from runner.internals import tensorflow as tf_internals

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

ON_SIGTERM = signal.getsignal(signal.SIGTERM)


@pytest.fixture(autouse=True, scope="session")
def imports_frozen():
    """The half a million objects of the imports are not searched for garbage again and again."""
    gc.collect()
    garbage.freeze()


@pytest.fixture(autouse=True, scope="module")
def earlier_tests_set_aside(imports_frozen):
    """The graphs of earlier modules are freed, and what they leave is not searched for garbage.

    TensorFlow keeps every custom gradient that a graph uses, and thereby the graph, for ever: each
    training step of an optimizer of tf_keras has one.
    """
    registered = ops.gradient_registry._registry
    for name in [name for name in registered if name.startswith("CustomGradient-")]:
        del registered[name]
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Each test works in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def own_modules(tmp_path):
    """A module that a test has written is none of the next test's of that name."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture(autouse=True, scope="module")
def seeded():
    """The fixtures of a module draw the same numbers, whichever tests came before."""
    tf_keras.utils.set_random_seed(0)


@pytest.fixture(autouse=True)
def own_settings():
    """Each test begins with the same seed, and leaves the precision as it was, and graphs.

    None begins with deterministic ops: they reject some random numbers without a seed.
    """
    tf_keras.utils.set_random_seed(0)
    tf_internals.allow_nondeterminism()
    tf.summary.experimental.set_step(None)  # Orbit leaves its own
    signal.signal(signal.SIGTERM, ON_SIGTERM)  # Ray leaves a handler that exits
    yield
    tf_keras.mixed_precision.set_global_policy("float32")
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def poisoned(monkeypatch):
    """Makes the toy task's batches of some numbers break its loss or its gradients."""
    from poisoned_runs import Poisoned

    def make(**bad):
        for name, numbers in bad.items():
            monkeypatch.setattr(Poisoned, name, numbers)
        monkeypatch.setattr(
            "official.core.task_factory.get_task", lambda params, **kw: Poisoned(params, **kw)
        )

    return make
