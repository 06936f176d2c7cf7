"""sample_weight in fit and in the validation data, and weighted_metrics."""

import keras
import numpy as np
from sklearn.datasets import make_blobs

keras.utils.set_random_seed(30)
x, y = make_blobs(1200, centers=4, n_features=2, cluster_std=2.5, random_state=30)
weights = np.where(y == 2, 4.0, 1.0)
train, test = slice(0, 900), slice(900, None)

model = keras.models.Sequential()
model.add(keras.layers.Dense(32, activation="relu"))
model.add(keras.layers.Dense(4, activation="softmax"))
model.compile(
    optimizer=keras.optimizers.Adam(learning_rate=0.01),
    loss="sparse_categorical_crossentropy",
    weighted_metrics=["accuracy"],
)
history = model.fit(
    x[train],
    y[train],
    sample_weight=weights[train],
    validation_data=(x[test], y[test], weights[test]),
    epochs=15,
    verbose=0,
)
print("weighted validation accuracy:", round(history.history["val_accuracy"][-1], 3))
recall = (model.predict(x[test], verbose=0).argmax(axis=1) == 2)[y[test] == 2].mean()
print(f"recall of the heavy class: {recall:.3f}")
