"""State that TensorFlow's and Keras's checkpoints leave out, as values that they can hold.

Each value is one variable that is always there, and empty where there is nothing to hold: so a run
may go on under another strategy. Create it outside the strategy's scope.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from runner.checkpoints import checkpoint_files
from runner.history import history
from runner.internals import tensorflow as tf_internals

_FAIL_ON_OUTSIDE_STATE = 2  # tf.data's ExternalStatePolicy


class Inputs:
    """Where an input iterator is."""

    def __init__(self) -> None:
        self.value = tf.Variable(b"", trainable=False, name="inputs")

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return self.value.numpy() == b""

    def can_hold(self, iterator: Any) -> bool:
        """Whether TensorFlow can tell this iterator's state: one replica, all in graphs."""
        if not isinstance(iterator, tf.data.Iterator) or tf.distribute.has_strategy():
            return False
        try:
            _serialized(iterator)
        except (tf.errors.OpError, AttributeError):
            return False
        return True

    def take(self, iterator: tf.data.Iterator) -> None:
        """Holds where the iterator is."""
        self.value.assign(tf.io.serialize_tensor(_serialized(iterator)))

    def give(self, iterator: tf.data.Iterator) -> None:
        """Puts an iterator over the same dataset where the held one was."""
        state = tf.io.parse_tensor(self.value, tf.variant)
        tf.raw_ops.DeserializeIterator(
            resource_handle=tf_internals.iterator_resource(iterator), serialized=state
        )

    def clear(self) -> None:
        """Holds nothing."""
        self.value.assign(b"")


class Replicas:
    """Each replica's own part of the variables that are reduced over replicas when they are read.

    TensorFlow saves only the sum or the mean and restores it into every replica, so that training
    on rounds otherwise than if it had not been stopped.
    """

    def __init__(self) -> None:
        self.value = tf.Variable(b"", trainable=False, name="replicas")

    def watch(self, variables: Sequence[tf.Variable]) -> None:
        """Those among `variables` that have parts are held from now on; call it in the scope."""
        local = tf.distribute.get_strategy().experimental_local_results
        self._parts = [local(v) for v in variables if _is_reduced(v) and len(local(v)) > 1]

    def take(self) -> None:
        """Holds the parts."""
        if self._parts:
            self._take()

    def give(self) -> None:
        """Puts the held parts back, where they are of as many replicas as there are now."""
        if not self._parts or self.value.numpy() == b"":
            return
        held = tf.io.parse_tensor(self.value, tf.string)
        if len(held) != len(self._parts):
            return
        for parts, each in zip(self._parts, held, strict=True):
            values = tf.io.parse_tensor(each, parts[0].dtype)
            if len(values) == len(parts):
                for part, value in zip(parts, values, strict=True):
                    part.assign(value)

    @tf.function
    def _take(self) -> None:
        held = [tf.io.serialize_tensor(tf.stack(parts)) for parts in self._parts]
        self.value.assign(tf.io.serialize_tensor(tf.stack(held)))


class Written(NamedTuple):
    """How far the logs of a run went.

    Attributes:
        history: The evaluations and decisions.
        training: The step of the newest training row.
    """

    history: history.Extent
    training: int


class Logs:
    """How far the logs went, so that a start notices what was lost of them since."""

    NAME = "logs"

    def __init__(self) -> None:
        with tf.device("cpu:0"):
            self.value = tf.Variable(tf.zeros([5], tf.int64), trainable=False, name=self.NAME)

    def take(self, written: Written) -> None:
        """Holds how far they go now."""
        self.value.assign([*written.history, written.training])

    @classmethod
    def of(cls, path: Path) -> Written | None:
        """What the checkpoint at `path` holds; None of one that was written before there was this.

        Raises:
            tensorflow.errors.OpError: it is damaged.
        """
        reader = checkpoint_files.open_reader(path)
        key = cls.NAME + tf_internals.VALUE
        if not reader.has_tensor(key):
            return None
        *extent, training = reader.get_tensor(key).tolist()
        return Written(history.Extent(*extent), training)


def _is_reduced(variable: tf.Variable) -> bool:
    return variable.synchronization == tf.VariableSynchronization.ON_READ


def _serialized(iterator: tf.data.Iterator) -> tf.Tensor:
    return tf.raw_ops.SerializeIterator(
        resource_handle=tf_internals.iterator_resource(iterator),
        external_state_policy=_FAIL_ON_OUTSIDE_STATE,
    )
