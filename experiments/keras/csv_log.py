"""CSVLogger, and its file as a pandas table."""

import numpy as np
import pandas as pd
import tf_keras as keras
from sklearn.datasets import make_regression
from sklearn.preprocessing import scale
from tf_keras.callbacks import CSVLogger
from tf_keras.layers import Dense

keras.utils.set_random_seed(16)
x, y = make_regression(1000, 8, noise=5.0, random_state=16)
y = scale(y)

model = keras.Sequential([Dense(32, activation="relu"), Dense(1)])
model.compile(optimizer="rmsprop", loss="mse", metrics=["mae"])
model.fit(x, y, epochs=10, validation_split=0.25, callbacks=[CSVLogger("log.csv")])

log = pd.read_csv("log.csv")
print(log[["loss", "val_loss"]].round(3).to_string(index=False))
print(f"best validation MAE: {np.min(log['val_mae']):.3f}")
