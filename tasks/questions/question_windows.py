"""Windows: the parts of a long context that a reader sees one at a time, with their answers."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from tasks.questions import question_tokens, squad

NOWHERE = 0  # the position of an answer outside the window, as for "no answer" in SQuAD v2
UNKNOWN = -1  # the position of the answer is not known


@dataclasses.dataclass(frozen=True)
class Windows:
    """Windows in the order of their questions. All arrays are [windows] int32.

    Attributes:
        question: the index of the window's question.
        first: the index of the window's first token, among those of all contexts.
        length: the number of tokens.
        start: the answer's first token, counted from 1 within the window, or NOWHERE or UNKNOWN.
        end: the answer's last token, in the same way.
    """

    question: np.ndarray
    first: np.ndarray
    length: np.ndarray
    start: np.ndarray
    end: np.ndarray

    def __len__(self) -> int:
        return len(self.question)

    def only(self, kept: np.ndarray) -> "Windows":
        """The windows for which `kept`, [windows] bool, is true."""
        return Windows(*(getattr(self, field.name)[kept] for field in dataclasses.fields(self)))


def cut(
    data: squad.Squad,
    contexts: question_tokens.Tokens,
    spans: list[tuple[int, int] | None],
    *,
    size: int,
    stride: int,
    unanswerable: bool,
) -> Windows:
    """Cuts contexts into windows for each of their questions.

    Args:
        data: the questions.
        contexts: the tokens of their contexts.
        spans: for each question, its answer's characters in the context. None if unknown.
        size: the maximum number of tokens in a window.
        stride: the number of tokens between the starts of consecutive windows.
        unanswerable: whether a window without the answer is labelled NOWHERE.
    """
    rows: list[tuple[int, int, int, int, int]] = []
    for number, (question, span) in enumerate(zip(data.questions, spans, strict=True)):
        tokens = contexts.of(question.context)
        answer = _tokens_of(span, contexts.starts[tokens], contexts.ends[tokens]) if span else None
        parts = list(_parts(tokens.stop - tokens.start, size, stride))
        places = [_place(answer, first, end) for first, end in parts]
        told = unanswerable and (question.impossible or any(places))
        for (first, end), place in zip(parts, places, strict=True):
            label = place or ((NOWHERE, NOWHERE) if told else (UNKNOWN, UNKNOWN))
            rows.append((number, tokens.start + first, end - first, *label))
    return Windows(*np.array(rows, np.int32).reshape(-1, 5).T)


def _parts(length: int, size: int, stride: int) -> Iterator[tuple[int, int]]:
    """Yields each window's first token and the one after its last, for at least one window."""
    first = 0
    while True:
        yield first, min(first + size, length)
        if first + size >= length:
            return
        first += stride


def _tokens_of(
    span: tuple[int, int], starts: np.ndarray, ends: np.ndarray
) -> tuple[int, int] | None:
    """Returns the first and last token that a span of characters touches. None if it is blank."""
    first = int(np.searchsorted(ends, span[0], side="right"))
    last = int(np.searchsorted(starts, span[1], side="left")) - 1
    return (first, last) if first <= last else None


def _place(answer: tuple[int, int] | None, first: int, end: int) -> tuple[int, int] | None:
    """Returns the answer's tokens, counted from 1 in the window. None unless all are inside."""
    if answer is None or answer[0] < first or answer[1] >= end:
        return None
    return answer[0] - first + 1, answer[1] - first + 1
