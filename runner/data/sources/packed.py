"""Short sequences packed into rows of a fixed length, which are the examples of a new source."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from runner.core import console, text
from runner.data.sources import number_files, packed_rows
from runner.data.sources.mixture import Mixture
from runner.data.sources.sequences import Sequences
from runner.data.sources.source import DamagedExampleError, Identity, Shard, Source
from runner.errors import ConfigError

_OVERLONG = ("error", "cut", "drop")


class Packed(Source):
    """Rows of packed sequences.

    Attributes:
        fill: For each feature, the fraction of the rows' places that hold tokens.
    """

    def __init__(self, source: Source, lengths: Mapping[str, int], overlong: str) -> None:
        self._source, self._lengths, self._overlong = source, dict(lengths), overlong
        self._sequences = Sequences(source, list(lengths))
        self.settings = {"packed": self._lengths, "overlong": overlong}
        ends = np.cumsum([shard.examples for shard in source.shards]).tolist()
        self._rows = [
            packed_rows.of(shard, end - shard.examples, self._sequences, self._lengths, overlong)
            for shard, end in zip(source.shards, ends, strict=True)
        ]
        counts = [len(rows.ends) for rows in self._rows]
        super().__init__(
            source.name,
            [
                Shard(shard.path, count, shard.fingerprint)
                for shard, count in zip(source.shards, counts, strict=True)
            ],
        )
        self.block = max(1, source.block * len(self) // len(source)) if source.block > 1 else 1
        tokens = np.sum([rows.tokens for rows in self._rows], axis=0).tolist()
        self.fill = {
            name: each / (len(self) * length)
            for (name, length), each in zip(self._lengths.items(), tokens, strict=True)
        }
        _announce(self._described())

    @property
    def spec(self) -> Any:
        """Each feature, the number of each token's segment, and its position there."""
        spec = {}
        for (name, length), dtype in zip(self._lengths.items(), self._sequences.types, strict=True):
            spec[name] = tf.TensorSpec([length], dtype)
            spec.update(dict.fromkeys(_names(name), tf.TensorSpec([length], tf.int32)))
        return spec

    def read(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the rows, padded with zeros."""
        shards, places = self.places(indices)
        members = [
            self._rows[shard].first + self._rows[shard].row(place)
            for shard, place in zip(shards.tolist(), places.tolist(), strict=True)
        ]
        counts = [len(row) for row in members]
        row = np.repeat(np.arange(len(indices)), counts)
        examples = np.concatenate(members)
        try:
            found = self._sequences.read(examples)
        except DamagedExampleError as fault:
            number = row[np.flatnonzero(examples == fault.index)[0]]
            raise DamagedExampleError(str(fault), int(indices[number])) from fault
        arrays: dict[str, np.ndarray] = {}
        for number, (name, length) in enumerate(self._lengths.items()):
            dtype = self._sequences.types[number].as_numpy_dtype
            values = [np.asarray(each[number], dtype)[:length] for each in found]
            sizes = np.array([len(each) for each in values])
            if (long := np.bincount(row, sizes) > length).any():
                index = int(indices[long.argmax()])
                raise DamagedExampleError(
                    f"{self.identity(index)}: they are too long for the row. To pack them again, "
                    f"remove {number_files.folder(packed_rows.FOLDER)}",
                    index,
                )
            laid_out = _laid_out(np.concatenate(values), sizes, row, length)
            arrays.update(zip((name, *_names(name)), laid_out, strict=True))
        return arrays

    def identity(self, index: int) -> Identity:
        """Returns the identity of a row, with the numbers of its examples in their file."""
        (shard,), (place,) = self.places(np.array([index]))
        rows = self._rows[shard]
        members = rows.row(place).tolist()
        first = self._source.identity(rows.first + members[0])
        return first._replace(index=index, packed=tuple(members))

    def _described(self) -> str:
        full = [
            f"{length:,} {name} ({fill:.1%} full)"
            for (name, length), fill in zip(self._lengths.items(), self.fill.values(), strict=True)
        ]
        changed = sum(rows.overlong for rows in self._rows)
        done = {"cut": "shortened", "drop": "left out"}.get(self._overlong)
        return (
            f"{self.name}: {text.counted(len(self._source), 'example')} packed into "
            f"{text.counted(len(self), 'row')} of {' and '.join(full)}"
            f"{f'; {changed:,} were too long and {done}' if changed else ''}"
        )


def packed(source: Source, lengths: Mapping[str, int], *, overlong: str = "error") -> Source:
    """Packs short sequences into rows of a fixed length. The rows are the examples of a new source.

    A row has three arrays for each feature. For a feature `tokens`, these are `tokens`, padded with
    0, `tokens_segment_ids`, which number the sequences of a row from 1 (0 for padding), and
    `tokens_positions`, which number the tokens of each sequence from 0. SeqIO and T5X use the same
    names and values.

    The rows do not depend on the seed: neighbouring sequences share rows, and every epoch has the
    same rows in another order. Each example is in exactly one row. The rows of each file are
    computed from the lengths of its sequences when it is opened for the first time.

    Args:
        source: TFRecord or ArrayRecord files with `tf.Example` records, or Parquet files with
            columns of lists.
        lengths: The features to read, and the length of a row for each of them. With several
            features, all sequences of an example are in the same row.
        overlong: `error` rejects an example that is longer than a row, `cut` drops its last tokens,
            and `drop` leaves it out.

    Raises:
        ConfigError: if there is no such feature, it does not hold numbers, or a sequence is longer
            than a row.
    """
    if isinstance(source, (Mixture, Packed)):
        raise ConfigError("inputs.packed: pack each source before mixing, and only once")
    if overlong not in _OVERLONG:
        raise ConfigError(
            f"inputs.packed: overlong={overlong!r} must be one of {', '.join(_OVERLONG)}"
        )
    if not lengths or min(lengths.values()) < 1:
        raise ConfigError(
            f"inputs.packed: lengths={dict(lengths)}: name features, each with a length above 0"
        )
    return Packed(source, {name: int(length) for name, length in lengths.items()}, overlong)


def _names(feature: str) -> tuple[str, str]:
    return f"{feature}_segment_ids", f"{feature}_positions"


def _laid_out(
    tokens: np.ndarray, sizes: np.ndarray, row: np.ndarray, length: int
) -> Iterator[np.ndarray]:
    """Yields the tokens, the segment numbers and the positions of rows, each [rows, length].

    Args:
        tokens: The tokens of all sequences, one after the other.
        sizes: The number of tokens in each sequence.
        row: The number of each sequence's row, in ascending order.
        length: The length of a row.
    """
    starts = np.cumsum(sizes) - sizes
    first = np.searchsorted(row, row)  # the first sequence of the same row
    position = np.arange(len(tokens)) - np.repeat(starts, sizes)
    place = np.repeat(row * length + starts - starts[first], sizes) + position
    segment = np.repeat(np.arange(len(row)) - first + 1, sizes)
    for values, dtype in ((tokens, tokens.dtype), (segment, np.int32), (position, np.int32)):
        array = np.zeros([row[-1] + 1, length], dtype)
        array.reshape(-1)[place] = values
        yield array


@functools.cache
def _announce(line: str) -> None:
    """Prints a line once per process, because a run opens its data several times."""
    console.say(line)
