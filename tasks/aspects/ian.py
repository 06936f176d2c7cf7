"""IAN: the sentence attends to the aspect's meaning, and the aspect to the sentence.

Ma et al., "Interactive attention networks for aspect-level sentiment classification", 2017. As in
PyABSA, scores are not bounded by a tanh. With it, no word could have more than e^2 times the weight
of another.
"""

import tensorflow as tf
import tf_keras

from tasks.aspects import word_layers
from tasks.text import embeddings


def build(
    config: word_layers.UnitsConfig, vectors: embeddings.Embeddings, classes: int
) -> tf_keras.Model:
    """Builds the model. Arguments, result and errors are those of `atae_lstm.build`."""
    sentences = word_layers.read(config, vectors)
    states, means = {}, {}
    masks = {"context": sentences.mask, "aspect": sentences.inside}
    for name, mask in masks.items():
        lstm = word_layers.lstm(config, f"{name}_lstm", return_sequences=True)
        states[name] = lstm(sentences.words, mask=mask)
        means[name] = word_layers.mean(states[name], mask)
    reads = [
        _attend(config, name, states[name], means[other], masks[name])
        for name, other in (("aspect", "context"), ("context", "aspect"))
    ]
    both = tf.concat(reads, axis=-1)
    return word_layers.classifier(config, sentences, both, classes, name="ian")


def _attend(
    config: word_layers.UnitsConfig, name: str, states: tf.Tensor, about: tf.Tensor, mask: tf.Tensor
) -> tf.Tensor:
    """Averages the states by bilinear scores with the other side's mean, [batch, units]."""
    query = tf_keras.layers.Dense(config.units, use_bias=False, name=f"{name}_query")(about)
    scores = tf.einsum("bls,bs->bl", states, query)
    return word_layers.attend(scores[..., tf.newaxis], states, mask)
