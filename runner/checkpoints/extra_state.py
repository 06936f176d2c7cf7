"""State that TensorFlow's and Keras's checkpoints leave out, as variables that they can hold.

Each kind is one variable that always exists and is empty if there is nothing to save, so a run can
continue under another strategy. Create these variables outside the strategy's scope.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from runner.checkpoints import checkpoint_files
from runner.data import iterators
from runner.devices import team
from runner.history import history
from runner.internals import checkpoint_keys
from runner.internals import tensorflow as tf_internals

NAMES = ("train_metrics", "generators", "inputs", "replicas", "logs")
"""The parts that only this runner's checkpoints hold, not Model Garden's, by their names."""


class InputState:
    """The position of the iterators over the training data."""

    def __init__(self) -> None:
        self.variable = tf.Variable(b"", trainable=False, name="inputs")

    def fits(self, iterator: Any) -> bool:
        """Whether a position is stored, of as many iterators and replicas."""
        state = self.variable.numpy()
        return state != b"" and iterators.fits(iterator, state)

    def capture(self, iterator: Any) -> None:
        """Stores the position, or nothing if TensorFlow omits part of it."""
        self.variable.assign(iterators.saved(iterator) or b"")

    def put_back(self, iterator: Any) -> None:
        """Moves iterators over the same datasets to the stored position, which fits them."""
        iterators.put_back(iterator, self.variable.numpy())

    def clear(self) -> None:
        """Clears the position."""
        self.variable.assign(b"")


class ReplicaState:
    """Each replica's part of the variables that are reduced over replicas when they are read.

    TensorFlow saves only the sum or the mean and restores it into every replica. Training would
    then round differently than without an interruption.
    """

    def __init__(self) -> None:
        self.variable = tf.Variable(b"", trainable=False, name="replicas")

    def watch(self, variables: Sequence[tf.Variable]) -> None:
        """Selects the `variables` that have such parts. Call it in the strategy's scope."""
        local = tf.distribute.get_strategy().experimental_local_results
        self._parts = [local(variable) for variable in reduced(variables)]

    def capture(self) -> None:
        """Stores the parts. Those of an earlier attempt, on more replicas, are no longer valid."""
        if self._parts:
            self._capture()
        else:
            self.variable.assign(b"")

    def put_back(self) -> None:
        """Restores the stored parts, if the number of replicas is unchanged."""
        mates = team.current()
        if not self._parts or self.variable.numpy() == b"":
            return
        held = tf.io.parse_tensor(self.variable, tf.string)
        if len(held) != len(self._parts):
            return
        for parts, serialized in zip(self._parts, held, strict=True):
            values = tf.io.parse_tensor(serialized, parts[0].dtype)
            if len(values) == len(parts) * mates.size:
                first = len(parts) * mates.index
                for part, value in zip(parts, values[first : first + len(parts)], strict=True):
                    part.assign(value)

    @tf.function(autograph=False)
    def _capture(self) -> None:
        stacked = [tf.stack(parts) for parts in self._parts]
        if team.current().size > 1:
            stacked = team.current().gather(stacked)
        held = [tf.io.serialize_tensor(each) for each in stacked]
        self.variable.assign(tf.io.serialize_tensor(tf.stack(held)))


class LogExtents(NamedTuple):
    """How far the logs of a run extend.

    Attributes:
        history: The extent of evaluations and decisions.
        training: The step of the newest training row.
    """

    history: history.Extent
    training: int


class LogState:
    """How far the logs extended, so that the next attempt detects missing rows."""

    NAME = "logs"

    def __init__(self) -> None:
        with tf.device("cpu:0"):
            self.variable = tf.Variable(tf.zeros([5], tf.int64), trainable=False, name=self.NAME)

    def capture(self, extents: LogExtents) -> None:
        """Stores the current extents."""
        self.variable.assign([*extents.history, extents.training])

    @classmethod
    def read(cls, path: Path) -> LogExtents | None:
        """Reads the extents in the checkpoint at `path`. None if an earlier version wrote it.

        Raises:
            tensorflow.errors.OpError: it is damaged.
        """
        reader = checkpoint_files.open_reader(path)
        key = cls.NAME + checkpoint_keys.VALUE
        if not reader.has_tensor(key):
            return None
        *extent, training = reader.get_tensor(key).tolist()
        return LogExtents(history.Extent(*extent), training)


@dataclasses.dataclass
class ExtraState:
    """All extra state. Create it outside the strategy's scope."""

    inputs: InputState = dataclasses.field(default_factory=InputState)
    replicas: ReplicaState = dataclasses.field(default_factory=ReplicaState)
    logs: LogState = dataclasses.field(default_factory=LogState)

    def variables(self) -> dict[str, tf.Variable]:
        """The variables to save in a checkpoint, by their names there."""
        names = (field.name for field in dataclasses.fields(self))
        return {name: getattr(self, name).variable for name in names}


def missing_in(path: Path) -> tuple[str, ...]:
    """The part of `NAMES` that the writer of a checkpoint does not save.

    That is all of them if Model Garden wrote it, and the extents of logs if an earlier version of
    this runner did.

    Raises:
        tensorflow.errors.OpError, IndexError, RuntimeError: it is damaged or missing.
    """
    graph = tf_internals.object_graph(checkpoint_files.open_reader(path))
    names = {child.local_name for child in graph.nodes[0].children} if graph else set()
    if names.isdisjoint(NAMES):
        return NAMES
    return () if LogState.NAME in names else (LogState.NAME,)


def is_model_gardens(path: Path) -> bool:
    """Whether Model Garden's trainer wrote a checkpoint, rather than this runner's.

    Raises:
        tensorflow.errors.OpError, IndexError, RuntimeError: it is damaged or missing.
    """
    return missing_in(path) == NAMES


def reduced(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Selects variables with a separate part per replica. Call it in the strategy's scope."""
    apart = tf.VariableSynchronization.ON_READ
    several = tf.distribute.get_strategy().num_replicas_in_sync > 1
    return [v for v in variables if several and v.synchronization == apart]
