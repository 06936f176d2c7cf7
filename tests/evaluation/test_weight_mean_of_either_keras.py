"""The mean of weights of models of both versions of Keras, on two devices."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import runner

KINDS = {"keras2": tf_keras, "keras3": keras}


def floats(path):
    reader = tf.train.load_checkpoint(str(path))
    names = reader.get_variable_to_shape_map()
    return {name: reader.get_tensor(name) for name in names if name.startswith("model/")}


@pytest.mark.parametrize("version", ["keras2", "keras3"])
def test_the_mean_has_means_of_weights_and_statistics_of_its_own(tmp_path, capsys, version):
    kind, layers = KINDS[version].Sequential, KINDS[version].layers
    model = kind(
        [layers.Input((4,)), layers.Dense(8), layers.BatchNormalization(), layers.Dense(3)]
    )
    model.compile("sgd", "mse", metrics=["mae"])
    x = np.random.default_rng(0).normal(loc=3, size=(64, 4)).astype(np.float32)
    y = np.eye(3, dtype=np.float32)[x[:, :3].argmax(1)]
    steps = (8, 12)
    params = [
        "WeightMeanConfig.last = 2",
        "WeightMeanConfig.every = 4",
        "WeightMeanConfig.batches = 2",  # an epoch
        "TrainerConfig.checkpoint_interval = 4",
        "RuntimeConfig.distribution_strategy = 'mirrored'",
        "RunConfig.logical_cpus = 2",
    ]
    data = {"train": (x, y), "validation": (x, y), "batch_size": 32, "train_steps": 12}
    results = runner.fit(model, **data, model_dir=tmp_path, gin_params=params)
    assert "had no effect" not in capsys.readouterr().err  # though some are read late
    assert results["mean"]["steps"] == [*steps]
    parts = [floats(tmp_path / f"ckpt-{step}") for step in steps]
    mean = floats(tmp_path / "mean" / "ckpt-12")
    (kernel,) = (name for name, value in mean.items() if value.shape == (4, 8))
    np.testing.assert_allclose(mean[kernel], (parts[0][kernel] + parts[1][kernel]) / 2, rtol=1e-6)
    means = [value for value in mean.values() if value.shape == (8,)]
    moving = x.mean(axis=0) @ mean[kernel]  # but for the bias, which is one of `means`
    assert any(np.abs(each - moving - bias).max() < 0.1 for each in means for bias in means)
    assert np.abs(moving).max() > 1
