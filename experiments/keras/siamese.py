"""A siamese network with shared layers and a contrastive loss."""

import numpy as np
import tensorflow as tf
import tf_keras as keras
from sklearn.datasets import load_digits
from tf_keras import layers

keras.utils.set_random_seed(24)
x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")


def make_pairs(count):
    left = np.random.randint(0, len(x), count)
    right = np.random.randint(0, len(x), count)
    same = [np.random.choice(np.flatnonzero(y == y[i])) for i in left[::2]]
    right[::2] = same
    return [x[left], x[right]], (y[left] == y[right]).astype("float32")


def contrastive_loss(margin=1.0):
    def loss(y_true, distance):
        near = tf.square(distance)
        far = tf.square(tf.maximum(margin - distance, 0.0))
        return tf.reduce_mean(y_true * near + (1 - y_true) * far)

    return loss


def euclidean(vectors):
    a, b = vectors
    squared = tf.reduce_sum(tf.square(a - b), axis=1, keepdims=True)
    return tf.sqrt(tf.maximum(squared, 1e-7))


tower = keras.Sequential([layers.Dense(64, activation="relu"), layers.Dense(16)], name="tower")
a, b = keras.Input((64,)), keras.Input((64,))
model = keras.Model([a, b], layers.Lambda(euclidean)([tower(a), tower(b)]))
model.compile(optimizer="adam", loss=contrastive_loss(1.0))

pairs, same = make_pairs(4000)
model.fit(pairs, same, batch_size=64, epochs=10, validation_split=0.2, verbose=2)
test_pairs, test_same = make_pairs(1000)
predicted = model.predict(test_pairs, verbose=0)[:, 0] < 0.5
print(f"accuracy of pairs: {np.mean(predicted == test_same):.3f}")
