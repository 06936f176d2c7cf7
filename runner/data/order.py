"""Selects the examples of each global batch as a function of (seed, epoch, n), without state.

Positions in the training data are counted from the first example of step 0, without end. The epoch
of a position is `position // size`. Its example is the image of `position % size` under a
permutation that is keyed by seed and epoch.
"""

import abc
import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from runner.data import permutation
from runner.data.sources.source import Identity, Source

T = TypeVar("T")

# The kinds of random draws from one seed, each with its own key.
SHUFFLE, AUGMENT, DEAL, MIX = 0, 1, 2, 3

_DRAWN = 4096  # approximate number of examples drawn at a time


class Order(abc.ABC):
    """An order of examples, without end.

    Attributes:
        size: The number of examples.
    """

    size: int

    @abc.abstractmethod
    def serial(self, position: tf.Tensor) -> tf.Tensor:
        """Returns the example at each position of the stream, as epoch * size + example in int64.

        Args:
            position: [n] or [n, m] int64, ascending.
        """

    def batch(self, number: int, examples: int) -> np.ndarray:
        """Returns the indices of a global batch, [examples] int64."""
        with tf.device("cpu:0"), tf.init_scope():
            first = number * examples
            serial = self.serial(tf.range(first, first + examples, dtype=tf.int64))
            return serial.numpy() % self.size


@dataclasses.dataclass(frozen=True)
class Shuffle(Order):
    """A permutation of all examples for each epoch.

    Attributes:
        size: The number of examples.
        seed: The family of permutations.
        block: How many neighbouring examples are read together. 1 permutes all examples. Otherwise
            the blocks are permuted, and then the examples of each `window` blocks.
        window: That number of blocks.
        keeps_order: Whether every epoch has the examples in order, without a permutation.
    """

    size: int
    seed: int = 0
    block: int = 1
    window: int = 16
    keeps_order: bool = False

    def serial(self, position: tf.Tensor) -> tf.Tensor:
        """See `Order`."""
        if self.keeps_order:
            return position
        flat = tf.reshape(position, [-1])
        epoch, place = flat // self.size, flat % self.size
        key = permutation.key(self.seed, SHUFFLE)
        if self.block * self.window >= self.size or self.block == 1:
            example = permutation.permute(place, epoch, size=self.size, key=key)
        else:
            example = permutation.permute_blocks(
                place, epoch, size=self.size, block=self.block, window=self.window, key=key
            )
        return tf.reshape(epoch * self.size + example, tf.shape(position))


@dataclasses.dataclass(frozen=True)
class Share:
    """The part of every global batch that one input pipeline feeds."""

    batch: int  # examples in a global batch
    examples: int  # of them, for each replica
    replicas: int  # fed by this pipeline
    first: int  # number of the first of these, counted over all pipelines

    @tf.autograph.experimental.do_not_convert
    def position(self, element: Any) -> Any:
        """Returns the position of an element's first example, of the same type as `element`."""
        step, replica = element // self.replicas, element % self.replicas
        return step * self.batch + (self.first + replica) * self.examples

    def of(self, batches: tf.Tensor) -> tf.Tensor:
        """Returns the elements of whole batches: [n, batch] -> [n * replicas, examples]."""
        first, last = self.first * self.examples, (self.first + self.replicas) * self.examples
        return tf.reshape(batches[:, first:last], [-1, self.examples])

    @property
    def block(self) -> int:
        """How many elements are drawn at a time, because a draw takes dozens of small ops."""
        return max(1, _DRAWN // self.examples)

    def drawn(self, order: Order) -> Callable[[tf.Tensor], tf.Tensor]:
        """Maps elements, [n], to their examples as epoch * size + example, [n, examples]."""

        def serial(element: tf.Tensor) -> tf.Tensor:
            within = tf.range(self.examples, dtype=tf.int64)
            return order.serial(self.position(element)[:, tf.newaxis] + within)

        return serial


def elements(
    drawn: Callable[[tf.Tensor], tf.Tensor],
    share: Share,
    *,
    size: int,
    seed: int,
    start_step: int,
    repeated_steps: int,
    block: int,
    seeded: bool,
) -> tf.data.Dataset:
    """Returns the examples of each replica's batches, without end: indices [examples], and seeds.

    Args:
        drawn: Maps elements, [block], to their examples as epoch * size + example.
        share: The share that the elements belong to.
        size: The number of examples.
        seed: The seed of the elements' seeds.
        start_step: The step whose batch comes first.
        repeated_steps: The number of first steps whose batches are repeated, or 0 to repeat none.
        block: How many elements are drawn at a time.
        seeded: Whether to add seeds, [examples, 2], to the indices.
    """
    if (steps := _starts.get()) is not None:
        steps.append(start_step)
    key = permutation.key(seed, AUGMENT)

    @tf.autograph.experimental.do_not_convert  # AutoGraph is slow and not needed
    def draw(first: tf.Tensor) -> tuple[tf.Tensor, ...]:
        serial = drawn(first + tf.range(block, dtype=tf.int64))
        if not seeded:
            return (serial % size,)
        seeds = permutation.random(tf.reshape(serial, [-1]), 2, key=key)
        return serial % size, tf.reshape(seeds, [block, share.examples, 2])

    first, period = start_step * share.replicas, repeated_steps * share.replicas
    start = 0 if period else first // block * block
    drawn_elements = tf.data.Dataset.range(start, tf.int64.max - block, block).map(draw).unbatch()
    if period:
        drawn_elements = drawn_elements.take(period).cache().repeat()  # only indices and seeds
        first %= period
    return drawn_elements.skip(first - start)


@dataclasses.dataclass(frozen=True)
class Placement:
    """Training data in which every row has an identity.

    Attributes:
        order: Their order.
        examples: The number of examples in a global batch.
        source: The source of the examples.
    """

    order: Order
    examples: int
    source: Source

    def identities(self, batch: int) -> list[Identity]:
        """Returns the examples of a global batch, in order."""
        indices = self.order.batch(batch, self.examples)
        return [self.source.identity(index) for index in indices.tolist()]


_recorded: contextvars.ContextVar[list[Placement] | None] = contextvars.ContextVar(
    "recorded", default=None
)
_starts: contextvars.ContextVar[list[int] | None] = contextvars.ContextVar("starts", default=None)


def recorded() -> contextlib.AbstractContextManager[list[Placement]]:
    """Returns a context with a list that collects the placements of the pipelines built in it."""
    return _collecting(_recorded)


def starts() -> contextlib.AbstractContextManager[list[int]]:
    """Returns a context with a list that collects the first step of each order built in it."""
    return _collecting(_starts)


@contextlib.contextmanager
def _collecting(variable: contextvars.ContextVar[list[T] | None]) -> Iterator[list[T]]:
    found: list[T] = []
    token = variable.set(found)
    try:
        yield found
    finally:
        variable.reset(token)


def record(placement: Placement) -> None:
    """Adds training data with identities to the list of `recorded`, if it is active."""
    placements = _recorded.get()
    if placements is not None and placement not in placements:
        placements.append(placement)
