"""Iterators over training data whose position TensorFlow can save, also for several devices.

TensorFlow cannot save the iterator of a distributed dataset, which reads ahead for each device. A
`HostDataset` reads with a plain iterator instead, and moves each replica's part to its device.
"""

from typing import Any

import tensorflow as tf

from runner.core import text
from runner.internals import pipelines
from runner.internals import tensorflow as tf_internals

_FAIL_ON_OUTSIDE_STATE = 2  # tf.data's ExternalStatePolicy
_LARGEST = 250_000_000  # bytes of a position
_TURN = 256  # how many parts of a position are serialized at a time
_PLAIN = b"1"  # the kind of a single iterator over whole batches


class HostDataset:
    """The batches of all replicas of a strategy, read by one iterator on the host.

    Args:
        dataset: Its elements are the parts of a batch: one for each replica, in order.
        devices: The strategy.
    """

    def __init__(self, dataset: tf.data.Dataset, devices: tf.distribute.Strategy) -> None:
        self.host = dataset
        self._devices = devices

    @property
    def element_spec(self) -> Any:
        """The specification of a distributed batch."""
        count = self._devices.num_replicas_in_sync
        spec = self.host.element_spec
        return tf_internals.replicas_spec(spec, count) if count > 1 else spec

    def __iter__(self) -> "HostIterator":
        return HostIterator(iter(self.host), self._devices)


class HostIterator:
    """The iterator of a `HostDataset`. It also works in a graph.

    Attributes:
        host: The plain iterator.
        replicas: The number of elements that make a batch.
    """

    def __init__(self, host: tf.data.Iterator, devices: tf.distribute.Strategy) -> None:
        self.host = host
        self.replicas = devices.num_replicas_in_sync
        self._devices = devices

    def __iter__(self) -> "HostIterator":
        return self

    def __next__(self) -> Any:
        """Returns the next distributed batch."""
        names = self._devices.extended.worker_devices

        def part(replica: int) -> Any:
            element = next(self.host)
            with tf.device(names[replica]):
                return tf.nest.map_structure(tf.identity, element)

        if self.replicas == 1:
            return part(0)
        return self._devices.experimental_distribute_values_from_function(
            lambda context: part(context.replica_id_in_sync_group)
        )


class TooLargeError(ValueError):
    """The position of iterators is too large for a checkpoint."""


def saved(iterators: Any) -> bytes | None:
    """Returns the position of iterators, or None if TensorFlow omits part of it.

    At the end of a pass, an op such as `batch` has released the shuffle below it. The number of its
    reshuffles is then missing, so the following passes would have another order.

    Args:
        iterators: A structure of iterators.

    Raises:
        TooLargeError: shuffle buffers and other parts hold too many bytes.
        tensorflow.errors.OpError, TypeError: TensorFlow cannot save one of them.
    """
    found: list[bytes] = [_kind(iterators)]
    left = _LARGEST
    for host in _hosts(iterators):
        parts: list[bytes] = []
        state = _serialized(host)
        for first in range(0, len(state), _TURN):
            turn = _strings(state[first : first + _TURN]).numpy().tolist()
            parts += turn
            left -= sum(map(len, turn))
            if left < 0:
                raise TooLargeError(f"it takes more than {text.size(_LARGEST)}")
        shuffles = sum(map(tf_internals.saved_shuffles, parts))
        if shuffles < tf_internals.shuffles(host):
            return None
        found += [b"%d" % len(parts), *parts]
    return bytes(tf.io.serialize_tensor(found).numpy())


def can_be_saved(iterators: Any) -> bool:
    """Returns whether TensorFlow can save the position of iterators: no Python, no random ops.

    Args:
        iterators: A structure of iterators.
    """
    try:
        for host in _hosts(iterators):
            if pipelines.has_state(tf_internals.dataset_of(host)):
                return False
            _serialized(host)
    except (tf.errors.OpError, AttributeError, TypeError):
        return False
    return True


def fits(iterators: Any, state: bytes) -> bool:
    """Returns whether a position is that of as many iterators and replicas."""
    kind, _ = _parsed(state)
    return kind == _kind(iterators)


def put_back(iterators: Any, state: bytes) -> None:
    """Moves iterators over the same datasets to the position that `saved` returned."""
    _, states = _parsed(state)
    for host, own in zip(_hosts(iterators), states, strict=True):
        tf.raw_ops.DeserializeIterator(
            resource_handle=tf_internals.iterator_resource(host), serialized=own
        )


def _parsed(state: bytes) -> tuple[bytes, list[tf.Tensor]]:
    """Returns the kind of iterators in a position, and the state of each, [n] variant."""
    if tf_internals.dtype_of(state) != tf.string:  # as checkpoints had it at first
        return _PLAIN, [tf.io.parse_tensor(state, tf.variant)]
    kind, *rest = tf.io.parse_tensor(state, tf.string).numpy().tolist()
    states = []
    while rest:
        count = int(rest[0])
        parts, rest = rest[1 : count + 1], rest[count + 1 :]
        states.append(_variants(tf.constant(parts)))
    return kind, states


def _kind(iterators: Any) -> bytes:
    """Returns the number of replicas that each iterator feeds."""
    counts = [getattr(each, "replicas", 1) for each in tf.nest.flatten(iterators)]
    return ",".join(map(str, counts)).encode()


def _hosts(iterators: Any) -> list[tf.data.Iterator]:
    hosts = [getattr(each, "host", each) for each in tf.nest.flatten(iterators)]
    if not all(isinstance(host, tf.data.Iterator) for host in hosts):
        raise TypeError("the iterator of a distributed dataset")
    return hosts


@tf.function(input_signature=[tf.TensorSpec([None], tf.variant)], autograph=False)
def _strings(parts: tf.Tensor) -> tf.Tensor:
    return tf.map_fn(tf.io.serialize_tensor, parts, fn_output_signature=tf.string)


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
def _variants(parts: tf.Tensor) -> tf.Tensor:
    return tf.map_fn(
        lambda part: tf.io.parse_tensor(part, tf.variant), parts, fn_output_signature=tf.variant
    )


def _serialized(iterator: tf.data.Iterator) -> tf.Tensor:
    return tf.raw_ops.SerializeIterator(
        resource_handle=tf_internals.iterator_resource(iterator),
        external_state_policy=_FAIL_ON_OUTSIDE_STATE,
    )
