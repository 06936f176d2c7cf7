"""An autoencoder with a custom layer that calls add_loss."""

import tensorflow as tf
import tf_keras as keras
from sklearn.datasets import load_digits


class Sparsity(keras.layers.Layer):
    """Penalizes activations."""

    def __init__(self, rate=1e-3, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate

    def call(self, inputs):
        self.add_loss(self.rate * tf.reduce_mean(tf.reduce_sum(tf.abs(inputs), axis=-1)))
        return inputs

    def get_config(self):
        return {**super().get_config(), "rate": self.rate}


keras.utils.set_random_seed(2)
digits = load_digits().data / 16.0
x_train, x_test = digits[:1500], digits[1500:]

inputs = keras.Input(shape=(64,))
code = keras.layers.Dense(32, activation="relu")(inputs)
code = Sparsity(1e-4)(code)
decoded = keras.layers.Dense(64, activation="sigmoid")(code)
autoencoder = keras.Model(inputs, decoded)
encoder = keras.Model(inputs, code)

autoencoder.compile(optimizer="adam", loss="mse")
autoencoder.fit(x_train, x_train, epochs=30, batch_size=32, validation_data=(x_test, x_test))

print("loss:", round(autoencoder.evaluate(x_test, x_test, verbose=0), 4))
print("share of active units:", (encoder.predict(x_test, verbose=0) > 0).mean().round(2))
