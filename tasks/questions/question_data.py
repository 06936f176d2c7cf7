"""Question answering's data: SQuAD's JSON as tokens and windows in memory."""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from runner import inputs
from runner.core import console
from runner.errors import ConfigError
from runner.storage import data_copies
from tasks.files import fetching
from tasks.questions import made_up_questions, question_tokens, question_windows, squad, squad_score

_MADE_UP = {True: (3000, 1), False: (150, 2)}  # is_training: count and seed


@dataclasses.dataclass
class QuestionData(inputs.FoldedData):
    """The questions to read, and their processing.

    `is_training` must be set. `input_path` is one file of SQuAD's JSON, version 1.1 or 2. If it is
    empty, the questions are synthetic and easy for any reader: 3,000 for training, 150 for
    evaluation. An example is a window of a context, with a question about it. `folds` split the
    articles, or the contexts of the synthetic training questions.

    Attributes:
        vocab_file: a vocabulary of pieces for `bert`: WordPiece, or a SentencePiece model
            (`.model`). Empty: words.
        lower_case: whether the vocabulary of pieces is lower-cased.
        max_context: the maximum number of tokens in a window.
        stride: the number of tokens between the starts of consecutive windows.
        max_question: the maximum number of tokens in a question. The rest is cut off.
        unanswerable: whether contexts may hold no answer, as in version 2. Training then includes
            windows without an answer, and if there is no answer, an empty prediction is correct.
        wrong_offsets: what to do with an answer whose offset does not match the text: 'skip' trains
            without it, 'mend' takes the nearest occurrence of its text, 'refuse' raises an error.
        predictions: a file for the answers of each complete evaluation, in SQuAD's prediction
            format (JSON), relative to the working directory of the evaluating process. Empty: none.
        fetch: files to download first if they are missing.
        cache_folder: a directory that caches tokens. Empty: no cache.
    """

    SOURCE_FIELDS = (*inputs.FoldedData.SOURCE_FIELDS, "fetch")

    vocab_file: str = ""
    lower_case: bool = True
    max_context: int = 400
    stride: int = 200
    max_question: int = 40
    unanswerable: bool = False
    wrong_offsets: str = "skip"
    predictions: str = ""
    fetch: tuple[fetching.RemoteFile, ...] = ()
    cache_folder: str = ""

    def once(self) -> "QuestionData":
        """The same questions for one pass in order, including those without a located answer.

        Raises:
            ConfigError: the questions are synthetic.
        """
        if not self.input_path and not self.folds:
            raise ConfigError(
                "the synthetic training questions are only for training: set "
                "QuestionData.input_path"
            )
        return super().once()

    def check(self) -> None:
        """Raises ConfigError for settings that are out of range. Reads no data."""
        _check(self)

    def size(self) -> int:
        """The number of windows. For training data, only those used in training.

        Raises:
            ConfigError: raised by `read`.
        """
        return len(read(self).windows)


@dataclasses.dataclass(frozen=True)
class Questions:
    """Data in host memory.

    Attributes:
        name: the source of the data.
        squad: contexts and questions.
        tokens: the tokens of both.
        windows: the examples.
    """

    name: str
    squad: squad.Squad
    tokens: question_tokens.Tokenized
    windows: question_windows.Windows

    def text(self, window: int, start: int, end: int) -> str:
        """The text from token `start` to `end` of a window, counted from 1. Empty for 0."""
        question = self.squad.questions[self.windows.question[window]]
        return self.squad.contexts[question.context][self.place(window, start, end)]

    def place(self, window: int, start: int, end: int) -> slice:
        """The characters of the context that `text` returns."""
        if not start or not self.windows.length[window]:
            return slice(0, 0)
        contexts, first = self.tokens.contexts, self.windows.first[window] - 1
        return slice(int(contexts.starts[first + start]), int(contexts.ends[first + end]))

    def by_id(self, texts: Mapping[int, str]) -> dict[str, str]:
        """Texts by question id instead of question number, in the questions' order."""
        return {self.squad.questions[number].id: texts[number] for number in sorted(texts)}


class _Source(NamedTuple):
    """Identifies questions. Equal sources hold equal questions."""

    input_path: str
    is_training: bool
    vocab_file: str
    lower_case: bool
    max_context: int
    stride: int
    unanswerable: bool
    wrong_offsets: str
    cache_folder: str
    side: inputs.Fold | None
    changed: tuple[int, ...]  # modification time of each file


def read(config: QuestionData) -> Questions:
    """Reads and tokenizes the configured questions, only once unless the files change.

    Counts faulty data that can be skipped, and reports them on stderr in one line.

    Raises:
        ConfigError: a setting is out of range, or a file is missing or invalid.
    """
    _check(config)
    fetching.fetch(config.fetch)
    files = [_local(name) for name in (config.input_path, config.vocab_file) if name]
    changed = tuple(file.stat().st_mtime_ns if file.is_file() else 0 for file in files)
    own = [name for name in _Source._fields if name not in ("side", "changed")]
    values = {name: getattr(config, name) for name in own}
    return _read(_Source(**values, side=config.side(), changed=changed))


def _check(config: QuestionData) -> None:
    if config.is_training is None:
        raise ConfigError(
            "QuestionData.is_training: set it to True for train_data, False for validation_data"
        )
    if not isinstance(config.input_path, str):
        raise ConfigError(f"QuestionData.input_path={config.input_path!r}: expected one file")
    if config.max_context < 1 or config.max_question < 1:
        raise ConfigError(
            f"QuestionData.max_context={config.max_context}, max_question={config.max_question}:"
            " both must be 1 or more"
        )
    if not 0 < config.stride <= config.max_context:
        raise ConfigError(
            f"QuestionData.stride={config.stride}: must be from 1 to"
            f" max_context={config.max_context}, or windows would leave gaps"
        )
    if config.wrong_offsets not in squad.WRONG_OFFSETS:
        raise ConfigError(
            f"QuestionData.wrong_offsets={config.wrong_offsets!r}: expected one of"
            f" {', '.join(squad.WRONG_OFFSETS)}"
        )
    if config.predictions and config.is_training:
        raise ConfigError("QuestionData.predictions is for data that are evaluated")
    inputs.refuse(config, ("num_examples",), "the windows are counted")


def _local(path: str) -> Path:
    return data_copies.local(path, "QuestionData")


@functools.lru_cache(maxsize=8)
def _read(source: _Source) -> Questions:
    name = source.input_path or "the synthetic questions"
    if source.input_path:
        data = squad.read(_local(source.input_path))
    else:
        count, seed = _MADE_UP[source.is_training or source.side is not None]
        data = squad.parse(made_up_questions.document(count, seed=seed), name)
        data = data._replace(articles=list(range(len(data.contexts))))
    if source.side:
        data = _of_side(data, source.side)
    learned = data.to_learn() if source.unanswerable else data
    placed = squad.place(learned, source.wrong_offsets, name)
    tokens = question_tokens.tokenize(
        data,
        files=[_local(source.input_path)] if source.input_path else [],
        vocab_file=source.vocab_file,
        lower_case=source.lower_case,
        cache_folder=source.cache_folder,
        side=repr(source.side) if source.side else "",
    )
    windows = question_windows.cut(
        data,
        tokens.contexts,
        placed.spans,
        size=source.max_context,
        stride=source.stride,
        unanswerable=source.unanswerable,
    )
    if source.is_training:
        windows = windows.only(windows.start != question_windows.UNKNOWN)
    _report(
        name, placed, _without(data, windows, source, placed.skipped), _contradicting(data, source)
    )
    return Questions(name, data, tokens, windows)


def _of_side(data: squad.Squad, side: inputs.Fold) -> squad.Squad:
    articles = np.array([data.articles[question.context] for question in data.questions])
    index = side.members(len(data.questions), groups=articles)
    return data.only(set(articles[index].tolist()))


def _without(
    data: squad.Squad, windows: question_windows.Windows, source: _Source, skipped: int
) -> tuple[int, str]:
    """Returns the number of unusable questions and the consequence for them."""
    if source.is_training:
        missing = len(data.questions) - len(np.unique(windows.question))
        lacking, fate = "to learn from", "without a usable answer: not used for training"
    else:
        missing = sum(not is_scored(each, source.unanswerable) for each in data.questions)
        lacking, fate = "to be scored against", "without an answer: not scored"
    if missing == len(data.questions):
        wrong = f" ({skipped} with wrong offsets)" if skipped else ""
        raise ConfigError(
            f"{source.input_path}: none of {missing} questions has an answer {lacking}{wrong}"
        )
    return missing, fate


def _contradicting(data: squad.Squad, source: _Source) -> tuple[int, str]:
    """Returns the number of questions marked as unanswerable despite answers, and their fate."""
    count = sum(
        question.impossible and any(squad_score.normalize(text) for text, _ in question.answers)
        for question in data.questions
    )
    fate = "learned as unanswerable" if source.is_training else "scored by the answers"
    return count * source.unanswerable, f"marked as unanswerable, with answers: {fate}"


def is_scored(question: squad.Question, unanswerable: bool) -> bool:
    """Whether a prediction can be correct or wrong."""
    return bool(question.answers) or unanswerable


def _report(name: str, placed: squad.Placed, *questions: tuple[int, str]) -> None:
    counts = (
        (placed.mended, "answer", "with a wrong offset in the file: found at another position"),
        (placed.skipped, "answer", "with a wrong offset in the file: skipped"),
        *((count, "question", why) for count, why in questions),
    )
    parts = [f"{count} {what}{'s' * (count > 1)} {why}" for count, what, why in counts if count]
    if parts:
        console.say(f"{name}: {'; '.join(parts)}")
