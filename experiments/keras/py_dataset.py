"""A PyDataset, which loads batches by their number."""

import math

import keras
import numpy as np
from sklearn.datasets import load_digits


class Digits(keras.utils.PyDataset):
    def __init__(self, images, labels, batch_size, noise=0.0, **kwargs):
        super().__init__(**kwargs)
        self.images, self.labels = images, labels
        self.batch_size = batch_size
        self.noise = noise

    def __len__(self):
        return math.ceil(len(self.images) / self.batch_size)

    def __getitem__(self, idx):
        part = slice(idx * self.batch_size, (idx + 1) * self.batch_size)
        images = self.images[part] / 16.0
        images = images + np.random.normal(scale=self.noise, size=images.shape)
        return images[..., np.newaxis], self.labels[part]


keras.utils.set_random_seed(32)
data = load_digits()
train = Digits(data.images[:1400], data.target[:1400], 32, noise=0.1, workers=2)
valid = Digits(data.images[1400:], data.target[1400:], 64)

model = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(train, validation_data=valid, epochs=8, verbose=2)
print("validation accuracy:", round(model.evaluate(valid, verbose=0)[1], 3))
