"""A functional model with two inputs and a custom loss function."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
size = rng.uniform(20, 200, (2000, 1)).astype("float32")
district = rng.integers(0, 8, (2000, 1))
noise = rng.exponential(0.3, (2000, 1))
price = (size / 100 * (1 + 0.2 * district) + noise).astype("float32")


def quantile_loss(y_true, y_pred):
    error = y_true - y_pred
    return ops.mean(ops.maximum(0.9 * error, -0.1 * error), axis=-1)


size_input = keras.Input(shape=(1,), name="size")
district_input = keras.Input(shape=(1,), name="district", dtype="int32")
embedded = layers.Flatten()(layers.Embedding(8, 4)(district_input))
x = layers.concatenate([layers.Rescaling(1 / 100)(size_input), embedded])
x = layers.Dense(32, activation="relu")(x)
output = layers.Dense(1)(x)

model = keras.Model(inputs=[size_input, district_input], outputs=output)
model.compile(optimizer=keras.optimizers.Adam(0.005), loss=quantile_loss, metrics=["mae"])
model.fit([size, district], price, batch_size=32, epochs=15, validation_split=0.1, verbose=2)

below = np.mean(price <= model.predict([size, district], verbose=0))
print(f"share of prices below the predicted 90% quantile: {below:.2f}")
