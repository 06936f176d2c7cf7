"""ModelCheckpoint, and loading the best model from its file."""

import keras
from keras import layers
from keras.models import load_model
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

keras.utils.set_random_seed(15)
x, y = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.5, random_state=15)

model = keras.Sequential(
    [
        keras.Input((64,)),
        layers.Rescaling(1 / 16),
        layers.Dense(128, activation="relu"),
        layers.Dropout(0.4),
        layers.Dense(10, activation="softmax"),
    ]
)
model.compile("adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])

checkpoint = keras.callbacks.ModelCheckpoint(
    "best.keras", monitor="val_accuracy", save_best_only=True, mode="max", verbose=1
)
model.fit(
    x_train, y_train, epochs=15, validation_data=(x_test, y_test), callbacks=[checkpoint], verbose=2
)

best = load_model("best.keras")
loss, accuracy = best.evaluate(x_test, y_test, verbose=0)
print(f"accuracy of the best model: {accuracy:.4f}")
