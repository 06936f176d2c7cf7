"""A generator of batches with steps_per_epoch."""

import keras
import numpy as np
from keras.layers import Dense
from keras.models import Sequential


def batches(size, seed):
    rng = np.random.default_rng(seed)
    while True:
        x = rng.uniform(-1, 1, (size, 2))
        yield x, (x[:, :1] * x[:, 1:] > 0).astype("float32")


keras.utils.set_random_seed(31)
model = Sequential([Dense(32, activation="relu"), Dense(32, activation="relu")])
model.add(Dense(1, activation="sigmoid"))
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])

validation = next(batches(500, seed=99))
model.fit(batches(32, seed=31), steps_per_epoch=100, epochs=6, validation_data=validation)
print("accuracy:", round(model.evaluate(*validation, verbose=0)[1], 3))
