"""Readers: networks that find answers, and the conversion of texts to their inputs."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import numpy as np
import tf_keras
from official.modeling.hyperparams import oneof

from runner.errors import ConfigError
from tasks.questions import (
    bert_reader,
    bidaf_reader,
    drqa_reader,
    fusion_net_reader,
    match_lstm_reader,
    mnemonic_reader,
    qanet_reader,
    question_data,
    question_serving,
    r_net_reader,
    word_features,
    word_reader,
)
from tasks.text import bert, embeddings, vocabularies


@dataclasses.dataclass
class ReaderConfig(oneof.OneOfConfig):
    """The kind of reader, and its settings.

    Attributes:
        type: one of the following.
        match_lstm: read when `type` is 'match_lstm', which is fast on a CPU.
        bidaf: read when `type` is 'bidaf'.
        drqa: read when `type` is 'drqa', the document reader of DrQA.
        fusion_net: read when `type` is 'fusion_net'.
        mnemonic: read when `type` is 'mnemonic', which is Mnemonic Reader.
        qanet: read when `type` is 'qanet'.
        r_net: read when `type` is 'r_net'.
        bert: read when `type` is 'bert', the only reader that uses pieces.
    """

    type: str = "match_lstm"
    match_lstm: match_lstm_reader.MatchLSTMConfig = dataclasses.field(
        default_factory=match_lstm_reader.MatchLSTMConfig
    )
    bidaf: bidaf_reader.BiDAFConfig = dataclasses.field(default_factory=bidaf_reader.BiDAFConfig)
    drqa: drqa_reader.DrQAConfig = dataclasses.field(default_factory=drqa_reader.DrQAConfig)
    fusion_net: fusion_net_reader.FusionNetConfig = dataclasses.field(
        default_factory=fusion_net_reader.FusionNetConfig
    )
    mnemonic: mnemonic_reader.MnemonicConfig = dataclasses.field(
        default_factory=mnemonic_reader.MnemonicConfig
    )
    qanet: qanet_reader.QANetConfig = dataclasses.field(default_factory=qanet_reader.QANetConfig)
    r_net: r_net_reader.RNetConfig = dataclasses.field(default_factory=r_net_reader.RNetConfig)
    bert: bert_reader.BertReaderConfig = dataclasses.field(
        default_factory=bert_reader.BertReaderConfig
    )


OF_WORDS: Mapping[str, Callable[..., tf_keras.Model]] = {
    "match_lstm": match_lstm_reader.build,
    "bidaf": bidaf_reader.build,
    "drqa": drqa_reader.build,
    "fusion_net": fusion_net_reader.build,
    "mnemonic": mnemonic_reader.build,
    "qanet": qanet_reader.build,
    "r_net": r_net_reader.build,
}
"""Functions that build the networks that read words, by `ReaderConfig.type`."""


class Reader(Protocol):
    """Builds a network and its inputs.

    Attributes:
        pad: the id of padding.
    """

    pad: int

    def check(self, data: question_data.QuestionData) -> None:
        """Raises ConfigError if the data's settings do not match the network's."""

    def table(self, questions: question_data.Questions) -> np.ndarray | None:
        """The network's input for each id of the data, [ids, columns]. None: the id itself."""

    def tokens(self) -> question_serving.Tokens:
        """Returns the function that converts texts to the network's inputs, in a graph."""

    def network(self) -> tf_keras.Model:
        """Builds a model from `question` and `context`, [batch, tokens(, columns)], to logits.

        The logits of the answer's start and end are float32 [batch, 1 + tokens, 2]. Position 0
        means no answer.
        """


def make(config: ReaderConfig, *data: question_data.QuestionData) -> Reader:
    """Returns the configured reader.

    Args:
        config: its type and settings.
        data: the training data, then further data whose words the vocabulary should include.

    Raises:
        ConfigError: the type is unknown, or the data have another kind of tokens.
    """
    reader: Reader
    if config.type == "bert":
        reader = PieceReader(config.bert, data[0])
    elif config.type in OF_WORDS:
        reader = WordReader(config, *data)
    else:
        known = ", ".join(map(repr, OF_WORDS))
        raise ConfigError(f"ReaderConfig.type={config.type!r}: expected {known} or 'bert'")
    for source in data:
        reader.check(source)
    return reader


class WordReader:
    """Reads words, with vectors for the words of the given data."""

    pad = 0

    def __init__(self, config: ReaderConfig, *data: question_data.QuestionData) -> None:
        self._kind: str = config.type
        self._config: word_reader.WordReaderConfig = config.get()
        self._data = data

    def check(self, data: question_data.QuestionData) -> None:
        """See `Reader`."""
        if data.vocab_file:
            raise ConfigError(
                f"QuestionData.vocab_file={data.vocab_file!r} is for ReaderConfig.type='bert':"
                f" {self._kind!r} reads words"
            )
        _check_alike(data, self._data[0], ("unanswerable",))

    def table(self, questions: question_data.Questions) -> np.ndarray | None:
        """Rows of `word_features`."""
        words, characters = questions.tokens.words, self._config.characters
        return word_features.table(words, self.vectors.vocabulary, characters)

    def tokens(self) -> question_serving.Tokens:
        """See `Reader`."""
        return question_serving.WordTokens(self.vectors.vocabulary, self._config.characters)

    def network(self) -> tf_keras.Model:
        """See `match_lstm_reader.build`."""
        build, unanswerable = OF_WORDS[self._kind], self._data[0].unanswerable
        return build(self._config, self.vectors, unanswerable=unanswerable)

    @functools.cached_property
    def vectors(self) -> embeddings.Embeddings:
        """The vectors of all words of the data."""
        return embeddings.load(self._config.words, _words(self._data))


class PieceReader:
    """Reads WordPiece or SentencePiece, with BERT or a similar encoder."""

    def __init__(
        self, config: bert_reader.BertReaderConfig, data: question_data.QuestionData
    ) -> None:
        if not data.vocab_file:
            raise ConfigError(
                "QuestionData.vocab_file: ReaderConfig.type='bert' needs a vocabulary of pieces"
            )
        self._config = config
        self._data = data
        self.vocabulary = vocabularies.load(data.vocab_file, lower_case=data.lower_case)
        self.pad = self.vocabulary.pad

    def check(self, data: question_data.QuestionData) -> None:
        """See `Reader`."""
        _check_alike(data, self._data, ("vocab_file", "lower_case", "unanswerable"))
        pieces = data.max_question + data.max_context + bert_reader.SPECIAL
        places = bert.sizes(self._config.encoder).positions
        if pieces > places:
            raise ConfigError(
                f"QuestionData.max_question={data.max_question} and max_context={data.max_context}"
                f" and {bert_reader.SPECIAL} special pieces make {pieces}; the encoder reads"
                f" at most {places} (max_position_embeddings or max_sequence_length)"
            )

    def table(self, questions: question_data.Questions) -> np.ndarray | None:
        """Returns None, because pieces are read by their ids."""
        del questions
        return None

    def tokens(self) -> question_serving.Tokens:
        """See `Reader`."""
        return question_serving.PieceTokens(self.vocabulary)

    def network(self) -> tf_keras.Model:
        """See `bert_reader.build`."""
        unanswerable = self._data.unanswerable
        return bert_reader.build(self._config, self.vocabulary, unanswerable=unanswerable)


def _check_alike(
    data: question_data.QuestionData, learned: question_data.QuestionData, fields: Iterable[str]
) -> None:
    for name in fields:
        value, expected = getattr(data, name), getattr(learned, name)
        if value != expected:
            raise ConfigError(
                f"QuestionData.{name}={value!r}, but the training data have {expected!r}"
            )


def _words(data: Iterable[question_data.QuestionData]) -> Iterator[str]:
    """Yields every word of the data, with repetitions."""
    for source in data:
        tokens = question_data.read(source).tokens
        for texts in (tokens.contexts, tokens.questions):
            yield from tokens.words[texts.ids].tolist()
