"""Finds which sequences of a file share which row, and keeps the result in the user's cache.

Sequences share a row only with neighbours in the same file. The rows of a file therefore do not
depend on other files, and reading a row touches only a small part of the file.
"""

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from runner.core import console
from runner.data.sources import number_files, packing
from runner.data.sources.sequences import Sequences
from runner.data.sources.source import Shard
from runner.errors import ConfigError

FOLDER = "packing"  # in the cache

_VERSION = 1
_WINDOW = 2048  # neighbours that are packed together


class Rows(NamedTuple):
    """The rows of a shard.

    Attributes:
        first: The index of the shard's first example in the source.
        ends: The place after each row's last example in `examples`, [rows] int64.
        examples: The examples of all rows, by their places in the shard.
        tokens: The number of tokens in all rows, for each feature.
        overlong: The number of examples that were cut or dropped.
    """

    first: int
    ends: np.ndarray
    examples: np.ndarray
    tokens: Sequence[int]
    overlong: int

    def row(self, number: int) -> np.ndarray:
        """Returns the examples of a row."""
        return self.examples[self.ends[number - 1] if number else 0 : self.ends[number]]


def of(
    shard: Shard, first: int, sequences: Sequences, lengths: Mapping[str, int], overlong: str
) -> Rows:
    """Returns the rows of a shard, computed if none are stored that fit the shard's fingerprint.

    Args:
        shard: The shard.
        first: The index of its first example.
        sequences: Reads the source of the shard.
        lengths: The length of a row for each feature.
        overlong: See `inputs.packed`.

    Raises:
        ConfigError: if an example is too long, and `overlong` is `error`.
    """
    settings = f"{dict(lengths)} {overlong}"
    made_of = f"{shard.fingerprint} {shard.examples} {settings}"
    digest = np.frombuffer(hashlib.sha256(made_of.encode()).digest(), np.int64)
    head = [_VERSION, *digest.tolist()]
    path = Path(shard.path).resolve() if shard.path else sequences.source.name
    stored = number_files.place(FOLDER, f"{path} {settings}")
    numbers = number_files.read(stored, head)
    if numbers is None:
        console.announce(f"packing {path} ...")
        rows = _computed(shard, first, sequences, lengths, overlong)
        counts = [*head, rows.overlong, len(rows.ends), *rows.tokens]
        numbers = np.concatenate([np.array(counts, np.int64), rows.ends, rows.examples])
        number_files.write(stored, numbers)
    cut, count, *tokens = numbers[len(head) :][: 2 + len(lengths)].tolist()
    ends, examples = np.split(numbers[len(head) + 2 + len(lengths) :], [count])
    return Rows(first, ends, examples, tokens, cut)


def _computed(
    shard: Shard, first: int, sequences: Sequences, lengths: Mapping[str, int], overlong: str
) -> Rows:
    limits = np.array(list(lengths.values()))
    sizes = np.full([shard.examples, len(limits)], -1)  # -1 for damaged examples
    for indices, found in sequences.sound(first, first + shard.examples):
        sizes[indices - first] = [[len(each) for each in example] for example in found]
    is_long = (sizes > limits).any(axis=1)
    kept = np.arange(shard.examples)
    if overlong == "drop":
        kept = kept[~is_long]
    elif overlong == "error" and is_long.any():
        place = int(is_long.argmax())
        name, size = next(
            (name, int(size))
            for name, size in zip(lengths, sizes[place], strict=True)
            if size > lengths[name]
        )
        raise ConfigError(
            f"{sequences.source.identity(first + place)}: {name!r} has {size:,} tokens, a row "
            f"{lengths[name]:,}; pass overlong='cut' to shorten such examples, or overlong='drop' "
            "to leave them out"
        )
    sizes = np.minimum(sizes, limits)
    tokens = np.maximum(sizes[kept], 0).sum(axis=0).tolist()
    sizes[sizes[:, 0] < 0] = limits  # alone in a row, a damaged example costs no other example
    counts, examples = [], []
    for window in np.split(kept, np.arange(_WINDOW, len(kept), _WINDOW)):
        rows = packing.rows(sizes[window], limits.tolist())
        counts += [len(row) for row in rows]
        examples.append(window[list(itertools.chain.from_iterable(rows))])
    ends = np.cumsum(counts, dtype=np.int64)
    return Rows(first, ends, np.concatenate(examples), tokens, int(is_long.sum()))
