"""Several sources as one, each with a share of the training examples."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from runner.data.sources import weights as proportions
from runner.data.sources.source import DamagedExampleError, Identity, Part, Source
from runner.errors import ConfigError


class Mixture(Source):
    """The examples of several sources, numbered through in the order of the sources' names.

    Attributes:
        sources: The sources by name.
        slots: How many of the places in a block of the training data each of them has.
    """

    def __init__(self, sources: Mapping[str, Source], slots: Mapping[str, int]) -> None:
        self.sources = dict(sorted(sources.items()))
        self.slots = {name: slots[name] for name in self.sources}
        sizes = [len(source) for source in self.sources.values()]
        self._last = np.cumsum(sizes)
        self._first = self._last - sizes
        shards = [shard for source in self.sources.values() for shard in source.shards]
        super().__init__(" + ".join(self.sources), shards)

    @property
    def spec(self) -> Any:
        """The structure that all sources have."""
        return next(iter(self.sources.values())).spec

    def read(self, indices: np.ndarray) -> Any:
        """Returns the examples of each source in turn, put back in order."""
        numbers = self._numbers(indices)
        flat = [
            np.empty((len(indices), *spec.shape), spec.dtype.as_numpy_dtype)
            for spec in tf.nest.flatten(self.spec)
        ]
        for number, (name, source) in enumerate(self.sources.items()):
            places = np.flatnonzero(numbers == number)
            if not len(places):
                continue
            first = int(self._first[number])
            try:
                part = source.read(indices[places] - first)
            except DamagedExampleError as fault:
                raise DamagedExampleError(f"{name}: {fault}", fault.index + first) from fault
            for whole, array in zip(flat, tf.nest.flatten(part), strict=True):
                whole[places] = array
        return tf.nest.pack_sequence_as(self.spec, flat)

    def identity(self, index: int) -> Identity:
        """Returns the identity of an example in its source, with the name of the source."""
        number = int(self._numbers(np.array([index]))[0])
        name, source = list(self.sources.items())[number]
        return source.identity(index - int(self._first[number]))._replace(mixed_as=name)

    def following(self, index: int) -> int:
        """Returns the next example of the same source."""
        number = int(self._numbers(np.array([index]))[0])
        first, last = int(self._first[number]), int(self._last[number])
        return first + (index + 1 - first) % (last - first)

    def parts(self) -> Sequence[Part]:
        """Returns the sources, with their shares as settings."""
        span = sum(self.slots.values())
        return [
            Part(name, source, {"weight": self.slots[name] / span, **source.settings})
            for name, source in self.sources.items()
        ]

    def _numbers(self, indices: np.ndarray) -> np.ndarray:
        """Returns the number of each example's source."""
        return np.searchsorted(self._last, indices, "right")


def mixture(
    sources: Mapping[str, Source],
    weights: Mapping[str, float] | None = None,
    *,
    temperature: float = 1.0,
    maximum: int = 0,
) -> Mixture:
    """Mixes sources for training, so that each supplies a share of the examples.

    Pass the result to `place`, like any source. `in_order` ignores the weights. It reads all
    sources completely, one after the other.

    The proportions are exact over time. The training data are divided into blocks of up to 4,096
    examples, and each source supplies the same number of examples in every block. The resulting
    shares differ from the requested ones by less than 0.05 percentage points. Within a block, the
    sources are mixed at random.

    Each source has its own order and its own epochs: all of its examples are used once before one
    is used again. The order does not depend on the weights and the other sources. The source and
    the example at each position are computed from (seed, n) without replaying.

    Args:
        sources: The sources by name. Their examples must have the same structure.
        weights: The weight of each source, in any unit. Without weights, the share of a source with
            n examples is proportional to min(n, maximum) ** (1 / temperature), as in T5 (Raffel et
            al., "Exploring the limits of transfer learning with a unified text-to-text
            transformer", 2020, section 3.5.2).
        temperature: 1 mixes in proportion to the sizes. Larger values make the shares more equal.
            Only without `weights`.
        maximum: Larger sources get the share of a source of this size. 0 sets no limit. Only
            without `weights`.

    Raises:
        ConfigError: if there are no sources, their examples differ in structure, a weight is
            missing, unknown or not positive, or a share is below 1 / 4,096.
    """
    if not sources:
        raise ConfigError("inputs.mixture: there are no sources to mix")
    for name, source in sources.items():
        if not isinstance(source, Source) or isinstance(source, Mixture):
            kind = type(source).__name__
            raise ConfigError(
                f"inputs.mixture: {name!r} is a {kind}; mix what inputs.source or inputs.packed "
                "returns"
            )
    _check_structures(sources)
    if weights is None:
        sizes = {name: len(source) for name, source in sources.items()}
        shares = proportions.by_size(sizes, temperature=temperature, maximum=maximum)
    else:
        for option, value, default in (("temperature", temperature, 1), ("maximum", maximum, 0)):
            if value != default:
                raise ConfigError(f"inputs.mixture: {option}={value} has no effect with weights")
        shares = proportions.given(weights, sources)
    return Mixture(sources, proportions.slots(dict(sorted(shares.items()))))


def _check_structures(sources: Mapping[str, Source]) -> None:
    """Checks that the examples of all sources have the same structure.

    Raises:
        ConfigError: with the names of two sources, and the first difference.
    """
    (one, first), *others = sources.items()
    expected = dict(_arrays(first.spec))
    for other, source in others:
        found = dict(_arrays(source.spec))
        for field in {**expected, **found}:
            if expected.get(field) != found.get(field):
                here, there = expected.get(field, "missing"), found.get(field, "missing")
                what = f"{field!r}: " if field else ""
                raise ConfigError(
                    f"inputs.mixture: the examples of {one!r} and {other!r} differ: {what}{here} "
                    f"and {there}"
                )


def _arrays(spec: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields the name of each array in an example, and its type and shape."""
    if isinstance(spec, Mapping):
        for key, each in spec.items():
            yield from _arrays(each, f"{path}/{key}".removeprefix("/"))
    elif isinstance(spec, (tuple, list)):
        for number, each in enumerate(spec):
            yield from _arrays(each, f"{path}[{number}]")
    else:
        yield path, f"{spec.dtype.name} {spec.shape.as_list()}"
