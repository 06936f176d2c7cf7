"""A subclass of Model with a custom train_step."""

import tensorflow as tf
import tf_keras as keras
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import scale


class NoisyGradients(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compiled_loss(y, y_pred, regularization_losses=self.losses)
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients = [g + tf.random.normal(tf.shape(g), stddev=0.01) for g in gradients]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.compiled_metrics.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}


keras.utils.set_random_seed(11)
x, y = load_breast_cancer(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(scale(x), y, random_state=11)

inputs = keras.Input(shape=(30,))
x = keras.layers.Dense(16, activation="tanh", kernel_regularizer="l2")(inputs)
outputs = keras.layers.Dense(1, activation="sigmoid")(x)
model = NoisyGradients(inputs, outputs)
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
model.fit(x_train, y_train, epochs=20, validation_data=(x_test, y_test), verbose=2)
print("test accuracy: %.3f" % model.evaluate(x_test, y_test, verbose=0)[1])
