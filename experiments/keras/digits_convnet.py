"""A small convnet written with tf.keras, and TensorBoard."""

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorflow import keras

tf.keras.utils.set_random_seed(38)
digits = load_digits()
x = np.expand_dims(digits.images / 16, -1)
(x_train, y_train), (x_test, y_test) = (
    (x[:1300], digits.target[:1300]),
    (x[1300:], digits.target[1300:]),
)

model = tf.keras.models.Sequential(
    [
        tf.keras.layers.Input(shape=(8, 8, 1)),
        tf.keras.layers.Conv2D(16, 3, activation="relu"),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10),
    ]
)
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer="adam", loss=loss_fn, metrics=["accuracy"])

tensorboard = keras.callbacks.TensorBoard(log_dir="logs", histogram_freq=1)
model.fit(x_train, y_train, epochs=6, validation_data=(x_test, y_test), callbacks=[tensorboard])
loss, accuracy = model.evaluate(x_test, y_test, verbose=2)

probability_model = tf.keras.Sequential([model, tf.keras.layers.Softmax()])
print("certainty:", np.max(probability_model(x_test[:100]), axis=1).mean().round(2))
print(f"test accuracy: {accuracy:.3f}")
