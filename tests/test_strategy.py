"""How a process is set up for a run."""

import subprocess
import sys

import pytest
import tensorflow as tf
from test_accumulation import trainer

from runner.errors import ConfigError


def test_a_process_computes_with_the_threads_that_are_configured():
    """In one of its own: numbers of threads are final once TensorFlow has started."""
    code = (
        "import tensorflow as tf; from runner import strategy\n"
        "strategy.set_threads(intra_op=3, inter_op=5); tf.constant(1)\n"
        "strategy.set_threads(intra_op=3, inter_op=0)\n"  # a second run
        "found = tf.config.threading\n"
        "print(found.get_intra_op_parallelism_threads(), found.get_inter_op_parallelism_threads())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["3", "5"]


@pytest.mark.parametrize("field", ["intra_op_threads", "inter_op_threads"])
def test_threads_that_come_too_late_are_refused(tmp_path, field):
    tf.constant(1)
    with pytest.raises(ConfigError, match=f"RunConfig.{field} = 63 must be set before TensorFlow"):
        trainer(tmp_path, {"run": {field: 63}})
