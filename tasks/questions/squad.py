"""Questions in SQuAD's JSON, version 1.1 or 2, and the positions of their answers.

Rajpurkar et al., "SQuAD: 100,000+ questions for machine comprehension of text", 2016; "Know what
you don't know: unanswerable questions for SQuAD", 2018.
"""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from runner.errors import ConfigError

WRONG_OFFSETS = ("skip", "mend", "refuse")


class Answer(NamedTuple):
    """A correct answer: its text, and its offset in the context, in characters, from the file."""

    text: str
    start: int


class Question(NamedTuple):
    """A question.

    Attributes:
        id: the key of its prediction.
        text: the question itself.
        context: the index of its context.
        answers: the correct ones. Empty if none was given.
        impossible: whether it is marked as unanswerable (version 2). SQuAD's script ignores this
            mark and scores by the answers.
    """

    id: str
    text: str
    context: int
    answers: tuple[Answer, ...]
    impossible: bool


class Squad(NamedTuple):
    """The content of a file.

    Attributes:
        contexts: texts.
        questions: questions about them.
        articles: for each context, the index of its article.
    """

    contexts: list[str]
    questions: list[Question]
    articles: list[int]

    def only(self, articles: Collection[int]) -> "Squad":
        """The contexts of some articles, and the questions about them."""
        kept = [number for number, one in enumerate(self.articles) if one in articles]
        places = {number: place for place, number in enumerate(kept)}
        return Squad(
            [self.contexts[number] for number in kept],
            [
                question._replace(context=places[question.context])
                for question in self.questions
                if question.context in places
            ],
            [self.articles[number] for number in kept],
        )

    def to_learn(self) -> "Squad":
        """Removes the answers that a file gives for questions marked as unanswerable."""
        learned = [
            question._replace(answers=()) if question.impossible else question
            for question in self.questions
        ]
        return self._replace(questions=learned)


class Placed(NamedTuple):
    """The positions of answers.

    Attributes:
        spans: for each question, the first character of its first usable answer and the one after
            the last. None without a usable answer.
        mended: the number of answers with a wrong offset whose text was found at another position.
        skipped: the number of answers that were skipped because of a wrong offset.
    """

    spans: list[tuple[int, int] | None]
    mended: int
    skipped: int


def read(path: Path) -> Squad:
    """Reads a file.

    Raises:
        ConfigError: it is missing, not JSON in UTF-8, or not in SQuAD's format. The message gives
            the place.
    """
    if not path.is_file():
        raise ConfigError(f"QuestionData.input_path: there is no file {path}")
    try:
        document = json.loads(path.read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    return parse(document, str(path))


def parse(document: Any, name: str) -> Squad:
    """Extracts the contexts and questions of a document.

    Args:
        document: as returned by `json.load`.
        name: the document's name, for messages.

    Raises:
        ConfigError: raised as by `read`, or because two questions have the same id.
    """
    squad, seen = Squad([], [], []), set()
    for number, (article, where) in enumerate(_each(document, "data", name)):
        for paragraph, here in _each(article, "paragraphs", where):
            squad.contexts.append(_get(paragraph, "context", str, here))
            squad.articles.append(number)
            for item, place in _each(paragraph, "qas", here):
                question = _question(item, len(squad.contexts) - 1, place)
                if question.id in seen:
                    raise ConfigError(f"{place}: duplicate id {question.id!r}")
                seen.add(question.id)
                squad.questions.append(question)
    return squad


def place(squad: Squad, wrong_offsets: str, name: str) -> Placed:
    """Locates an answer to each question in its context.

    Args:
        squad: contexts and questions.
        wrong_offsets: what to do with an answer whose offset does not match the text: 'skip' skips
            it, 'mend' takes the nearest occurrence of its text, 'refuse' raises an error.
        name: the source's name, for messages.

    Raises:
        ConfigError: with 'refuse', if an offset does not match.
    """
    spans: list[tuple[int, int] | None] = []
    mended = skipped = 0
    for question in squad.questions:
        context, span = squad.contexts[question.context], None
        for text, start in question.answers:
            found: int | None = start
            if not _stands(text, start, context):
                if wrong_offsets == "refuse":
                    raise ConfigError(
                        f"{name}: question {question.id!r}: the answer {text!r} is not at character"
                        f" {start} of its context; to continue, set"
                        " QuestionData.wrong_offsets='skip' or 'mend'"
                    )
                found = _nearest(text, start, context) if wrong_offsets == "mend" else None
                mended += found is not None
                skipped += found is None
            if span is None and found is not None:
                span = (found, found + len(text))
        spans.append(span)
    return Placed(spans, mended, skipped)


def _question(item: Any, context: int, where: str) -> Question:
    identity = _get(item, "id", str, where)
    given = item.get("answers") is not None
    answers = _each(item, "answers", where) if given else ()
    return Question(
        id=identity,
        text=_get(item, "question", str, where),
        context=context,
        answers=tuple(
            Answer(_get(answer, "text", str, place), _get(answer, "answer_start", int, place))
            for answer, place in answers
        ),
        impossible=bool(item.get("is_impossible")),
    )


def _each(parent: Any, key: str, where: str) -> Iterator[tuple[Any, str]]:
    """The members of a list, each with its path for messages."""
    for number, item in enumerate(_get(parent, key, list, where)):
        yield item, f"{where}: {key}[{number}]" if key == "data" else f"{where}.{key}[{number}]"


def _get(parent: Any, key: str, kind: type, where: str) -> Any:
    """Returns a value of a JSON object. Raises ConfigError if it is missing or of another type."""
    if not isinstance(parent, dict) or not isinstance(parent.get(key), kind):
        names = {str: "text", list: "list", int: "whole number"}
        raise ConfigError(f"{where} has no {names[kind]} {key!r}: expected SQuAD's JSON")
    return parent[key]


def _stands(text: str, start: int, context: str) -> bool:
    return bool(text.strip()) and start >= 0 and context.startswith(text, start)


def _nearest(text: str, start: int, context: str) -> int | None:
    """Finds the occurrence of `text` nearest to `start`. Returns None if there is none."""
    places, found = [], context.find(text) if text.strip() else -1
    while found >= 0:
        places.append(found)
        found = context.find(text, found + 1)
    return min(places, key=lambda place: abs(place - start), default=None)
