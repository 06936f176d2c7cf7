"""Permutations and random numbers as functions of a key and a counter, without state.

The permutation is TensorFlow's: the Simon block cipher, walked until it falls inside the range
(Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). Over 63 bits, the same cipher
gives a random number for every counter (Salmon et al., "Parallel random numbers: as easy as 1, 2,
3", 2011). These numbers are the keys of the permutations. In a small range the walk is long, and
sorting random numbers is faster.
"""

import tensorflow as tf

# With 4 rounds, TensorFlow's default, and with 8, permutations of neighbouring keys correlate.
_ROUNDS = 12

SORTED = 4096
"""The size above which a permutation's walk costs less than a sort, for blocks of 16 bits."""

# The two levels of a block permutation add these to the purpose of its key.
_WITHIN, _OFFSET = 1000, 2000


@tf.autograph.experimental.do_not_convert
def key(seed: int, purpose: int) -> tf.Tensor:
    """Returns a key, [3] int64, for one purpose of a seed."""
    return tf.constant([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF, purpose], tf.int64)


@tf.autograph.experimental.do_not_convert
def permute(place: tf.Tensor, number: tf.Tensor, *, size: int, key: tf.Tensor) -> tf.Tensor:
    """Returns the new place of each place in a permutation of `size`.

    Args:
        place: [n] int64, from 0 to `size` - 1.
        number: [n] int64, which permutation, such as the epoch, in ascending order.
        size: the number of places.
        key: the key of the family of permutations.

    Returns:
        [n] int64.
    """
    numbers = tf.range(number[0], number[-1] + 1)
    if size <= SORTED:
        flat = tf.reshape(whole(numbers, size=size, key=key), [-1])
        return tf.cast(tf.gather(flat, (number - number[0]) * size + place), tf.int64)
    # Some permutations use 8 bits of each word of the key, so seed and number cannot be the key.
    keys = random(numbers, 3, key=key)
    return _cipher(place, key=tf.gather(keys, number - number[0]), last=size - 1)


@tf.autograph.experimental.do_not_convert
def whole(numbers: tf.Tensor, *, size: int, key: tf.Tensor) -> tf.Tensor:
    """Returns whole permutations of a small `size`: [n] int64 numbers -> [n, size] int32."""
    return tf.argsort(random(numbers, size, key=key), stable=True)


@tf.autograph.experimental.do_not_convert
def permute_blocks(
    place: tf.Tensor,
    number: tf.Tensor,
    *,
    size: int,
    block: int,
    window: int,
    key: tf.Tensor,
) -> tf.Tensor:
    """Returns the new place of each place if blocks and then members of windows are permuted.

    The blocks start at another member in every permutation, so that their borders move. The last
    window also has the members that do not fill a block, and the blocks that do not fill a window.

    Args:
        place: [n] int64, from 0 to `size` - 1.
        number: [n] int64, which permutation, in ascending order.
        size: the number of places, at least block * window.
        block: members of a block.
        window: blocks of a window.
        key: the key of the family of permutations.

    Returns:
        [n] int64.
    """
    blocks, span = size // block, block * window
    windows = blocks // window
    group = tf.minimum(place // span, windows - 1)
    last = size - (windows - 1) * span  # members of the last window
    first = group * span
    keys = random(number * windows + group, 3, key=_changed(key, _WITHIN))
    most = tf.where(group == windows - 1, tf.constant(last, tf.int64), span) - 1
    within = first + _cipher(place - first, key=keys, last=most)
    moved = permute(tf.minimum(within // block, blocks - 1), number, size=blocks, key=key)
    whole = blocks * block
    member = tf.where(within < whole, moved * block + within % block, within)
    offset = random(number, 1, key=_changed(key, _OFFSET))[:, 0] % size
    return (member + offset) % size


@tf.autograph.experimental.do_not_convert
def random(counter: tf.Tensor, count: int, *, key: tf.Tensor) -> tf.Tensor:
    """Returns 63 random bits, [n, count] int64, from [n] counters and a key, [3] or [n, 3]."""
    counters = counter[:, tf.newaxis] * count + tf.range(count, dtype=tf.int64)
    if key.shape.rank == 2:
        key = tf.repeat(key, count, axis=0)
    bits = _cipher(tf.reshape(counters, [-1]), key=key, last=tf.int64.max)
    return tf.reshape(bits, [-1, count])


def _changed(key: tf.Tensor, by: int) -> tf.Tensor:
    """Returns a key for another purpose."""
    return key + tf.constant([0, 0, by], tf.int64)


def _cipher(index: tf.Tensor, *, key: tf.Tensor, last: int | tf.Tensor) -> tf.Tensor:
    """Permutes 0..last. It uses at most the lower 32 bits of the key's words."""
    return tf.raw_ops.RandomIndexShuffle(
        index=index, seed=key, max_index=tf.convert_to_tensor(last, tf.int64), rounds=_ROUNDS
    )
