"""A model with two outputs: a dict of losses, loss_weights and metrics."""

import numpy as np
import tf_keras as keras
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from tf_keras import layers

keras.utils.set_random_seed(5)
data = load_wine()
features = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
alcohol, rest = features[:, 0], features[:, 1:]
x_train, x_test, c_train, c_test, a_train, a_test = train_test_split(
    rest, data.target, alcohol, test_size=0.25, random_state=5
)

inputs = keras.Input((12,))
shared = layers.Dense(32, activation="relu")(inputs)
cultivar = layers.Dense(3, activation="softmax", name="cultivar")(shared)
alcohol = layers.Dense(1, name="alcohol")(shared)
model = keras.Model(inputs, [cultivar, alcohol])

model.compile(
    optimizer="adam",
    loss={"cultivar": "sparse_categorical_crossentropy", "alcohol": "mse"},
    loss_weights={"cultivar": 1.0, "alcohol": 0.5},
    metrics={"cultivar": "accuracy", "alcohol": "mae"},
)
model.fit(
    x_train,
    {"cultivar": c_train, "alcohol": a_train},
    epochs=40,
    batch_size=16,
    validation_data=(x_test, {"cultivar": c_test, "alcohol": a_test}),
    verbose=0,
)

kinds, strengths = model.predict(x_test, verbose=0)
print("accuracy:", np.mean(kinds.argmax(axis=1) == c_test).round(3))
print("error of the alcohol:", np.abs(strengths[:, 0] - a_test).mean().round(3))
