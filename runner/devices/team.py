"""Makes the workers of one run do the same things in the same order, as the chief directs.

    with team.current().together("commit", step):  # a follower now does its part, too
        ...

TensorFlow's collectives require this, because a collective that only one worker starts never ends.
"""

import contextlib
import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from runner.devices import worker_heartbeat
from runner.devices.cluster import Cluster
from runner.internals import tensorflow as tf_internals

_SMALL = 256  # bytes of an order that fits in one message
_MOMENT = 2.0  # seconds to report the chief's end to workers that may wait in a collective
_ORDERLY_SECONDS = 30.0  # the same for workers that will listen, even on a slow machine

OPEN, END = "open", "end"  # build a run or an evaluator, end all work


class Alone:
    """A process that is not in a worker group.

    Attributes:
        size: The number of workers.
        index: The index of this worker.
    """

    size = 1
    index = 0

    @property
    def follows(self) -> bool:
        """Whether another worker directs this worker."""
        return self.index > 0

    def say(self, name: str, *arguments: Any) -> None:
        """Tells the others to do something, if this is the chief."""

    def open(self, *arguments: Any) -> None:
        """Tells the others to build what this process builds now, in the same order."""

    def lead(self) -> None:
        """Makes `together` inform the others from now on, because they have built the same."""

    def together(self, name: str, *arguments: Any) -> contextlib.AbstractContextManager[None]:
        """Returns a context for common work, about which the chief informs the others on entry."""
        del name, arguments
        return contextlib.nullcontext()

    def first_said(self, own: bytes) -> bytes:
        """Returns the bytes of the first worker that has any, on every worker."""
        return own

    def summed(self, variables: Sequence[tf.Variable]) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which one collective sums all these variables over the workers."""
        del variables
        return contextlib.nullcontext()


class Team(Alone):
    """A process among the workers of a run.

    Args:
        cluster: The workers.
        strategy: Distributes over them.
        on_stop: Called in the chief when a signal has reached another worker.
    """

    def __init__(
        self,
        cluster: Cluster,
        strategy: tf.distribute.Strategy,
        on_stop: Callable[[int], object] = lambda _: None,
    ) -> None:
        self.cluster = cluster
        self.size, self.index = cluster.size, cluster.index
        self.strategy = strategy
        self._local = strategy.num_replicas_in_sync // cluster.size
        self._on_stop = on_stop
        self._leads = False
        self._unheard: tuple[str, list[Any]] | None = None
        self._sum = tf.function(self.sum, autograph=False)

    def lead(self) -> None:
        """Makes `together` inform the others from now on, because they have built the same."""
        self._leads = not self.follows

    def open(self, *arguments: Any) -> None:
        """Tells the others to build what this process builds now, in the same order."""
        self._leads = False
        self.say(OPEN, *arguments)

    @contextlib.contextmanager
    def together(self, name: str, *arguments: Any) -> Iterator[None]:
        """Returns a context for common work, about which the chief informs the others on entry."""
        leads = self._leads
        if leads:
            self.say(name, *arguments)
        self._leads = False  # the others also do its parts
        try:
            yield
        finally:
            self._leads = leads

    def say(self, name: str, *arguments: Any) -> None:
        """Tells the others to do something, if this is the chief."""
        if not self.follows:
            self._exchange(json.dumps([name, *arguments]).encode())

    def hear(self) -> tuple[str, list[Any]]:
        """Waits for the chief's next order and returns it."""
        if self._unheard is None:
            name, *arguments = json.loads(self._exchange(b""))
            if name == END:
                with contextlib.suppress(tf.errors.OpError):
                    self._exchange(b"")  # the chief waits for this
            return name, arguments
        heard, self._unheard = self._unheard, None
        return heard

    def put_back(self, name: str, arguments: list[Any]) -> None:
        """Makes `hear` return this next."""
        self._unheard = name, arguments

    def end(self, *arguments: Any, orderly: bool) -> None:
        """Tells the others that the chief has ended, if they still listen.

        Args:
            *arguments: The arguments of the message.
            orderly: Whether the chief has ended between two common operations.
        """
        saying = threading.Thread(target=self._say_end, args=arguments, daemon=True)
        saying.start()
        saying.join(_ORDERLY_SECONDS if orderly else _MOMENT)

    def _say_end(self, *arguments: Any) -> None:
        with contextlib.suppress(tf.errors.OpError):
            self.say(END, *arguments)
            self._exchange(b"")  # wait for all: a chief that exits disconnects listeners

    def stopped(self, numbers: Sequence[float]) -> None:
        """Handles the signals that workers have reported, one number each, where 0 is none."""
        if any(numbers):
            self._on_stop(signal.SIGTERM)

    def sum(self, mine: tf.Tensor) -> tf.Tensor:
        """Sums the values of all workers. In a graph, call it in the strategy's scope."""

        def add() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            first = tf.equal(context.replica_id_in_sync_group % self._local, 0)
            value = tf.where(first, mine, tf.zeros_like(mine))  # on the replica's device
            return context.all_reduce(tf.distribute.ReduceOp.SUM, value)

        return self.strategy.experimental_local_results(self.strategy.run(add))[0]

    def share(self, *mine: tf.Tensor) -> tf.Tensor:
        """Shares some numbers of each worker with all workers: [workers, numbers] float32.

        In a graph, call it in the strategy's scope.
        """
        numbers = tf.stack([tf.cast(each, tf.float32) for each in mine])
        own = tf.one_hot(self.index, self.size)[:, tf.newaxis]
        return self.sum(own * numbers)

    @contextlib.contextmanager
    def summed(self, variables: Sequence[tf.Variable]) -> Iterator[None]:
        """Returns a context in which one collective sums all these variables over the workers.

        It applies to reading them in a graph, in the strategy's scope. Otherwise TensorFlow sums
        them one by one.
        """
        each_once = {id(each): each for each in variables}.values()  # metrics may share some
        chosen = [] if tf.executing_eagerly() else [each for each in each_once if _is_sum(each)]
        own = [tf.add_n(self.strategy.experimental_local_results(each)) for each in chosen]
        sums = _in_one([tf.reshape(value, [1, -1]) for value in own], self.sum)
        values = [tf.reshape(found, value.shape) for found, value in zip(sums, own, strict=True)]
        with tf_internals.read_as(zip(chosen, values, strict=True)):
            yield

    def gather(self, parts: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Gathers tensors [local replicas, ...] of all workers into tensors [replicas, ...].

        In a graph, call it in the strategy's scope.
        """
        gathered = _in_one([tf.reshape(part, [self._local, -1]) for part in parts], self._gathered)
        return [
            tf.reshape(found, [-1, *part.shape[1:]])
            for found, part in zip(gathered, parts, strict=True)
        ]

    def _gathered(self, rows: tf.Tensor) -> tf.Tensor:
        def gather() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            own = context.replica_id_in_sync_group % self._local
            return context.all_gather(rows[own : own + 1], axis=0)

        return self.strategy.experimental_local_results(self.strategy.run(gather))[0]

    def said_by(self, index: int, own: bytes) -> bytes:
        """Returns one worker's bytes on every worker. `own` are this worker's bytes."""
        return self._exchange(own if index == self.index else b"")

    def first_said(self, own: bytes) -> bytes:
        """Returns the bytes of the first worker that has any, on every worker."""
        with self.strategy.scope():
            speaks = self._added([*[0] * self.index, int(bool(own))], self.size)
        return self.said_by(speaks.index(1), own) if any(speaks) else b""

    def _exchange(self, said: bytes) -> bytes:
        """Returns the bytes of the sending worker on every worker. All others pass b""."""
        with self.strategy.scope():
            head = [len(said) // 256, len(said) % 256, *said[:_SMALL]]
            size, rest, *found = self._added(head, _SMALL + 2)
            length = size * 256 + rest
            if length > _SMALL:
                whole = 1 << (length - 1).bit_length()  # few lengths, few graphs
                found = self._added(list(said), whole)
        return bytes(found[:length])

    def _added(self, numbers: Sequence[int], size: int) -> list[int]:
        padded = [*numbers, *[0] * (size - len(numbers))]
        found: list[int] = self._sum(tf.constant(padded, tf.float32)).numpy().astype(int).tolist()
        return found


def _in_one(
    rows: Sequence[tf.Tensor], collective: Callable[[tf.Tensor], tf.Tensor]
) -> list[tf.Tensor]:
    """Applies a collective to each of these, [rows, numbers], with one call per dtype."""
    made: dict[int, tf.Tensor] = {}
    for kind in dict.fromkeys(row.dtype for row in rows):
        chosen = [number for number, row in enumerate(rows) if row.dtype == kind]
        sizes = [rows[number].shape[1] for number in chosen]
        every = collective(tf.concat([rows[number] for number in chosen], 1))
        made |= zip(chosen, tf.split(every, sizes, 1), strict=True)
    return [made[number] for number in range(len(rows))]


def _is_sum(variable: tf.Variable) -> bool:
    """Returns whether a variable's value is the sum of the replicas' values."""
    return (
        variable.synchronization == tf.VariableSynchronization.ON_READ
        and variable.aggregation == tf.VariableAggregation.SUM
    )


_current: Alone | Team = Alone()


def current() -> Any:
    """Returns the worker group of this process: a `Team`, or `Alone`."""
    return _current


@contextlib.contextmanager
def formed(mates: Team) -> Iterator[Team]:
    """Makes these workers the current worker group within the block."""
    global _current
    before, _current = _current, mates
    worker_heartbeat.formed()
    try:
        yield mates
    finally:
        _current = before
