"""Contexts and questions as tokens, each with its position in the text."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from tasks.files import cached
from tasks.questions import squad
from tasks.text import vocabularies, words

_Columns = tuple[np.ndarray, np.ndarray, np.ndarray]  # ids, starts, ends of a text's tokens
_VERSION = 1  # version of the cached data, to be raised when tokens change


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The concatenated tokens of many texts.

    Attributes:
        ids: [tokens] int32.
        starts: [tokens] int32, the position of each token's first character in its text.
        ends: [tokens] int32, the position after each token's last character.
        first: [texts + 1] int64, the index of each text's first token.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    first: np.ndarray

    def of(self, text: int) -> slice:
        """The slice of a text's tokens."""
        return slice(int(self.first[text]), int(self.first[text + 1]))


@dataclasses.dataclass(frozen=True)
class Tokenized:
    """A source's texts as tokens.

    Attributes:
        contexts: the contexts' tokens.
        questions: the questions' tokens.
        words: [distinct words] the word of each id. 0 is padding. Empty if ids refer to a
            vocabulary of pieces.
    """

    contexts: Tokens
    questions: Tokens
    words: np.ndarray


def tokenize(
    data: squad.Squad,
    *,
    files: Sequence[Path],
    vocab_file: str,
    lower_case: bool,
    cache_folder: str,
    side: str = "",
) -> Tokenized:
    """Tokenizes contexts and questions, or takes the result from a cache.

    Args:
        data: contexts and questions.
        files: the files they were read from. If empty, the result is not cached.
        vocab_file: the vocabulary of pieces. Empty: words.
        lower_case: whether the vocabulary is lower-cased.
        cache_folder: the cache's directory. If empty, nothing is cached.
        side: identifies the subset of the files' questions, if not all are used.

    Raises:
        ConfigError: raised by `vocabularies.load`.
    """
    if vocab_file:
        files = [*files, Path(vocab_file)] if files else files
        make = functools.partial(_pieces, data, vocab_file, lower_case)
    else:
        make = functools.partial(_words, data)
    settings: dict[str, object] = {"wordpiece": bool(vocab_file), "lower_case": lower_case}
    if side:
        settings["side"] = side
    arrays = cached.cached(
        cache_folder if files else "",
        "questions",
        files=files,
        settings=settings,
        version=_VERSION,
        make=make,
    )
    return Tokenized(
        _unpacked(arrays, "contexts"),
        _unpacked(arrays, "questions"),
        arrays.get("words", np.array([], str)),
    )


def _words(data: squad.Squad) -> dict[str, np.ndarray]:
    numbers = {"": 0}

    def parts(texts: Sequence[str]) -> list[_Columns]:
        found = [words.tokenize(text) for text in texts]
        return [
            (
                _int32(numbers.setdefault(token.text, len(numbers)) for token in tokens),
                _int32(token.start for token in tokens),
                _int32(token.end for token in tokens),
            )
            for tokens in found
        ]

    return {**_packed(data, parts), "words": np.array(list(numbers))}


def _pieces(data: squad.Squad, vocab_file: str, lower_case: bool) -> dict[str, np.ndarray]:
    tokenizer = vocabularies.load(vocab_file, lower_case=lower_case)
    return _packed(
        data,
        lambda texts: [(one.ids, one.starts, one.ends) for one in tokenizer.encode(texts)],
    )


def _packed(
    data: squad.Squad, parts: Callable[[Sequence[str]], list[_Columns]]
) -> dict[str, np.ndarray]:
    """Packs both kinds of texts as flat arrays, by the names that `_unpacked` expects."""
    packed = {}
    questions = [question.text for question in data.questions]
    for kind, texts in (("contexts", data.contexts), ("questions", questions)):
        each = parts(texts)
        packed[f"{kind}_first"] = np.cumsum([0, *(len(ids) for ids, _, _ in each)])
        for column, name in enumerate(("ids", "starts", "ends")):
            columns = [one[column] for one in each]
            packed[f"{kind}_{name}"] = np.concatenate([np.zeros(0, np.int32), *columns])
    return packed


def _unpacked(arrays: Mapping[str, np.ndarray], kind: str) -> Tokens:
    return Tokens(*(arrays[f"{kind}_{field.name}"] for field in dataclasses.fields(Tokens)))


def _int32(numbers: Iterable[int]) -> np.ndarray:
    return np.fromiter(numbers, np.int32)
