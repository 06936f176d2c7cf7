"""LearningRateScheduler with a function of the epoch and the current rate."""

import numpy as np
import tf_keras as keras
from sklearn.datasets import load_wine
from tf_keras import layers
from tf_keras.callbacks import LearningRateScheduler

keras.utils.set_random_seed(14)
data = load_wine()
order = np.random.permutation(len(data.target))
x = ((data.data - data.data.mean(0)) / data.data.std(0))[order]
y = keras.utils.to_categorical(data.target[order], 3)


def schedule(epoch, lr):
    if epoch < 5:
        return lr
    return lr * 0.8


model = keras.Sequential()
model.add(layers.Dense(16, activation="relu", input_dim=13))
model.add(layers.Dense(3, activation="softmax"))
model.compile(loss="categorical_crossentropy", optimizer="sgd", metrics=["accuracy"])
rates = LearningRateScheduler(schedule, verbose=1)
history = model.fit(x, y, batch_size=8, epochs=15, validation_split=0.2, callbacks=[rates])
print("validation accuracy:", [round(value, 2) for value in history.history["val_accuracy"]][-1])
