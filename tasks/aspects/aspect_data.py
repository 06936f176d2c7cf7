"""Sentences with a marked aspect and its polarity, from files or made up.

In a file, an example takes three lines: a sentence with `$T$` in place of the aspect, the aspect,
and its polarity:

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
class AspectData(inputs.FoldedData):
    """Which examples to read. `is_training` must be set.

    `input_path` is one or more files, read as one. If it is empty, 800 examples are made up; most
    of their sentences hold two opinions, so a model has to find the one about the aspect.

    Attributes:
        fetch: files to download first if they are missing.
        split: 'validation' (a held-out share), 'train' (the rest) or 'all'. Empty: all of the
            files, or the part of the made-up examples that `is_training` asks for.
        held_out: the fraction of the sentences in 'validation', between 0 and 1. The choice is
            random but fixed; it does not depend on the run's seed. All aspects of a sentence go to
            the same split. Of `folds`, which count instead of `split` and `held_out`, this is true,
            too; they are stratified by polarity.
    """

    SOURCE_FIELDS = (*inputs.FoldedData.SOURCE_FIELDS, "fetch")

    fetch: tuple[fetching.RemoteFile, ...] = ()
    split: str = ""
    held_out: float = 0.2

    def once(self) -> "AspectData":
        """The same examples for one pass in order."""
        split = self.split if self.folds else source_of(self).split
        return super().once().replace(split=split)

    def size(self) -> int:
        """The number of examples.

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
    side: inputs.Fold | None = None

    def __str__(self) -> str:
        return ", ".join(self.paths) or "the made-up examples"

    def overlaps(self, other: "Source") -> bool:
        """Whether both sources may contain the same example."""
        if not set(self.paths) & set(other.paths) and (self.paths or other.paths):
            return False
        if self.side and other.side and self.paths == other.paths:
            return self.side == other.side
        parted = {self.split, other.split} == {"train", "validation"}
        return not (parted and self.paths == other.paths and self.held_out == other.held_out)


class Example(NamedTuple):
    """A sentence, split around its aspect.

    Attributes:
        left: the text before the aspect.
        aspect: the text that the polarity is about.
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
        """The whole sentence."""
        return self.left + self.aspect + self.right


def source_of(config: AspectData) -> Source:
    """The source that a configuration asks for.

    Raises:
        ConfigError: `is_training` is not set, the split is unknown, `held_out` is out of range, or
            a field has no effect.
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
    side = config.side()
    split = "all" if side else config.split or ("all" if paths else own_split)
    return Source(paths, split, config.held_out, side)


def read(source: Source) -> list[Example]:
    """Reads the source and keeps the configured split.

    Raises:
        ConfigError: a file is missing, or a line is malformed; the message says which.
    """
    if source.paths:
        examples = [example for path in source.paths for example in parse(path)]
    else:
        examples = _make_up()
    if source.side:
        labels = np.array([example.polarity for example in examples])
        groups = np.array([example.sentence for example in examples])
        index = source.side.members(len(examples), labels=labels, groups=groups)
        return [examples[number] for number in index]
    if source.split == "all":
        return examples
    held_out = _pick([example.sentence for example in examples], source.held_out)
    wanted = source.split == "validation"
    return [example for example in examples if (example.sentence in held_out) == wanted]


def polarities(examples: Sequence[Example]) -> tuple[str, ...]:
    """Their names, sorted."""
    return tuple(sorted({example.polarity for example in examples}))


def numbers(examples: Sequence[Example], classes: Sequence[str]) -> np.ndarray:
    """The index of each example's polarity in `classes`, [N] int32.

    Raises:
        ConfigError: a polarity is not in `classes`; the message says where.
    """
    for example in examples:
        if example.polarity not in classes:
            raise ConfigError(
                f"{example.place}: unknown polarity {example.polarity!r}; expected one of"
                f" {', '.join(classes)}"
            )
    return np.array([classes.index(example.polarity) for example in examples], np.int32)


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
    """The lines of a file, without trailing blank ones."""
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
    # A bit generator's raw output is the same in all NumPy versions; shuffles may change.
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
    """Each opinion once alone, then beside opinions of other things."""
    said = [
        (thing, opinion, polarity)
        for thing, opinions in _OPINIONS.items()
        for opinion, polarity in zip(opinions, _POLARITIES, strict=True)
    ]
    examples = [Example("the ", t, f" was {o} .", p, "made up") for t, o, p in said]
    draws = np.random.Philox(key=0).random_raw(_MADE_UP - len(said)).tolist()
    for number, draw in enumerate(draws):
        thing, opinion, polarity = said[number % len(said)]
        others = [example for example in said if example[0] != thing]
        other, elsewhere, _ = others[draw % len(others)]
        if draw >> 32 & 1:
            left, right = "the ", f" was {opinion} , but the {other} was {elsewhere} ."
        else:
            left, right = f"the {other} was {elsewhere} , but the ", f" was {opinion} ."
        examples.append(Example(left, thing, right, polarity, "made up"))
    return examples
