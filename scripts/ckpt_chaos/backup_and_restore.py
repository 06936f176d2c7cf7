"""Trains with Keras's `fit` and BackupAndRestore, as its documentation shows."""

import numpy as np
import tf_keras

from scripts.ckpt_chaos import data

if __name__ == "__main__":
    model, out = data.keras_model(), data.folder()
    backup = tf_keras.callbacks.BackupAndRestore(str(out / "backup"))
    x, y = data.examples()
    model.fit(x, y, epochs=data.EPOCHS, batch_size=data.BATCH, callbacks=[backup], verbose=0)
    flat = np.concatenate([value.ravel() for value in model.get_weights()])
    (out / "final.bin").write_bytes(flat.tobytes())
