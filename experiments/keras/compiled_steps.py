"""jit_compile and steps_per_execution of compile."""

import keras
import numpy as np

keras.utils.set_random_seed(29)
rng = np.random.default_rng(29)
x = rng.normal(size=(4000, 20)).astype("float32")
y = np.tanh(x @ rng.normal(size=20) / 4) + 0.05 * rng.normal(size=4000)

model = keras.Sequential([keras.layers.Dense(64, "relu"), keras.layers.Dense(1)])
model.compile(
    optimizer="adam",
    loss="mse",
    metrics=[keras.metrics.R2Score(name="r2")],
    jit_compile=True,
    steps_per_execution=16,
)
model.fit(x[:3200], y[:3200, None], epochs=10, validation_data=(x[3200:], y[3200:, None]))
print(f"R2 on the test data: {model.evaluate(x[3200:], y[3200:, None], verbose=0)[1]:.3f}")
