"""A text classifier that begins with a TextVectorization layer."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(35)
rng = np.random.default_rng(35)
good = "great wonderful superb fine lovely brilliant".split()
bad = "awful boring terrible weak dull annoying".split()
other = "the film plot actors music scene was and a story it with".split()
texts, labels = [], []
for _ in range(1000):
    label = int(rng.integers(2))
    words = list(rng.choice(other, 8)) + list(rng.choice(good if label else bad, 2))
    words += list(rng.choice(bad if label else good, 1))
    texts.append(" ".join(rng.permutation(words)))
    labels.append(label)
x_train, x_test = tf.constant(texts[:800]), tf.constant(texts[800:])
y_train, y_test = np.array(labels[:800]), np.array(labels[800:])

vectorizer = layers.TextVectorization(max_tokens=100, output_sequence_length=12)
vectorizer.adapt(x_train)
print("vocabulary:", vectorizer.get_vocabulary()[:5])

model = keras.Sequential(
    [
        keras.Input(shape=(), dtype="string"),
        vectorizer,
        layers.Embedding(vectorizer.vocabulary_size(), 16),
        layers.GlobalAveragePooling1D(),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
model.fit(x_train, y_train, epochs=10, validation_data=(x_test, y_test), verbose=2)
print("test accuracy:", round(model.evaluate(x_test, y_test, verbose=0)[1], 3))
