"""A custom LearningRateSchedule class, as in papers on transformers."""

import tensorflow as tf
import tf_keras as keras
from sklearn.datasets import load_digits


class InverseRoot(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, peak, warmup_steps):
        super().__init__()
        self.peak = peak
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        step = tf.cast(step, tf.float32) + 1
        return self.peak * tf.minimum(step / self.warmup_steps, (self.warmup_steps / step) ** 0.5)


keras.utils.set_random_seed(17)
x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")
x_train, y_train, x_test, y_test = x[:1400], y[:1400], x[1400:], y[1400:]

model = keras.Sequential(
    [
        keras.layers.Dense(64, activation="gelu"),
        keras.layers.LayerNormalization(),
        keras.layers.Dense(10),
    ]
)
optimizer = keras.optimizers.Adam(InverseRoot(0.005, 100), beta_2=0.98, epsilon=1e-9)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer, loss, metrics=["accuracy"])
model.fit(x_train, y_train, 32, 12, validation_data=(x_test, y_test), verbose=2)
print("test accuracy:", round(model.evaluate(x_test, y_test, verbose=0)[1], 3))
