"""Windows of a time series, an LSTM and gradient clipping."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(39)
time = np.arange(3000)
noise = np.random.normal(scale=0.1, size=3000)
series = (np.sin(time / 12) + 0.5 * np.sin(time / 5) + noise).astype("float32")
past = 24


def windows(values, shuffle):
    return keras.utils.timeseries_dataset_from_array(
        values[:-past, None],
        values[past:],
        sequence_length=past,
        batch_size=64,
        shuffle=shuffle,
        seed=39,
    )


train_ds, val_ds = windows(series[:2400], True), windows(series[2400:], False)

inputs = keras.Input(shape=(past, 1))
x = layers.LSTM(24)(inputs)
outputs = layers.Dense(1)(x)
model = keras.Model(inputs, outputs)
model.compile(optimizer=keras.optimizers.Adam(0.01, clipnorm=1.0), loss="mse", metrics=["mae"])
model.fit(train_ds, epochs=8, validation_data=val_ds)

mse, mae = model.evaluate(val_ds, verbose=0)
print(f"mean absolute error: {mae:.3f}")
