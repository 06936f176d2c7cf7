"""Mnemonic Reader: Hu et al., "Reinforced mnemonic reader for machine comprehension", 2017.

In each of several rounds, the context's words are aligned with the question and with the rest of
the context, fused with the words they are aligned to, and read again. A pointer then refines start
and end in the same number of rounds, each from a memory of the other (version 3 of the paper). In
this version, the reader learns by maximum likelihood alone, without reinforcement, and the shapes
of words replace tags and the type of the question.
"""

import dataclasses

import tensorflow as tf
import tf_keras

from tasks.questions import attention, pointers, recurrent, word_features, word_reader
from tasks.text import embeddings


@dataclasses.dataclass
class MnemonicConfig(word_reader.WordReaderConfig):
    """The settings of Mnemonic Reader. The paper uses `units = 100`, `dropout = 0.2`.

    Attributes:
        hops: the number of rounds, both of aligning and of pointing.
    """

    dropout: float = 0.2
    characters: int = 16
    hops: int = 2


def build(
    config: MnemonicConfig, vectors: embeddings.Embeddings, *, unanswerable: bool
) -> tf_keras.Model:
    """Builds the network. Arguments and errors are those of `match_lstm_reader.build`."""
    question, context = word_reader.texts(config, vectors)
    asked = word_reader.joined(question.vectors, word_features.shapes(question.rows))
    matches = word_features.matches(context.rows, question.rows)
    shapes = word_features.shapes(context.rows)
    told = word_reader.joined(context.vectors, matches, shapes)

    def read(x: tf.Tensor, mask: tf.Tensor, name: str) -> tf.Tensor:
        return recurrent.Stack(1, config.units, config.dropout, name=name)(x, mask)[-1]

    def align(x: tf.Tensor, other: tf.Tensor, mask: tf.Tensor, name: str) -> tf.Tensor:
        found = attention.Attend(config.units, name=f"align_{name}")(x, other, mask)
        return Fuse(name=f"fuse_{name}")(x, tf.concat([found, x * found, x - found], -1))

    asked = read(asked, question.mask, "read_question")
    told = read(told, context.mask, "read_context")
    others = context.mask[:, tf.newaxis] & ~tf.eye(tf.shape(told)[1], dtype=tf.bool)
    for hop in range(config.hops):
        told = align(told, asked, question.mask, f"question_{hop}")
        told = align(told, told, others, f"self_{hop}")
        told = read(told, context.mask, f"read_{hop}")
    told = recurrent.dropout(config.dropout)(told)
    summary = pointers.Summarize(name="summary")(asked, question.mask)
    pointer = MemoryPointer(config.hops, unanswerable, name="pointer")
    logits = pointer(told, context.mask, summary)
    return word_reader.model(question, context, logits, "mnemonic")


class Fuse(tf_keras.layers.Layer):
    """The paper's semantic fusion unit. A gate controls how much `news` changes `x`."""

    def build(self, shape: tf.TensorShape) -> None:
        """Takes its size from `shape`, [..., features]."""
        self._change = tf_keras.layers.Dense(shape[-1], "tanh", name="change")
        self._gate = tf_keras.layers.Dense(shape[-1], "sigmoid", name="gate")
        super().build(shape)

    def call(self, x: tf.Tensor, news: tf.Tensor) -> tf.Tensor:
        """Returns the changed `x`. `news` is [..., any]."""
        both = tf.concat([x, news], -1)
        gate = self._gate(both)
        return gate * self._change(both) + (1 - gate) * x


class MemoryPointer(tf_keras.layers.Layer):
    """Points at start and end in several rounds, remembering where it pointed last.

    Args:
        hops: the number of rounds.
        unanswerable: whether there may be no answer, which is scored by the last memory of each.
        name: the layer's name.
    """

    def __init__(self, hops: int, unanswerable: bool, *, name: str) -> None:
        super().__init__(name=name)
        turns = [f"{place}_{hop}" for hop in range(hops) for place in ("start", "end")]
        self._scores = [Score(name=f"score_{turn}") for turn in turns]
        self._memories = [Fuse(name=f"remember_{turn}") for turn in turns]
        self._nothing = tf_keras.layers.Dense(2, name="nothing") if unanswerable else None

    def call(self, x: tf.Tensor, mask: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
        """Maps [batch, tokens, features], mask and [batch, any] to [batch, 1 + tokens, 2]."""
        scores, memories = [], []
        for score, remember in zip(self._scores, self._memories, strict=True):
            scores.append(score(x, memory))
            found = attention.mean(x, attention.softmax(scores[-1], mask))
            memory = remember(memory, found)
            memories.append(memory)
        nothing = self._nothing(tf.concat(memories[-2:], -1)) if self._nothing else None
        return pointers.logits(scores[-2], scores[-1], mask, nothing)


class Score(tf_keras.layers.Layer):
    """Scores how well each token fits a memory, by a hidden layer over [x; memory; x * memory]."""

    def build(self, shape: tf.TensorShape) -> None:
        """Takes its size from `shape`, [batch, tokens, features]."""
        self._of_words = tf_keras.layers.Dense(shape[-1], name="of_words")
        self._of_both = tf_keras.layers.Dense(shape[-1], use_bias=False, name="of_both")
        self._of_memory = tf_keras.layers.Dense(shape[-1], use_bias=False, name="of_memory")
        self._score = tf_keras.layers.Dense(1, use_bias=False, name="score")
        super().build(shape)

    def call(self, x: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
        """Maps [batch, tokens, features] and [batch, features] to [batch, tokens]."""
        memory = memory[:, tf.newaxis]
        hidden = self._of_words(x) + self._of_both(x * memory) + self._of_memory(memory)
        return self._score(tf.tanh(hidden))[..., 0]
