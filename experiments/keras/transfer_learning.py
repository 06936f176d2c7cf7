"""Transfer learning with MobileNetV2: frozen at first, then fine-tuned."""

import keras
import numpy as np
from sklearn.datasets import load_digits

keras.utils.set_random_seed(34)
digits = load_digits()
images = np.repeat(np.kron(digits.images, np.ones((4, 4)))[..., None], 3, axis=-1)
images = (images[:320] / 8 - 1).astype("float32")
labels = (digits.target[:320] >= 5).astype("float32")
train, val = (images[:256], labels[:256]), (images[256:], labels[256:])

base_model = keras.applications.MobileNetV2(
    input_shape=(32, 32, 3), alpha=0.35, include_top=False, weights=None
)
base_model.trainable = False
model = keras.Sequential(
    [
        base_model,
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(keras.optimizers.Adam(1e-2), "binary_crossentropy", metrics=["accuracy"])
frozen = model.fit(*train, epochs=3, validation_data=val)
print("frozen: training accuracy", round(frozen.history["accuracy"][-1], 3))

base_model.trainable = True
model.compile(keras.optimizers.Adam(2e-3), "binary_crossentropy", metrics=["accuracy"])
tuned = model.fit(*train, epochs=5, validation_data=val)
print("fine-tuned: training accuracy", round(tuned.history["accuracy"][-1], 3))
