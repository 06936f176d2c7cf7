"""Runs that some batches break."""

import json

import numpy as np
import tensorflow as tf
import toy


class Poisoned(toy.ToyTask):
    """Some batches, by their number, make the loss or the gradients NaN."""

    bad_loss = ()
    bad_gradient = ()
    weigh = None

    def build_inputs(self, params, input_context=None):
        dataset = super().build_inputs(params, input_context)
        if not params.is_training:
            return dataset
        first = params.start_step
        return tf.data.Dataset.zip((dataset, tf.data.Dataset.range(first, 10**9)))

    def train_step(self, inputs, model, optimizer, metrics=None):
        (points, labels), number = inputs
        self.weigh = poison(number, self.bad_loss), poison(number, self.bad_gradient)
        try:
            return super().train_step((points, labels), model, optimizer, metrics)
        finally:
            self.weigh = None

    def build_losses(self, labels, model_outputs, aux_losses=None):
        loss = super().build_losses(labels, model_outputs, aux_losses)
        if self.weigh is None:
            return loss
        broken, poisonous = self.weigh

        @tf.custom_gradient
        def with_bad_gradient(value):
            return value, lambda upstream: upstream * poisonous

        return with_bad_gradient(loss) * broken


def poison(number, bad):
    is_bad = tf.reduce_any(tf.equal(number, tf.constant(list(bad) or [-1], tf.int64)))
    return tf.where(is_bad, np.float32("nan"), 1.0)


def experiment(trials, rate=1.0, steps=60):
    return toy.experiment(
        {
            "trainer": {"recovery_max_trials": trials, "train_steps": steps},
            "run": {"rollback_rate": rate},
        }
    )


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def weights(folder, step):
    reader = tf.train.load_checkpoint(str(folder / f"ckpt-{step}"))
    names = [name for name in reader.get_variable_to_shape_map() if "CHECKPOINTABLE" not in name]
    return {n: np.asarray(reader.get_tensor(n)).tobytes() for n in names if "save_counter" not in n}


def logs(folder):
    """All rows of a run, without their times."""
    times = ("time", "seconds", "steps_per_second", "input_wait")
    found = [*rows(folder / "history.jsonl"), *rows(folder / "train.jsonl")]
    return [{name: value for name, value in row.items() if name not in times} for row in found]
