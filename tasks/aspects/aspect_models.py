"""Aspect sentiment models, chosen by configuration. Each has a separate module."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import tf_keras
from official.modeling.hyperparams import base_config, oneof

from runner.core import console
from runner.errors import ConfigError
from tasks.aspects import (
    aen,
    aspect_bert,
    aspect_features,
    atae_lstm,
    attention_lstm,
    fast_lsa,
    ian,
    mem_net,
    ram,
    td_lstm,
    word_layers,
)
from tasks.aspects.aen import AENConfig  # in ModelConfig, `aen` is a field
from tasks.aspects.attention_lstm import AttentionLSTMConfig  # stored configurations name it here
from tasks.aspects.fast_lsa import FastLsaConfig
from tasks.aspects.mem_net import MemNetConfig
from tasks.aspects.ram import RAMConfig
from tasks.aspects.td_lstm import TDLSTMConfig
from tasks.text import embeddings, vocabularies, words

_BUILDERS: dict[str, Callable[[Any, Any, int], tf_keras.Model]] = {
    "attention_lstm": attention_lstm.build,
    "atae_lstm": atae_lstm.build,
    "td_lstm": td_lstm.build,
    "ian": ian.build,
    "mem_net": mem_net.build,
    "ram": ram.build,
    "aen": aen.build,
    "bert_base": aspect_bert.build_base,
    "bert_spc": aspect_bert.build_spc,
    "lcf_bert": aspect_bert.build_lcf,
    "fast_lsa": fast_lsa.build,
}


@dataclasses.dataclass
class ModelConfig(oneof.OneOfConfig):
    """The kind of model, and its settings.

    Attributes:
        type: the name of one of the fields below, which is then read. Models with word vectors are
            'attention_lstm', 'atae_lstm', 'td_lstm' (also TC-LSTM), 'ian', 'mem_net', 'ram' and
            'aen'. Models with BERT are 'bert_base', 'bert_spc', 'lcf_bert' and 'fast_lsa'.
    """

    type: str = "attention_lstm"
    attention_lstm: AttentionLSTMConfig = dataclasses.field(default_factory=AttentionLSTMConfig)
    bert_spc: aspect_bert.BertConfig = dataclasses.field(default_factory=aspect_bert.BertConfig)
    lcf_bert: aspect_bert.LcfBertConfig = dataclasses.field(
        default_factory=aspect_bert.LcfBertConfig
    )
    bert_base: aspect_bert.BertConfig = dataclasses.field(default_factory=aspect_bert.BertConfig)
    fast_lsa: FastLsaConfig = dataclasses.field(default_factory=FastLsaConfig)
    atae_lstm: word_layers.UnitsConfig = dataclasses.field(default_factory=word_layers.UnitsConfig)
    td_lstm: TDLSTMConfig = dataclasses.field(default_factory=TDLSTMConfig)
    ian: word_layers.UnitsConfig = dataclasses.field(default_factory=word_layers.UnitsConfig)
    mem_net: MemNetConfig = dataclasses.field(default_factory=MemNetConfig)
    ram: RAMConfig = dataclasses.field(default_factory=RAMConfig)
    aen: AENConfig = dataclasses.field(default_factory=AENConfig)


def build_reader(config: ModelConfig, window: int, texts: Iterable[str]) -> aspect_features.Reader:
    """Builds the reader that creates features for the configured model.

    Args:
        config: the model.
        window: as for `aspect_features.Reader`.
        texts: texts whose words the vocabulary must include.

    Raises:
        ConfigError: the type is unknown, or the vocabulary or the vectors cannot be read.
    """
    if config.type not in _BUILDERS:
        raise ConfigError(
            f"ModelConfig.type={config.type!r}: expected one of {', '.join(_BUILDERS)}"
        )
    own: base_config.Config = config.get()
    if isinstance(own, aspect_bert.BertConfig):
        pieces = vocabularies.load(own.vocab_file, lower_case=own.lower_case, texts=texts)
        if not own.vocab_file:
            kind = type(own).__name__
            console.say(
                f"{kind}.vocab_file is empty: the pieces are the data's words, {pieces.size:,}"
            )
        neighbours = isinstance(own, FastLsaConfig)
        return aspect_features.PairReader(pieces, window, reads_neighbours=neighbours)
    tokens = [token.text for text in texts for token in words.tokenize(text)]
    vectors = embeddings.load(own.vectors, tokens)
    if own.own_vectors:
        vectors = _all_words(vectors, tokens)
    return aspect_features.SentenceReader(vectors, window)


def build(config: ModelConfig, reader: aspect_features.Reader, classes: int) -> tf_keras.Model:
    """Builds the configured model.

    Args:
        config: the model and its settings.
        reader: the result of `build_reader` for the same configuration.
        classes: number of outputs.

    Returns:
        A model from the reader's features to float32 logits [batch, classes].

    Raises:
        ConfigError: a value is out of range.
    """
    source = reader.vectors if isinstance(reader, aspect_features.SentenceReader) else reader
    return _BUILDERS[config.type](config.get(), source, classes)


def _all_words(vectors: embeddings.Embeddings, tokens: Iterable[str]) -> embeddings.Embeddings:
    """Adds rows for all other words of the data, copied from the row of unknown words."""
    lower_case = vectors.vocabulary.lower_case
    cased = (token.lower() if lower_case else token for token in tokens)
    vocabulary = embeddings.Vocabulary(dict.fromkeys(cased), lower_case=lower_case)
    matrix = vectors.matrix
    if matrix is not None:
        rows = vectors.vocabulary.ids(vocabulary.words)
        matrix = matrix[[embeddings.PADDING, embeddings.UNKNOWN, *rows]]
    return dataclasses.replace(vectors, vocabulary=vocabulary, matrix=matrix)
