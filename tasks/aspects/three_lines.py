"""Files in which three lines form an example.

A sentence with `$T$` in place of the aspect, the aspect, and its polarity:

    The $T$ was good , the service was not .
    food
    Positive

A sixteenth of the Twitter set (Dong et al., 2014) repeats `$T$`. As in ABSA-PyTorch, the polarity
is about the first `$T$`, and the others are replaced by the aspect's words. (PyABSA drops such
sentences in training.)
"""

import codecs
import functools
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from runner.core import console
from runner.errors import ConfigError
from runner.storage import data_copies

MARK = "$T$"
REPEATED = ("first", "skip", "refuse")
BAD = ("skip", "refuse")
_UNLABELLED = "-100"  # PyABSA's mark
_SHOWN = 5  # line numbers of skipped lines

_THREE = f"three lines make an example: a sentence with {MARK}, the aspect, its polarity"
_REPEATED = f"more than one {MARK}"


class Example(NamedTuple):
    """A sentence, split around its aspect.

    Attributes:
        left: the text before the aspect.
        aspect: the text that the polarity is about.
        right: the text after the aspect.
        polarity: the name of its class.
        place: the location of the polarity, as file:line.
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


class _Parsed(NamedTuple):
    """The content of a file.

    Attributes:
        examples: the valid ones, with the number of the sentence's line.
        repeated: the lines of examples in which the mark is repeated.
        bad: the lines that form no example, by problem.
    """

    examples: list[tuple[int, Example]]
    repeated: list[int]
    bad: dict[str, list[int]]


def read(
    path: str, *, repeated: str = "first", bad: str = "skip", polarities: Sequence[str] = ()
) -> list[Example]:
    """Reads the examples of a file. Reports skipped lines on stderr, once.

    Args:
        path: the file.
        repeated: what to do with sentences in which the mark is repeated: one of `REPEATED`.
        bad: what to do with lines that form no example: one of `BAD`.
        polarities: the valid polarities. Examples with another polarity are bad. Empty: any.

    Raises:
        ConfigError: the file is missing, has no examples, or has rejected ones. The message lists
            the lines of all rejected examples.
    """
    file = data_copies.local(path, "AspectData.input_path")
    if not file.is_file():
        raise ConfigError(f"AspectData.input_path: there is no file {path}")
    return list(_read(path, repeated, bad, tuple(polarities), file.stat().st_mtime_ns))


@functools.lru_cache(maxsize=16)
def _read(
    path: str, repeated: str, bad: str, polarities: tuple[str, ...], changed: int
) -> tuple[Example, ...]:
    del changed  # a changed file is read again
    parsed = _parse(path, polarities)
    marks = {_REPEATED: parsed.repeated} if parsed.repeated else {}
    refused = {**(parsed.bad if bad == "refuse" else {}), **(marks if repeated == "refuse" else {})}
    if refused:
        kinds = "".join(f"\n  {_said(kind, lines)}" for kind, lines in refused.items())
        raise ConfigError(
            f"{path}: {_count(refused)} rejected ({_THREE}; to accept the file, set "
            f"AspectData.bad_examples='skip' and repeated_marks='first'):{kinds}"
        )
    skipped = {**parsed.bad, **(marks if repeated == "skip" else {})}
    without = set(parsed.repeated if repeated == "skip" else ())
    examples = tuple(example for line, example in parsed.examples if line not in without)
    left_out = "; ".join(_said(kind, lines, _SHOWN) for kind, lines in skipped.items())
    if not examples:
        raise ConfigError(f"{path} has no example; {_THREE}{': ' * bool(skipped)}{left_out}")
    said = [f"{_count(skipped)} skipped: {left_out}"] if skipped else []
    if parsed.repeated and repeated == "first":
        said.append(f"{_said(_REPEATED, parsed.repeated, _SHOWN)}: the first is the aspect")
    if said:
        console.say(f"{path}: {'; '.join(said)}")
    return examples


def _parse(path: str, polarities: Sequence[str]) -> _Parsed:
    """Parses a file. After lines that form no example, it continues at the next mark."""
    lines = _lines(data_copies.local(path, "AspectData.input_path"))
    parsed = _Parsed([], [], {})
    at = 0
    while at < len(lines):
        sentence, *rest = lines[at : at + 3]
        own = list(itertools.takewhile(lambda line: line is None or MARK not in line, rest))
        number, at = at + 1, at + 1 + len(own)
        if sentence == "":
            at = number  # blank lines between examples
            continue
        if problem := _problem(sentence, own, polarities):
            parsed.bad.setdefault(problem, []).append(number)
            continue
        assert sentence
        aspect, polarity = (str(line) for line in own)
        left, _, right = sentence.partition(MARK)
        if MARK in right:
            parsed.repeated.append(number)
        example = Example(
            left, aspect, right.replace(MARK, aspect), polarity, f"{path}:{number + 2}"
        )
        parsed.examples.append((number, example))
    return parsed


def _problem(sentence: str | None, own: Sequence[str | None], polarities: Sequence[str]) -> str:
    """Describes why a sentence and the lines after it form no example. Empty if they form one."""
    if sentence is None or None in own:
        return "bytes that are not UTF-8"
    if MARK not in sentence:
        return f"no {MARK} in the sentence"
    for line, what in itertools.zip_longest(own, ("aspect", "polarity")):
        if not line:
            return f"no {what} after the sentence"
    if own[1] == _UNLABELLED:
        return f"the polarity {_UNLABELLED}, which means unlabelled"
    return f"the polarity {own[1]!r}" if polarities and own[1] not in polarities else ""


def _lines(path: Path) -> list[str | None]:
    """Reads the lines of a file, stripped of blanks. Lines that are not UTF-8 become None.

    Raises:
        ConfigError: the file is UTF-16, which some editors on Windows write.
    """
    lines: list[str | None] = []
    content = path.read_bytes()
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ConfigError(f"{path} is UTF-16; save it as UTF-8")
    for line in content.removeprefix(codecs.BOM_UTF8).split(b"\n"):
        try:
            lines.append(line.decode().strip())
        except UnicodeDecodeError:
            lines.append(None)
    return lines


def _count(kinds: dict[str, list[int]]) -> str:
    number = sum(map(len, kinds.values()))
    return f"{number:,} bad example{'s' * (number > 1)}"


def _said(kind: str, lines: Sequence[int], most: int | None = None) -> str:
    return f"{len(lines):,} with {kind} ({_of_lines(lines, most)})"


def _of_lines(lines: Sequence[int], most: int | None = None) -> str:
    """Formats line numbers, such as `lines 1, 4 and 12 more`."""
    shown: Iterable[int] = lines[:most]
    more = f" and {len(lines) - most:,} more" if most and len(lines) > most else ""
    return f"line{'s' * (len(lines) > 1)} {', '.join(map(str, shown))}{more}"
