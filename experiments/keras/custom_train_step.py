"""A subclass of Model with its own train_step, which also trains on shifted inputs."""

import keras
import tensorflow as tf
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import scale


class Adversarial(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        shifted = x + 0.1 * tf.sign(tape.gradient(loss, x))
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
            loss += self.compute_loss(y=y, y_pred=self(shifted, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}


keras.utils.set_random_seed(11)
features, labels = load_breast_cancer(return_X_y=True)
parts = train_test_split(scale(features).astype("float32"), labels, random_state=11)
x_train, x_test, y_train, y_test = parts

inputs = keras.Input((30,))
hidden = keras.layers.Dense(16, activation="tanh", kernel_regularizer="l2")(inputs)
hidden = keras.layers.Dropout(0.2)(hidden)
outputs = keras.layers.Dense(1, activation="sigmoid")(hidden)
model = Adversarial(inputs, outputs)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
model.fit(x_train, y_train, epochs=20, validation_data=(x_test, y_test), verbose=2)
print("test accuracy: %.3f" % model.evaluate(x_test, y_test, verbose=0)[1])
