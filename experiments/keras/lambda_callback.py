"""A LambdaCallback that predicts with the model after each epoch."""

import numpy as np
import tf_keras as keras
from tf_keras.callbacks import LambdaCallback
from tf_keras.layers import Dense

keras.utils.set_random_seed(8)
x = np.linspace(-3, 3, 512).reshape(-1, 1)
y = np.sin(x)

model = keras.Sequential([Dense(64, activation="tanh"), Dense(64, activation="tanh"), Dense(1)])
model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
peaks = []


def predict_peak(epoch, logs):
    peak = model.predict(np.array([[np.pi / 2]]), verbose=0)[0, 0]
    peaks.append(peak)
    print(f"epoch {epoch}: loss {logs['loss']:.4f}, sin(pi/2) is about {peak:.3f}")


model.fit(x, y, epochs=12, verbose=0, callbacks=[LambdaCallback(on_epoch_end=predict_peak)])
print(f"after {len(peaks)} epochs: {peaks[-1]:.2f}")
