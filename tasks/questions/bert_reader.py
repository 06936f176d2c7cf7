"""A reader with BERT or another of Model Garden's encoders: [CLS] question [SEP] context [SEP].

Devlin et al., "BERT: pre-training of deep bidirectional transformers for language understanding",
2019, sections 4.2 and 4.3. It matches the paper's model that is trained on SQuAD alone, without
TriviaQA first.
"""

import dataclasses

import tensorflow as tf
import tf_keras
from official.modeling.hyperparams import base_config
from official.nlp.configs import encoders

from tasks.questions import answer_spans
from tasks.text import bert, pieces

SPECIAL = 3  # pieces that belong to neither the question nor the context


@dataclasses.dataclass
class BertReaderConfig(base_config.Config):
    """A linear layer on the encoder's output.

    Attributes:
        encoder: Model Garden's settings: `BertEncoderConfig` (also for ELECTRA),
            `AlbertEncoderConfig` or `MobileBertEncoderConfig`. The size of the vocabulary is always
            taken from `QuestionData.vocab_file`.
    """

    encoder: bert.EncoderConfig = dataclasses.field(default_factory=encoders.BertEncoderConfig)


def build(
    config: BertReaderConfig,
    vocabulary: pieces.Vocabulary,
    *,
    unanswerable: bool,
) -> bert.BertModel:
    """Builds the network.

    Args:
        config: the encoder's settings.
        vocabulary: the vocabulary.
        unanswerable: whether it may predict that there is no answer.

    Returns:
        A model from `question` [batch, pieces] int32 and `context`, both padded with the
        vocabulary's pad, to float32 logits [batch, 1 + context's pieces, 2] of the answer's start
        and end. Position 0 means no answer.
    """
    question, context = (
        tf_keras.Input((None,), dtype=tf.int32, name=name) for name in ("question", "context")
    )
    encoder = bert.encoder(config.encoder, vocabulary, pooled=False)
    joined = Join(vocabulary, name="join")(question, context)
    encoded = bert.encode(encoder, joined, vocabulary.pad)["sequence_output"]
    scores = tf_keras.layers.Dense(
        2,
        kernel_initializer=bert.initializer(config.encoder),
        dtype="float32",
        name="logits",
    )(encoded)
    logits = Places(vocabulary.pad, unanswerable, name="places")(scores, question, context)
    inputs = {"question": question, "context": context}
    return bert.BertModel(inputs, logits, encoder, name="bert")


class Join(tf_keras.layers.Layer):
    """Joins padded questions and contexts to one sequence that is padded at its end."""

    def __init__(self, vocabulary: pieces.Vocabulary, *, name: str) -> None:
        super().__init__(name=name)
        self._cls, self._sep, self._pad = vocabulary.cls, vocabulary.sep, vocabulary.pad

    def call(self, question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns inputs for Model Garden's encoders, each [batch, SPECIAL + pieces] int32."""
        rows = tf.shape(question)[0]
        cls, sep = (tf.fill([rows, 1], piece) for piece in (self._cls, self._sep))
        asked, told = (
            tf.RaggedTensor.from_tensor(ids, padding=self._pad) for ids in (question, context)
        )
        parts = tf.concat([cls, asked, sep], 1), tf.concat([told, sep], 1)
        types = tf.concat([tf.zeros_like(parts[0]), tf.ones_like(parts[1])], 1)
        ids = tf.concat(parts, 1)
        return {
            "input_word_ids": ids.to_tensor(self._pad),
            "input_mask": tf.ones_like(ids).to_tensor(),
            "input_type_ids": types.to_tensor(),
        }


class Places(tf_keras.layers.Layer):
    """Selects the logits of no answer, at [CLS], and of the context's pieces."""

    def __init__(self, pad: int, unanswerable: bool, *, name: str) -> None:
        super().__init__(name=name, dtype="float32")  # logits of padding exceed half precision
        self._pad = pad
        self._unanswerable = unanswerable

    def call(self, scores: tf.Tensor, question: tf.Tensor, context: tf.Tensor) -> tf.Tensor:
        """Maps [batch, SPECIAL + pieces, 2] to [batch, 1 + context's pieces, 2]."""
        asked = tf.reduce_sum(tf.cast(question != self._pad, tf.int32), -1, keepdims=True)
        places = asked + 2 + tf.range(tf.shape(context)[1])
        # Padding is masked, but its positions may lie past the end of the sequence.
        places = tf.minimum(places, tf.shape(scores)[1] - 1)
        logits = tf.concat([scores[:, :1], tf.gather(scores, places, batch_dims=1)], 1)
        mask = tf.pad(context != self._pad, [[0, 0], [1, 0]], constant_values=self._unanswerable)
        return tf.where(mask[..., tf.newaxis], logits, answer_spans.IMPOSSIBLE)
