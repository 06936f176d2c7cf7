"""Regression with a Normalization layer that adapts to the data."""

import tf_keras as keras
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from tf_keras import layers

keras.utils.set_random_seed(3)
x, y = load_diabetes(return_X_y=True, scaled=False)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.2, random_state=3)

normalizer = layers.Normalization()
normalizer.adapt(x_train)

model = keras.Sequential()
model.add(keras.Input(shape=(x.shape[1],)))
model.add(normalizer)
model.add(layers.Dense(64, activation="relu"))
model.add(layers.Dense(64, activation="relu"))
model.add(layers.Dense(1))

model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mean_absolute_error", metrics=["mse"])
model.summary()
history = model.fit(x_train, y_train, epochs=30, validation_split=0.2, verbose=0)

print("last validation loss:", round(history.history["val_loss"][-1], 1))
mae, mse = model.evaluate(x_test, y_test, verbose=0)
print(f"test mean absolute error: {mae:.1f}")
