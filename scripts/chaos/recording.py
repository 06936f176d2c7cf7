"""Runs the runner and records the examples of each training step, for `workers.py`.

    CHAOS_RECORDS=DIRECTORY python -m scripts.chaos.recording --workers=2 --mode=train ...

Each worker of each generation writes a file with a line for each step: a hash of each example.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from runner import main
from runner.devices import worker_heartbeat
from runner.launch import elastic

RECORDS = "CHAOS_RECORDS"


def record() -> None:
    """Lets the task of digits.gin record the examples that it trains on."""
    import numpy as np
    import tensorflow as tf

    from tasks import image_classification

    task = image_classification.ImageClassificationTask
    train_step = task.train_step
    where = json.loads(os.environ["TF_CONFIG"])
    hosts = hashlib.sha256(str(where["cluster"]["worker"]).encode()).hexdigest()[:12]
    path = Path(os.environ[RECORDS], f"{hosts}-{where['task']['index']}.txt")
    file = path.open("a", buffering=1)

    def note(step: np.ndarray, images: np.ndarray) -> np.int32:
        hashes = [hashlib.blake2s(image.tobytes(), digest_size=6).hexdigest() for image in images]
        print(int(step), time.time(), *hashes, file=file)
        return np.int32(0)

    def noting(self: Any, inputs: Any, model: Any, optimizer: Any, metrics: Any = None) -> Any:
        images = inputs[0] if isinstance(inputs, tuple) else tf.nest.flatten(inputs)[0]
        noted = tf.numpy_function(note, [optimizer.iterations, images], tf.int32)
        with tf.control_dependencies([noted]):
            return train_step(self, inputs, model, optimizer, metrics)

    task.train_step = noting


if __name__ == "__main__":
    elastic.PROGRAM = ("-m", "scripts.chaos.recording")
    if os.environ.get(RECORDS) and worker_heartbeat.PLACE in os.environ:
        record()
    sys.argv[0] = "runner"
    main.console()
