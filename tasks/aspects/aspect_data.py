"""Sentences with a marked aspect and its polarity: three lines of a file each, or made-up ones.

An example is a sentence in which `$T$` stands for the aspect, the aspect, and its polarity:

    The $T$ was good , the service was not .
    food
    Positive
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from runner import inputs
from runner.errors import ConfigError
from tasks.files import fetching

MARK = "$T$"
_SPLITS = ("train", "validation", "all")


@dataclasses.dataclass
class AspectData(inputs.DataConfig):
    """Which examples to read. `is_training` must be set.

    `input_path` is one or more files, read as one. Empty stands for 800 made-up examples; most
    sentences hold two opinions, so a model has to know which one is meant.

    Attributes:
        fetch: files to download first if they are missing.
        split: 'validation' (a held-out share), 'train' (the rest) or 'all'. Empty: all of the
            files, or the part of the made-up examples that `is_training` asks for.
        held_out: the share of the sentences that is 'validation', between 0 and 1. It is picked at
            random, but always the same, whatever the run's seed. A sentence stays together with all
            its aspects.
    """

    fetch: tuple[fetching.RemoteFile, ...] = ()
    split: str = ""
    held_out: float = 0.2

    def size(self) -> int:
        """How many examples there are.

        Raises:
            ConfigError: as `source_of` and `read` do.
            RunnerError: a file could not be fetched.
        """
        fetching.fetch(self.fetch)
        return len(read(source_of(self)))


class Source(NamedTuple):
    """Where examples come from; equal sources hold equal examples."""

    paths: tuple[str, ...]
    split: str
    held_out: float

    def __str__(self) -> str:
        return ", ".join(self.paths) or "the made-up examples"

    def overlaps(self, other: "Source") -> bool:
        """Whether an example may be in both sources."""
        if not set(self.paths) & set(other.paths) and (self.paths or other.paths):
            return False
        parted = {self.split, other.split} == {"train", "validation"}
        return not (parted and self.paths == other.paths and self.held_out == other.held_out)


class Example(NamedTuple):
    """A sentence, split around its aspect.

    Attributes:
        left: the text before the aspect.
        aspect: what the polarity is about.
        right: the text after it.
        polarity: the name of its class.
        place: where the polarity was read, as file:line.
    """

    left: str
    aspect: str
    right: str
    polarity: str
    place: str

    @property
    def sentence(self) -> str:
        """The whole of it."""
        return self.left + self.aspect + self.right


def source_of(config: AspectData) -> Source:
    """The source that a configuration asks for.

    Raises:
        ConfigError: no `is_training`, an unknown split, a share out of range, or a field that
            has no effect.
    """
    if config.is_training is None:
        raise ConfigError(
            "AspectData.is_training: set it to True for train_data, False for validation_data"
        )
    if config.split not in ("", *_SPLITS):
        raise ConfigError(
            f"AspectData.split={config.split!r}: expected one of {', '.join(_SPLITS)}"
        )
    if not 0 < config.held_out < 1:
        raise ConfigError(f"AspectData.held_out={config.held_out}: a share between 0 and 1")
    tfds = [field.name for field in dataclasses.fields(config) if field.name.startswith("tfds_")]
    inputs.refuse(config, tfds, "examples are read from input_path")
    inputs.refuse(config, ("num_examples",), "the examples are counted")
    given = config.input_path
    paths = (given,) if isinstance(given, str) and given else tuple(given or ())
    own_split = "train" if config.is_training else "validation"
    split = config.split or ("all" if paths else own_split)
    return Source(paths, split, config.held_out)


def read(source: Source) -> list[Example]:
    """Reads the source and keeps the configured split.

    Raises:
        ConfigError: a file is missing, or a line is malformed; the message says which.
    """
    if source.paths:
        examples = [example for path in source.paths for example in parse(path)]
    else:
        examples = _make_up()
    if source.split == "all":
        return examples
    held_out = _pick([example.sentence for example in examples], source.held_out)
    wanted = source.split == "validation"
    return [example for example in examples if (example.sentence in held_out) == wanted]


def polarities(examples: Sequence[Example]) -> tuple[str, ...]:
    """Their names, sorted."""
    return tuple(sorted({example.polarity for example in examples}))


def numbers(examples: Sequence[Example], known: Sequence[str]) -> np.ndarray:
    """The place of each example's polarity in `known`, [N] int32.

    Raises:
        ConfigError: a polarity is unknown; the message says where.
    """
    for example in examples:
        if example.polarity not in known:
            raise ConfigError(
                f"{example.place}: the polarity {example.polarity!r} is not known; known are"
                f" {', '.join(known)}"
            )
    return np.array([known.index(example.polarity) for example in examples], np.int32)


def parse(path: str | Path) -> Iterator[Example]:
    """The examples of a file.

    Raises:
        ConfigError: as `read` does.
    """
    three = f"three lines make an example: a sentence with {MARK}, the aspect, its polarity"
    lines = _lines(Path(path))
    for first in range(0, len(lines), 3):
        sentence, *rest = lines[first : first + 3]
        if (found := sentence.count(MARK)) != 1:
            raise ConfigError(
                f"{path}:{first + 1}: {MARK} occurs {found} times instead of once; {three}"
            )
        left, right = sentence.split(MARK)
        aspect, polarity = itertools.islice(itertools.chain(rest, ("", "")), 2)
        for number, what, line in ((2, "aspect", aspect), (3, "polarity", polarity)):
            if not line or MARK in line:
                found_here = f"a sentence with {MARK}" if line else "nothing"
                raise ConfigError(
                    f"{path}:{first + number}: {found_here} where the {what} is expected; {three}"
                )
        yield Example(left, aspect, right, polarity, f"{path}:{first + 3}")


def _lines(path: Path) -> list[str]:
    """The lines of a file, without those at the end that are blank."""
    if not path.is_file():
        raise ConfigError(f"AspectData.input_path: there is no file {path}")
    lines = []
    stored = path.read_bytes().removeprefix(b"\xef\xbb\xbf").rstrip().split(b"\n")
    for number, line in enumerate(stored, 1):
        try:
            lines.append(line.decode().strip())
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}:{number}: not UTF-8: {error.reason}") from error
    if lines == [""]:
        raise ConfigError(f"{path} is empty")
    return lines


def _pick(sentences: Sequence[str], share: float) -> set[str]:
    """The sentences that are held out."""
    different = np.array(list(dict.fromkeys(sentences)), object)
    # Raw output of a bit generator never changes between NumPy versions, as shuffles may.
    order = np.argsort(np.random.Philox(key=0).random_raw(len(different)), kind="stable")
    return set(different[order[: round(share * len(different))]])


_MADE_UP = 800  # examples
_POLARITIES = ("negative", "neutral", "positive")
_OPINIONS = {
    "food": ("stale", "edible", "tasty"),
    "service": ("slow", "usual", "quick"),
    "wine": ("sour", "local", "superb"),
    "music": ("loud", "recorded", "lovely"),
    "staff": ("rude", "uniformed", "friendly"),
    "bread": ("dry", "sliced", "crisp"),
    "view": ("grim", "northern", "splendid"),
    "bill": ("outrageous", "itemised", "modest"),
}


def _make_up() -> list[Example]:
    """Each opinion once alone, then beside others of other things."""
    said = [
        (thing, opinion, polarity)
        for thing, opinions in _OPINIONS.items()
        for opinion, polarity in zip(opinions, _POLARITIES, strict=True)
    ]
    examples = [Example("the ", t, f" was {o} .", p, "made up") for t, o, p in said]
    draws = np.random.Philox(key=0).random_raw(_MADE_UP - len(said)).tolist()
    for number, draw in enumerate(draws):
        thing, opinion, polarity = said[number % len(said)]
        others = [each for each in said if each[0] != thing]
        other, elsewhere, _ = others[draw % len(others)]
        if draw >> 32 & 1:
            left, right = "the ", f" was {opinion} , but the {other} was {elsewhere} ."
        else:
            left, right = f"the {other} was {elsewhere} , but the ", f" was {opinion} ."
        examples.append(Example(left, thing, right, polarity, "made up"))
    return examples
