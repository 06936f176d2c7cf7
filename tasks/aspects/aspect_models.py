"""Aspect sentiment models, chosen by configuration; the small LSTM model is built here."""

import dataclasses
from collections.abc import Iterable

import tensorflow as tf
import tf_keras
from official.modeling.hyperparams import base_config, oneof

from runner.errors import ConfigError
from tasks.aspects import aspect_bert, aspect_features
from tasks.text import embeddings, wordpiece, words


@dataclasses.dataclass
class AttentionLSTMConfig(base_config.Config):
    """A bidirectional LSTM with attention over its states, conditioned on the aspect.

    Attributes:
        vectors: word vectors, such as GloVe's.
        own_vectors: the size of a second vector for each word of the data, learned from zeros; it
            covers words missing from the file. 0: none.
        units: the size of the LSTM in each direction.
        positions: the size of the embedding of a word's distance from the aspect.
        farthest: larger distances are clipped to this.
        dropout: the rate for the inputs, and for the features before the last layer, in [0, 1).
        l2: the penalty on the squared weights of the kernels.
    """

    vectors: embeddings.EmbeddingConfig = dataclasses.field(
        default_factory=embeddings.EmbeddingConfig
    )
    own_vectors: int = 0
    units: int = 64
    positions: int = 16
    farthest: int = 15
    dropout: float = 0.5
    l2: float = 0.0


@dataclasses.dataclass
class ModelConfig(oneof.OneOfConfig):
    """The kind of model, and its settings.

    Attributes:
        type: 'attention_lstm', 'bert_spc' or 'lcf_bert'.
        attention_lstm: read when `type` is 'attention_lstm'.
        bert_spc: read when `type` is 'bert_spc'.
        lcf_bert: read when `type` is 'lcf_bert'.
    """

    type: str = "attention_lstm"
    attention_lstm: AttentionLSTMConfig = dataclasses.field(default_factory=AttentionLSTMConfig)
    bert_spc: aspect_bert.BertConfig = dataclasses.field(default_factory=aspect_bert.BertConfig)
    lcf_bert: aspect_bert.LcfBertConfig = dataclasses.field(
        default_factory=aspect_bert.LcfBertConfig
    )


def build_reader(config: ModelConfig, window: int, texts: Iterable[str]) -> aspect_features.Reader:
    """Builds the reader that makes features for the configured model.

    Args:
        config: the model.
        window: as for `aspect_features.Reader`.
        texts: texts whose words the vocabulary must include.

    Raises:
        ConfigError: the type is unknown, or the vocabulary or the vectors cannot be read.
    """
    match config.type:
        case "attention_lstm":
            tokens = [token.text for text in texts for token in words.tokenize(text)]
            vectors = embeddings.load(config.attention_lstm.vectors, tokens)
            if config.attention_lstm.own_vectors:
                vectors = _all_words(vectors, tokens)
            return aspect_features.SentenceReader(vectors, window)
        case "bert_spc" | "lcf_bert":
            bert = config.get()
            pieces = wordpiece.WordPiece(bert.vocab_file, lower_case=bert.lower_case)
            return aspect_features.PairReader(pieces, window)
    raise ConfigError(
        f"ModelConfig.type={config.type!r}: expected 'attention_lstm', 'bert_spc' or 'lcf_bert'"
    )


def build(config: ModelConfig, reader: aspect_features.Reader, classes: int) -> tf_keras.Model:
    """The configured model.

    Args:
        config: the model and its settings.
        reader: from `build_reader`, for the same configuration.
        classes: number of outputs.

    Returns:
        A model from the reader's features to float32 logits [batch, classes].

    Raises:
        ConfigError: a value is out of range.
    """
    if isinstance(reader, aspect_features.SentenceReader):
        return build_attention_lstm(config.attention_lstm, reader.vectors, classes)
    if config.type == "bert_spc":
        return aspect_bert.build_spc(config.bert_spc, reader, classes)
    return aspect_bert.build_lcf(config.lcf_bert, reader, classes)


def build_attention_lstm(
    config: AttentionLSTMConfig, vectors: embeddings.Embeddings, classes: int
) -> tf_keras.Model:
    """An ATAE-LSTM that also sees each word's distance from the aspect.

    Wang et al., "Attention-based LSTM for aspect-level sentiment classification", 2016: the
    aspect's vector, here the mean of its words' vectors, is concatenated to every word's vector and
    used in the attention. Each word's embedded distance from the aspect is concatenated, too.

    Args:
        config: the sizes.
        vectors: words and their vectors.
        classes: number of outputs.

    Returns:
        A model from the features of a `SentenceReader` to float32 logits, [batch, classes].

    Raises:
        ConfigError: a size, rate or penalty is out of range.
    """
    _check(config)
    layers, penalty = tf_keras.layers, tf_keras.regularizers.L2(config.l2)
    ids = tf_keras.Input([None], dtype=tf.int32, name="words")
    aspect = tf_keras.Input([2], dtype=tf.int32, name="aspect")
    mask = ids > 0
    distances = aspect_features.distances(aspect, tf.shape(ids)[1])

    x = embeddings.layer(vectors, trainable=config.vectors.trainable, name="vectors")(ids)
    if config.own_vectors:
        own = layers.Embedding(
            len(vectors.vocabulary), config.own_vectors, "zeros", name="own_vectors"
        )
        x = layers.Concatenate()([x, own(ids)])
    inside = tf.cast(distances == 0, x.dtype)[..., tf.newaxis]
    target = tf.math.divide_no_nan(
        tf.reduce_sum(x * inside, axis=1, keepdims=True),
        tf.reduce_sum(inside, axis=1, keepdims=True),
    )
    targets = tf.repeat(target, tf.shape(ids)[1], axis=1)
    far = layers.Embedding(config.farthest + 1, config.positions, name="positions")(
        tf.minimum(distances, config.farthest)
    )
    x = layers.Dropout(config.dropout)(layers.Concatenate()([x, far, targets]))
    lstm = layers.LSTM(config.units, return_sequences=True, kernel_regularizer=penalty)
    states = layers.Bidirectional(lstm, name="lstm")(x, mask=mask)

    keys = layers.Dense(config.units, activation="tanh", name="keys")(
        layers.Concatenate()([states, targets])
    )
    scores = layers.Dense(1, use_bias=False, name="scores")(keys)
    attention = layers.Softmax(axis=1)(scores, mask=mask[..., tf.newaxis])
    read = layers.Dropout(config.dropout)(tf.reduce_sum(attention * states, axis=1))
    logits = layers.Dense(classes, kernel_regularizer=penalty, dtype="float32", name="logits")
    inputs = {aspect_features.WORDS: ids, aspect_features.ASPECT: aspect}
    return tf_keras.Model(inputs, logits(read), name="attention_lstm")


def _all_words(vectors: embeddings.Embeddings, tokens: Iterable[str]) -> embeddings.Embeddings:
    """The same vectors, with a row for every word of the data: that of unknown words if needed."""
    lower_case = vectors.vocabulary.lower_case
    cased = (token.lower() if lower_case else token for token in tokens)
    vocabulary = embeddings.Vocabulary(dict.fromkeys(cased), lower_case=lower_case)
    matrix = vectors.matrix
    if matrix is not None:
        rows = vectors.vocabulary.ids(vocabulary.words)
        matrix = matrix[[embeddings.PADDING, embeddings.UNKNOWN, *rows]]
    return dataclasses.replace(vectors, vocabulary=vocabulary, matrix=matrix)


def _check(config: AttentionLSTMConfig) -> None:
    for name in ("units", "positions", "farthest"):
        if getattr(config, name) < 1:
            raise ConfigError(
                f"AttentionLSTMConfig.{name}={getattr(config, name)}: must be above 0"
            )
    if config.own_vectors < 0:
        raise ConfigError(
            f"AttentionLSTMConfig.own_vectors={config.own_vectors}: a number of units, 0 or more"
        )
    if not 0 <= config.dropout < 1:
        raise ConfigError(
            f"AttentionLSTMConfig.dropout={config.dropout}: a share, at least 0 and below 1"
        )
    if config.l2 < 0:
        raise ConfigError(f"AttentionLSTMConfig.l2={config.l2}: a penalty, 0 or more")
