"""Trains an autoencoder of time series, and counts the anomalies that it finds.

    python train.py --data=DIRECTORY --model_dir=runs/anomaly --seed=0

The network, the data, the batch size and early stopping are those of "Timeseries anomaly detection
using an Autoencoder" by pavithrasv (keras.io/examples/timeseries/timeseries_anomaly_detection). The
data are artificial series of the Numenta Anomaly Benchmark (github.com/numenta/NAB):
art_daily_small_noise.csv and art_daily_jumpsup.csv.
"""

import argparse
import json
import time
from pathlib import Path

import keras
import numpy as np
import pandas as pd
from keras import layers

import runner

STEPS = 288
"""Of one day, every five minutes."""


def main() -> None:
    """Trains, and prints the lowest validation loss and the number of anomalies as JSON."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--data", required=True, help="the directory of the two .csv files")
    flags.add_argument("--model_dir", default="runs/anomaly")
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--epochs", type=int, default=50)
    given = flags.parse_args()

    keras.utils.set_random_seed(given.seed)
    plain, jumps = (
        pd.read_csv(Path(given.data, f"art_daily_{name}.csv"))["value"].to_numpy("float32")
        for name in ("small_noise", "jumpsup")
    )
    mean, deviation = plain.mean(), plain.std(ddof=1)
    x, x_test = (windows((each - mean) / deviation) for each in (plain, jumps))
    model = network()
    start = time.perf_counter()
    found = runner.fit(
        model,
        x,
        x,
        validation_split=0.1,
        model_dir=given.model_dir,
        batch_size=128,
        epochs=given.epochs,
        callbacks=[keras.callbacks.EarlyStopping("val_loss", patience=5, mode="min")],
        gin_params=[f"RunConfig.seed = {given.seed}"],
    )
    seconds = time.perf_counter() - start
    threshold = errors(model, x).max()
    result = {
        "loss": min(found.history["val_loss"]),
        "anomalies": int((errors(model, x_test) > threshold).sum()),
    }
    print(json.dumps({**result, "seconds": round(seconds, 1)}))


def windows(values: np.ndarray) -> np.ndarray:
    """Returns all windows of one day, [n, 288, 1]."""
    return np.lib.stride_tricks.sliding_window_view(values, STEPS)[..., None].copy()


def errors(model: keras.Model, x: np.ndarray) -> np.ndarray:
    """Returns the mean absolute error of the reconstruction of each window, [n]."""
    return np.abs(model.predict(x, verbose=0) - x).mean(axis=(1, 2))


def network() -> keras.Model:
    """Builds the compiled network."""
    shape = {"kernel_size": 7, "padding": "same"}
    hidden = {**shape, "strides": 2, "activation": "relu"}
    model = keras.Sequential(
        [
            layers.Input((STEPS, 1)),
            layers.Conv1D(32, **hidden),
            layers.Dropout(0.2),
            layers.Conv1D(16, **hidden),
            layers.Conv1DTranspose(16, **hidden),
            layers.Dropout(0.2),
            layers.Conv1DTranspose(32, **hidden),
            layers.Conv1DTranspose(1, **shape),
        ]
    )
    model.compile("adam", "mse")
    return model


if __name__ == "__main__":
    main()
