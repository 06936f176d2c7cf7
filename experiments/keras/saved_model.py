"""A trained model that is saved, loaded and trained further."""

import keras
import numpy as np
from sklearn.datasets import load_iris

keras.utils.set_random_seed(37)
x, y = load_iris(return_X_y=True)
order = np.random.permutation(150)
x, y = x[order], y[order]

model = keras.Sequential(
    [keras.Input((4,)), keras.layers.Dense(24, "relu"), keras.layers.Dense(3, "softmax")]
)
model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x[:100], y[:100], epochs=10, verbose=0)
model.save("iris.keras")
before = model.predict(x[100:], verbose=0)

restored = keras.models.load_model("iris.keras")
assert np.allclose(before, restored.predict(x[100:], verbose=0), atol=1e-6)
restored.fit(x[:100], y[:100], epochs=20, verbose=0)
for name, each in [("saved", model), ("trained further", restored)]:
    loss, accuracy = each.evaluate(x[100:], y[100:], verbose=0)
    print(f"{name}: loss {loss:.3f}, accuracy {accuracy:.3f}")
