"""Sentences with a marked aspect and its polarity, from files or synthetic."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from runner import inputs
from runner.core import text
from runner.errors import ConfigError
from tasks.aspects import made_up_opinions, three_lines
from tasks.aspects.three_lines import Example
from tasks.files import fetching

_SPLITS = ("train", "validation", "all")


@dataclasses.dataclass
class AspectData(inputs.FoldedData):
    """The examples to read. `is_training` must be set.

    `input_path` is one or more files, read as one. An example takes three lines: a sentence with
    `$T$` in place of the aspect, the aspect, and its polarity. If it is empty, there are 800
    synthetic examples. Most of their sentences hold two opinions, so a model has to find the one
    about the aspect.

    Attributes:
        fetch: files to download first if they are missing.
        split: 'validation' (a held-out share), 'train' (the rest) or 'all'. Empty: all of the
            files, or the part of the synthetic examples that matches `is_training`.
        held_out: the fraction of the sentences in 'validation', between 0 and 1. The choice is
            random but fixed, and independent of the run's seed. All aspects of a sentence are in
            the same split. `folds` replace `split` and `held_out`. They also keep a sentence's
            aspects together, and are stratified by polarity.
        repeated_marks: what to do with sentences that have several `$T$`: 'first' takes the first
            as the aspect and replaces the others by its words, 'skip' drops the sentences, like
            PyABSA, and 'refuse' raises an error.
        bad_examples: what to do with lines that form no example: 'skip' drops them and reports
            their number, 'refuse' raises an error that lists them all.
        polarities: the polarities that examples may have. Any other makes a bad example. Empty:
            the training data may have any.
        cache_folder: a directory that caches the sentences' words or pieces. Empty: no cache.
    """

    SOURCE_FIELDS = (*inputs.FoldedData.SOURCE_FIELDS, "fetch")

    fetch: tuple[fetching.RemoteFile, ...] = ()
    split: str = ""
    held_out: float = 0.2
    repeated_marks: str = "first"
    bad_examples: str = "skip"
    polarities: tuple[str, ...] = ()
    cache_folder: str = ""

    def once(self) -> "AspectData":
        """The same examples for one pass in order."""
        split = self.split if self.folds else source_of(self).split
        return super().once().replace(split=split)

    def check(self) -> None:
        """Raises ConfigError like `source_of`. Reads no data."""
        source_of(self)

    def size(self) -> int:
        """The number of examples.

        Raises:
            ConfigError: raised by `source_of` or `read`.
            RunnerError: a file could not be fetched.
        """
        fetching.fetch(self.fetch)
        return len(read(source_of(self)))


@dataclasses.dataclass
class TermData(AspectData):
    """The same, to extract aspects: all aspects of a sentence must be labelled.

    Without `input_path`, the synthetic sentences with two opinions make two examples.
    """


class Source(NamedTuple):
    """A source of examples. Equal sources hold equal examples."""

    paths: tuple[str, ...]
    split: str
    held_out: float
    side: inputs.Fold | None = None
    repeated_marks: str = "first"
    bad_examples: str = "skip"
    polarities: tuple[str, ...] = ()
    every_aspect: bool = False

    def __str__(self) -> str:
        return ", ".join(self.paths) or "the synthetic examples"

    def overlaps(self, other: "Source") -> bool:
        """Whether both sources may contain the same example."""
        if not set(self.paths) & set(other.paths) and (self.paths or other.paths):
            return False
        if self.side and other.side and self.paths == other.paths:
            return self.side == other.side
        parted = {self.split, other.split} == {"train", "validation"}
        return not (parted and self.paths == other.paths and self.held_out == other.held_out)


def source_of(config: AspectData) -> Source:
    """The source that a configuration describes.

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
    for name, choices in (
        ("repeated_marks", three_lines.REPEATED),
        ("bad_examples", three_lines.BAD),
    ):
        if (value := getattr(config, name)) not in choices:
            raise ConfigError(f"AspectData.{name}={value!r}: expected one of {', '.join(choices)}")
    if not 0 < config.held_out < 1:
        raise ConfigError(f"AspectData.held_out={config.held_out}: must be between 0 and 1")
    tfds = [field.name for field in dataclasses.fields(config) if field.name.startswith("tfds_")]
    inputs.refuse(config, tfds, "examples are read from input_path")
    inputs.refuse(config, ("num_examples",), "the examples are counted")
    given = config.input_path
    paths = (given,) if isinstance(given, str) and given else tuple(given or ())
    own_split = "train" if config.is_training else "validation"
    side = config.side()
    split = "all" if side else config.split or ("all" if paths else own_split)
    marks, bad, known = config.repeated_marks, config.bad_examples, tuple(config.polarities)
    every = isinstance(config, TermData) and not paths
    return Source(paths, split, config.held_out, side, marks, bad, known, every)


def read(source: Source) -> list[Example]:
    """Reads the source and keeps the configured split.

    Raises:
        ConfigError: raised by `three_lines.read`, or because the split is empty.
    """
    if source.paths:
        examples = _of_files(source)
    else:
        examples = made_up_opinions.examples(every_aspect=source.every_aspect)
    if source.side:
        labels = np.array([example.polarity for example in examples])
        groups = np.array([example.sentence for example in examples])
        index = source.side.members(len(examples), labels=labels, groups=groups)
        return [examples[number] for number in index]
    if source.split == "all":
        return examples
    sentences = list(dict.fromkeys(example.sentence for example in examples))
    held_out = _pick(sentences, source.held_out)
    wanted = source.split == "validation"
    if len(held_out) == (0 if wanted else len(sentences)):
        raise ConfigError(
            f"{source}: with so few sentences ({len(sentences):,}), AspectData.held_out="
            f"{source.held_out} leaves none for split={source.split!r}"
        )
    return [example for example in examples if (example.sentence in held_out) == wanted]


def _of_files(source: Source) -> list[Example]:
    """Reads all files. A single error lists the rejected examples of all of them."""
    rules = {"repeated": source.repeated_marks, "bad": source.bad_examples}
    examples, refused = [], []
    for path in source.paths:
        try:
            examples += three_lines.read(path, **rules, polarities=source.polarities)
        except ConfigError as error:
            refused.append(str(error))
    if refused:
        raise ConfigError("\n".join(refused))
    return examples


def polarities(examples: Sequence[Example]) -> tuple[str, ...]:
    """Returns the names of the polarities, sorted."""
    return tuple(sorted({example.polarity for example in examples}))


def numbers(examples: Sequence[Example], classes: Sequence[str]) -> np.ndarray:
    """The index of each example's polarity in `classes`, [N] int32.

    Raises:
        ConfigError: polarities are not in `classes`. The message lists their places.
    """
    unknown = collections.defaultdict(list)
    for example in examples:
        if example.polarity not in classes:
            unknown[example.polarity].append(example.place)
    if unknown:
        found = (f"{text.some(places)}: {name!r}" for name, places in sorted(unknown.items()))
        raise ConfigError(
            f"unknown polarities: {'; '.join(found)}; expected one of {', '.join(classes)} "
            "(AspectSentimentConfig.polarities, by default those of the training data; "
            "AspectData.polarities excludes examples with others)"
        )
    return np.array([classes.index(example.polarity) for example in examples], np.int32)


def _pick(sentences: Sequence[str], share: float) -> set[str]:
    """Chooses the held-out sentences from distinct sentences."""
    different = np.array(sentences, object)
    # All NumPy versions give the same raw output of a bit generator, but shuffles may change.
    order = np.argsort(np.random.Philox(key=0).random_raw(len(different)), kind="stable")
    return set(different[order[: round(share * len(different))]])
