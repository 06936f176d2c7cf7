"""Mixes the orders of several sources in fixed proportions, as a function of (seed, n).

The stream consists of blocks. In every block, a source has the same number of places (`slots`). A
permutation keyed by seed and block number assigns the places. The number of a source's examples
before any position follows from the number of earlier blocks and the earlier places in the block.
This number is the position in the source's own order, which has its own epochs.
"""

import dataclasses
import hashlib

import numpy as np
import tensorflow as tf

from runner.data import order, permutation


def seed_of(seed: int, name: str) -> int:
    """Returns the seed of a source's order, so that other sources do not change this order."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8])


@dataclasses.dataclass(frozen=True)
class Mix(order.Order):
    """A mixture of orders. Examples are numbered through, one source after the other.

    Attributes:
        size: The number of examples of all sources.
        orders: The order of each source.
        slots: The number of places of each source in a block.
        seed: The family of permutations.
    """

    size: int
    orders: tuple[order.Order, ...]
    slots: tuple[int, ...]
    seed: int

    def serial(self, position: tf.Tensor) -> tf.Tensor:
        """See `Order`. The epoch is that of the example's source."""
        source, own = self._places(tf.reshape(position, [-1]))
        serial, first = tf.zeros_like(own), 0
        for number, each in enumerate(self.orders):
            where = tf.where(source == number)
            drawn = self._drawn(each, first, tf.gather_nd(own, where))
            serial = tf.tensor_scatter_nd_update(serial, where, drawn)
            first += each.size
        return tf.reshape(serial, tf.shape(position))

    def _drawn(self, source: order.Order, first: int, own: tf.Tensor) -> tf.Tensor:
        """Returns the examples at positions, possibly none, of a source's own order."""

        def drawn() -> tf.Tensor:
            serial = source.serial(own)
            return serial // source.size * self.size + first + serial % source.size

        return tf.cond(tf.size(own) > 0, drawn, lambda: own)

    def _places(self, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the number of the source at each position, and the position in its own order."""
        span = sum(self.slots)
        block, place = position // span, position % span
        numbers = tf.range(block[0], block[-1] + 1)
        key = permutation.key(self.seed, order.MIX)
        shuffled = permutation.whole(numbers, size=span, key=key)
        slots = tf.constant(self.slots, tf.int64)
        unmixed = np.repeat(np.arange(len(self.slots)), self.slots)
        sources = tf.gather(tf.constant(unmixed), shuffled)
        by_source = tf.argsort(sources, stable=True)  # the places of each source, in order
        rank = tf.argsort(by_source)  # the inverse
        index = (block - block[0]) * span + place
        source = tf.gather(tf.reshape(sources, [-1]), index)
        rank = tf.cast(tf.gather(tf.reshape(rank, [-1]), index), tf.int64)
        first = tf.cumsum(slots, exclusive=True)
        return source, block * tf.gather(slots, source) + rank - tf.gather(first, source)
