"""Trains with `runner.fit` in the directory that the command names, and resumes there."""

import runner
from scripts.ckpt_chaos import data

if __name__ == "__main__":
    runner.fit(
        data.keras_model(),
        *data.examples(),
        epochs=data.EPOCHS,
        batch_size=data.BATCH,
        model_dir=data.folder(),
    )
