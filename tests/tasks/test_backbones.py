import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.core import task_factory
from official.vision.configs import backbones as official
from wording import saying

from runner.errors import ConfigError
from tasks import image_classification
from tasks.images import backbones, image_data, image_models


def network(shape=(32, 32, 3), *, kind="resnet", model_id=10, **fields):
    backbone = official.Backbone(type=kind)
    if model_id:
        backbone.get().model_id = model_id
    made = image_models.ModelConfig(
        type="backbone", backbone=backbones.BackboneConfig(backbone=backbone, **fields)
    )
    image_models.check(made)
    return image_models.build(made, shape, 7)


@pytest.mark.parametrize(
    ("kind", "model_id", "shape"),
    [
        ("resnet", 18, (8, 8, 1)),
        ("mobilenet", "MobileNetV3Small", (32, 32, 3)),
    ],
)
def test_a_backbone_turns_images_into_logits(kind, model_id, shape):
    model = network(shape, kind=kind, model_id=model_id)
    images = tf.random.stateless_uniform([5, *shape], seed=[1, 2])
    logits = model(images)
    assert logits.shape == (5, 7)
    assert logits.numpy().std() > 0


def test_the_logits_are_of_the_mean_over_the_last_level():
    model = network((64, 96, 3), dropout=0.5)
    images = tf.random.stateless_uniform([2, 64, 96, 3], seed=[1, 2])
    levels = model.layers[1](images)
    assert levels["5"].shape == (2, 2, 3, 512)
    pooled = levels["5"].numpy().mean(axis=(1, 2))
    kernel, bias = model.get_layer("logits").get_weights()
    np.testing.assert_allclose(model(images), pooled @ kernel + bias, rtol=1e-4, atol=1e-5)


def test_the_penalty_is_of_the_weights_and_the_logits_are_float32_under_mixed_precision():
    try:
        tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
        model = network(l2=0.5)
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")
    kernels = [weight for weight in model.trainable_weights if "kernel" in weight.name]
    squares = sum(np.square(weight.numpy()).sum() for weight in kernels)
    assert sum(model.losses).numpy() == pytest.approx(0.5 * squares, rel=1e-4)
    assert model(tf.zeros([1, 32, 32, 3])).dtype == tf.float32


def test_a_training_step_moves_every_weight():
    task = task_factory.get_task(
        image_classification.ImageClassificationConfig(
            model=image_models.ModelConfig(
                type="backbone",
                backbone=backbones.BackboneConfig(
                    backbone=official.Backbone(type="resnet", resnet=official.ResNet(model_id=10))
                ),
            ),
            train_data=image_data.ImageData(is_training=True, global_batch_size=8),
        )
    )
    model = task.build_model()
    before = [weight.numpy() for weight in model.trainable_weights]
    (batch,) = task.build_inputs(task.task_config.train_data).take(1)
    task.train_step(batch, model, tf_keras.optimizers.Adam(0.1))
    for weight, old in zip(model.trainable_weights, before, strict=True):
        assert not np.array_equal(weight.numpy(), old), weight.name


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "resnest", "model_id": None}, "type='resnest' expected dilated_resnet"),
        ({"model_id": 11}, "resnet configured 32 3"),
        ({"kind": "vit", "model_id": None, "shape": (8, 8, 3)}, "vit 8 3"),
        ({"dropout": 1.0}, "BackboneConfig.dropout=1.0"),
        ({"l2": -1.0}, "BackboneConfig.l2=-1.0"),
    ],
)
def test_an_impossible_backbone_is_refused(fields, message):
    with pytest.raises(ConfigError, match=saying(message)):
        network(**fields)


def test_a_backbone_has_to_be_given():
    with pytest.raises(ConfigError, match=r"needs backbone = @backbones.BackboneConfig\(\)"):
        image_models.check(image_models.ModelConfig(type="backbone"))
