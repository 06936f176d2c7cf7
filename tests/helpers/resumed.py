"""What is left of a run that was stopped and resumed, beside one that never was."""

import json

import numpy as np
import tensorflow as tf

import runner


def state(folder, step):
    reader = tf.train.load_checkpoint(str(folder / f"ckpt-{step}"))
    names = reader.get_variable_to_shape_map()
    return {
        name: np.asarray(reader.get_tensor(name)).tobytes()
        for name in names
        if not name.startswith(("save_counter", "_CHECKPOINTABLE", "inputs", "logs"))
    }


def rows(path):
    times = ("time", "seconds", "steps_per_second", "input_wait")
    return [
        {name: value for name, value in json.loads(line).items() if name not in times}
        for line in path.read_text().splitlines()
    ]


def compare(tmp_path, make, stops=(25,)):
    """Runs to step 60 once through, and once stopped at each of `stops`."""
    runner.run(make(60), tmp_path / "once", "train_and_eval")
    for steps in (*stops, 60):
        runner.run(make(steps), tmp_path / "often", "train_and_eval")
    assert state(tmp_path / "once", 60) == state(tmp_path / "often", 60)
    on_grid = [row for row in rows(tmp_path / "often" / "train.jsonl") if row["step"] % 10 == 0]
    assert on_grid == rows(tmp_path / "once" / "train.jsonl")
    on_grid = [row for row in rows(tmp_path / "often" / "history.jsonl") if row["step"] % 20 == 0]
    assert on_grid == rows(tmp_path / "once" / "history.jsonl")
