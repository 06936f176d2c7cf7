"""Mixed precision: layers with the policy mixed_bfloat16 and a float32 output."""

import keras
from keras import layers
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

keras.utils.set_random_seed(28)
keras.mixed_precision.set_global_policy("mixed_bfloat16")

x, y = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x / 16, y, random_state=28)

model = keras.Sequential(
    [
        keras.Input(shape=(64,)),
        layers.Dense(128, activation="relu"),
        layers.Dense(128, activation="relu"),
        layers.Dense(10),
        layers.Activation("softmax", dtype="float32"),
    ]
)
print("policy of a layer:", model.layers[0].dtype_policy.name)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x_train, y_train, epochs=8, batch_size=32, validation_data=(x_test, y_test), verbose=2)
loss, accuracy = model.evaluate(x_test, y_test, verbose=0)
print(f"test accuracy: {accuracy:.3f}")
