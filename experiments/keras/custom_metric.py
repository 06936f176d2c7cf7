"""A custom metric class."""

import tensorflow as tf
import tf_keras as keras
from sklearn.datasets import load_digits
from tf_keras import layers


class TopTwo(keras.metrics.Metric):
    """The share of examples whose label is among the two most likely classes."""

    def __init__(self, name="top_two", **kwargs):
        super().__init__(name=name, **kwargs)
        self.hits = self.add_weight(name="hits", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels = tf.cast(tf.reshape(y_true, [-1]), tf.int32)
        hits = tf.cast(tf.math.in_top_k(labels, y_pred, k=2), self.dtype)
        self.hits.assign_add(tf.reduce_sum(hits))
        self.count.assign_add(tf.cast(tf.size(hits), self.dtype))

    def result(self):
        return self.hits / self.count

    def reset_state(self):
        self.hits.assign(0.0)
        self.count.assign(0.0)


keras.utils.set_random_seed(4)
x, y = load_digits(return_X_y=True)
x = x.astype("float32") / 16

model = keras.Sequential([layers.Dense(32, activation="relu"), layers.Dense(10, "softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy", TopTwo()])
history = model.fit(x, y, epochs=10, validation_split=0.2, verbose=2)
print(f"top two: {history.history['val_top_two'][-1]:.3f}")
