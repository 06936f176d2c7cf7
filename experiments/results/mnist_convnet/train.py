"""Trains a convnet with 34,826 parameters on all of MNIST, with `runner.fit` or Keras's `fit`.

    python train.py --model_dir=runs/mnist --seed=1
    python train.py --keras --seed=1

The network, the batch size, the length and the optimizer are those of "Simple MNIST convnet" by
F. Chollet (keras.io/examples/vision/mnist_convnet), which reports about 99 % test accuracy.
"""

import argparse
import json
import time

import keras
import numpy as np
from keras import layers

import runner


def main() -> None:
    """Trains, and prints the score on the test images as one line of JSON."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--data", help="a local mnist.npz; default: Keras downloads it")
    flags.add_argument("--model_dir", default="runs/mnist")
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--epochs", type=int, default=15)
    flags.add_argument("--keras", action="store_true", help="train with Keras's fit")
    given = flags.parse_args()

    keras.utils.set_random_seed(given.seed)
    (x, y), (x_test, y_test) = load(given.data)
    model = convnet()
    start = time.perf_counter()
    length = {"batch_size": 128, "epochs": given.epochs, "validation_split": 0.1}
    if given.keras:
        model.fit(x, y, verbose=2, **length)
    else:
        seed = f"RunConfig.seed = {given.seed}"
        runner.fit(model, x, y, model_dir=given.model_dir, gin_params=[seed], **length)
    seconds = time.perf_counter() - start
    scored = model.evaluate(x_test, y_test, verbose=0, return_dict=True)
    print(json.dumps({"accuracy": scored["accuracy"], "seconds": round(seconds, 1)}))


def load(path: str | None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns images [n, 28, 28, 1] in 0..1 and one-hot labels [n, 10], to train and to test."""
    if path:
        with np.load(path) as data:
            parts = [(data[f"x_{name}"], data[f"y_{name}"]) for name in ("train", "test")]
    else:
        parts = keras.datasets.mnist.load_data()
    return [
        (images[..., None].astype("float32") / 255, keras.utils.to_categorical(labels, 10))
        for images, labels in parts
    ]


def convnet() -> keras.Model:
    """Builds the compiled network."""
    model = keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
    return model


if __name__ == "__main__":
    main()
