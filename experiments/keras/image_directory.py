"""image_dataset_from_directory with data augmentation layers."""

import pathlib

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(33)
rng = np.random.default_rng(33)
rows, columns = np.mgrid[:24, :24]
for kind in ("disk", "square"):
    folder = pathlib.Path("images", kind)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(120):
        dy, dx = np.abs(rows - rng.integers(8, 16)), np.abs(columns - rng.integers(8, 16))
        shape = dy**2 + dx**2 < 36 if kind == "disk" else np.maximum(dy, dx) < 6
        image = 100.0 * rng.random((24, 24, 3)) + 150.0 * shape[..., None]
        keras.utils.save_img(folder / f"{number:03}.png", image, scale=False)

options = {"validation_split": 0.2, "seed": 33, "image_size": (24, 24), "batch_size": 16}
train_ds = keras.utils.image_dataset_from_directory("images", subset="training", **options)
val_ds = keras.utils.image_dataset_from_directory("images", subset="validation", **options)
print("classes:", train_ds.class_names)

model = keras.Sequential(
    [
        keras.Input(shape=(24, 24, 3)),
        layers.RandomFlip("horizontal_and_vertical"),
        layers.RandomTranslation(0.1, 0.1),
        layers.Rescaling(1.0 / 255),
        layers.Conv2D(16, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(32, 3, activation="relu"),
        layers.GlobalMaxPooling2D(),
        layers.Dense(2, activation="softmax"),
    ]
)
model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(train_ds, validation_data=val_ds, epochs=12)
print("validation accuracy:", round(history.history["val_accuracy"][-1], 3))
