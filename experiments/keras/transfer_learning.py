"""Transfer learning with MobileNetV2: frozen at first, then fine-tuned."""

import keras
import numpy as np
from sklearn.datasets import load_digits

keras.utils.set_random_seed(34)
digits = load_digits()
images = np.repeat(np.kron(digits.images, np.ones((4, 4)))[..., None], 3, axis=-1)
images = (images[:640] / 8 - 1).astype("float32")
labels = (digits.target[:640] >= 5).astype("float32")
train, val = (images[:512], labels[:512]), (images[512:], labels[512:])

base_model = keras.applications.MobileNetV2(
    input_shape=(32, 32, 3), alpha=0.35, include_top=False, weights=None
)
base_model.trainable = False
inputs = keras.Input(shape=(32, 32, 3))
x = base_model(inputs, training=False)
x = keras.layers.GlobalAveragePooling2D()(x)
x = keras.layers.Dropout(0.2)(x)
outputs = keras.layers.Dense(1, activation="sigmoid")(x)
model = keras.Model(inputs, outputs)

model.compile(keras.optimizers.Adam(1e-2), "binary_crossentropy", metrics=["accuracy"])
model.fit(*train, epochs=2, validation_data=val)
print("frozen:", round(model.evaluate(*val, verbose=0)[1], 3))

base_model.trainable = True
model.compile(keras.optimizers.Adam(1e-3), "binary_crossentropy", metrics=["accuracy"])
model.fit(*train, epochs=6, validation_data=val)
loss, accuracy = model.evaluate(*train, verbose=0)
print(f"fine-tuned, on the training data: loss {loss:.3f}, accuracy {accuracy:.3f}")
