"""Two calls of fit, the second one with initial_epoch."""

import tf_keras as keras
from sklearn.datasets import load_digits
from tf_keras.layers import Dense

keras.utils.set_random_seed(25)
x, y = load_digits(return_X_y=True)
x /= 16
model = keras.Sequential([Dense(32, activation="relu"), Dense(10, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])

first = model.fit(x, y, epochs=5, validation_split=0.2)
print("after 5 epochs:", round(first.history["val_accuracy"][-1], 3))
second = model.fit(
    x,
    y,
    epochs=10,  # runner: epochs=5,
    initial_epoch=5,  # runner: delete
    validation_split=0.2,
)
print("after 10 epochs:", round(second.history["val_accuracy"][-1], 3))
