"""Monte Carlo dropout and BatchEnsemble in a Wide ResNet."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.core import task_factory

import runner
from tasks import image_classification
from tasks.images import image_models
from tasks.images.wide_resnet import WideResNetConfig

IMAGES = np.random.default_rng(0).random([6, 8, 8, 1], np.float32)
LABELS = np.array([0, 3, 9, 1, 1, 2], np.int32)


def build(**fields):
    """The task and its network, with the same random weights for the same seed."""
    tf_keras.utils.set_random_seed(0)
    wide = WideResNetConfig(depth=10, width=1, l2=0.0, **fields)
    config = image_classification.ImageClassificationConfig(
        model=image_models.ModelConfig(type="wide_resnet", wide_resnet=wide)
    )
    task = task_factory.get_task(config)
    model = task.build_model()
    for variable in model.trainable_variables:  # or nearly all logits would be equal
        if "gamma" in variable.name or "fast" in variable.name:
            variable.assign(variable * tf.random.stateless_uniform(variable.shape, [1, 2], 0.5, 2))
    return task, model


def probabilities(model, images, **options):
    return tf.nn.softmax(model(images, **options)).numpy()


def test_samples_of_dropout_are_averaged_and_depend_neither_on_the_batch_nor_on_chance():
    _, plain = build(dropout=0.3)
    _, sampled = build(dropout=0.3, samples=4)
    together = probabilities(sampled, IMAGES, training=False)
    assert together.shape == (6, 10)
    np.testing.assert_allclose(together.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(together, probabilities(sampled, IMAGES, training=False))
    alone = probabilities(sampled, IMAGES[2:3], training=False)
    np.testing.assert_allclose(together[2:3], alone, atol=1e-6)
    assert np.abs(together - probabilities(plain, IMAGES, training=False)).max() > 1e-3
    inner = tf_keras.Model(sampled.input, sampled.get_layer("logits").output)
    each = tf.nn.softmax(tf.reshape(inner(IMAGES, training=False), [4, 6, 10])).numpy()
    np.testing.assert_allclose(together, each.mean(axis=0), atol=1e-6)
    assert each.std(axis=0).max() > 1e-3
    assert sampled(IMAGES, training=True).shape == (6, 10)


def test_members_share_weights_and_differ_by_their_vectors():
    _, plain = build()
    _, model = build(members=3)
    shared = [v for v in model.trainable_variables if "fast" not in v.name and "norm" not in v.name]
    assert len(shared) == len([v for v in plain.trainable_variables if "norm" not in v.name])
    scales = [v for v in model.trainable_variables if "fast" in v.name]
    assert {v.shape[0] for v in scales} == {3}
    inner = tf_keras.Model(model.input, model.get_layer("logits_fast_out").output)
    each = tf.nn.softmax(tf.reshape(inner(IMAGES, training=False), [3, 6, 10])).numpy()
    np.testing.assert_allclose(probabilities(model, IMAGES), each.mean(axis=0), atol=1e-6)
    assert each.std(axis=0).max() > 1e-3
    for variable in scales:
        variable.assign(tf.ones_like(variable))
    for layer in model.layers:
        if "norm" in layer.name and "relu" not in layer.name:
            name = layer.name.partition("_member")[0]
            layer.set_weights(plain.get_layer(name).get_weights())
    for variable in plain.trainable_variables:
        if "norm" not in variable.name:
            (ours,) = (v for v in shared if v.name == variable.name)
            ours.assign(variable)
    expected = probabilities(plain, IMAGES)
    np.testing.assert_allclose(probabilities(model, IMAGES), expected, atol=1e-5)


def test_the_loss_of_members_is_the_mean_of_their_losses():
    task, model = build(members=3)
    logits = model(IMAGES, training=True)
    assert logits.shape == (18, 10)
    losses = [float(task.build_losses(tf.constant(LABELS), part)) for part in tf.split(logits, 3)]
    assert float(task.build_losses(tf.constant(LABELS), logits)) == pytest.approx(np.mean(losses))
    metrics = task.build_metrics(training=True)
    task.process_metrics(metrics, tf.constant(LABELS), logits)
    hits = np.argmax(logits, axis=1) == np.tile(LABELS, 3)
    assert float(metrics[0].result()) == pytest.approx(hits.mean())


@pytest.mark.parametrize("fields", [{"dropout": 0.2, "samples": 3}, {"members": 2}])
def test_both_learn_resume_to_the_same_bits_and_are_members_of_an_ensemble(fields, tmp_path):
    def train(folder, steps):
        bindings = [
            *(f"WideResNetConfig.{name} = {value}" for name, value in fields.items()),
            "WideResNetConfig.depth = 10",
            "WideResNetConfig.width = 1",
            "WideResNetConfig.l2 = 0.0",
            "ModelConfig.type = 'wide_resnet'",
            "ModelConfig.wide_resnet = @wide_resnet.WideResNetConfig()",
            f"TrainerConfig.train_steps = {steps}",
            "TrainerConfig.steps_per_loop = 10",
            "TrainerConfig.validation_interval = 10",
            "TrainerConfig.checkpoint_interval = 10",
            "CosineLrConfig.decay_steps = 20",
        ]
        (tmp_path / "wide.gin").write_text(
            "from __gin__ import dynamic_registration\nfrom tasks.images import image_models\n"
            "from tasks.images import wide_resnet\ninclude 'digits.gin'\n"
        )
        loaded = runner.load(str(tmp_path / "wide.gin"), bindings)
        return runner.run(loaded, tmp_path / folder, "train_and_eval")

    whole = train("whole", 20)
    assert whole["metrics"]["accuracy"] > 0.3
    train("parts", 10)
    assert train("parts", 20)["metrics"] == whole["metrics"]
    together = runner.run(
        None, tmp_path / "both", "ensemble", runs=(tmp_path / "whole", tmp_path / "parts")
    )
    assert together["mean"]["metrics"]["accuracy"] == pytest.approx(whole["metrics"]["accuracy"])
