import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.core import config_definitions as cfg
from official.core import task_factory
from wording import saying

from runner import config
from runner.errors import ConfigError
from runner.reporting import overview
from runner.runs import build
from runner.runs.call import Call
from tasks import image_classification
from tasks.images import image_data, image_models
from tasks.images.wide_resnet import L2Groups, WideResNetConfig


def network(shape=(8, 8, 1), classes=10, **fields):
    fields = {"depth": 10, "width": 1, **fields}
    wide = image_models.ModelConfig(type="wide_resnet", wide_resnet=WideResNetConfig(**fields))
    image_models.check(wide)
    return image_models.build(wide, shape, classes)


def test_28_10_has_the_published_parameters_and_multiply_adds():
    model = network((32, 32, 3), depth=28, width=10, l2=0.0)
    parameters = 3 * 9 * 16  # the first convolution
    products = 32 * 32 * parameters
    channels = 16
    for filters, side in ((160, 32), (320, 16), (640, 8)):
        for _ in range(4):
            weights = 9 * channels * filters + 9 * filters * filters
            if channels != filters:
                weights += channels * filters
            parameters += weights + 2 * channels + 2 * filters
            products += side * side * weights
            channels = filters
    parameters += 2 * 640 + 640 * 10 + 10
    products += 640 * 10

    assert sum(row.trainable for row in overview.parameters(model)) == parameters == 36_479_194
    assert products == pytest.approx(5.2e9, rel=0.02)
    forward = overview.forward(lambda x: model(x, training=False), tf.TensorSpec([1, 32, 32, 3]))
    assert forward.flops == pytest.approx(2 * products, rel=0.01)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"depth": 27, "l2": 0.0}, "depth=27 6n 4"),
        ({"depth": 4, "l2": 0.0}, "depth=4"),
        ({"width": 0, "l2": 0.0}, "width=0"),
        ({}, "l2 l2_groups exactly"),
        ({"l2": 0.0, "l2_groups": L2Groups()}, "l2 l2_groups"),
        ({"l2": -1e-4}, "WideResNetConfig.l2=-0.0001"),
        ({"l2_groups": L2Groups(dense_bias=-1.0)}, "L2Groups.dense_bias=-1.0"),
        ({"l2": 0.0, "dropout": 1.0}, "dropout=1.0 below 1"),
        ({"l2": 0.0, "members": 0}, "members=0 above 0"),
        ({"l2": 0.0, "samples": 2}, "samples=2 effect dropout"),
        ({"l2": 0.0, "samples": 2, "dropout": 0.1, "members": 2}, "samples=2 members=2 one"),
    ],
)
def test_an_impossible_network_is_refused_before_data_are_read(fields, message):
    wide = WideResNetConfig(**fields)
    with pytest.raises(ConfigError, match=saying(message)):
        task_factory.get_task(
            image_classification.ImageClassificationConfig(
                model=image_models.ModelConfig(type="wide_resnet", wide_resnet=wide),
                train_data=image_data.ImageData(is_training=True, input_path="missing.npz"),
            )
        )


GROUPS = {
    "input_conv": r"input_conv/",
    "group_1_conv": r"group_1_.*(conv_.|shortcut)/",
    "group_2_conv": r"group_2_.*(conv_.|shortcut)/",
    "group_3_conv": r"group_3_.*(conv_.|shortcut)/",
    "bn": r".*norm.*/(gamma|beta)",
    "dense_kernel": r"logits/kernel",
    "dense_bias": r"logits/bias",
}


def squares(model, pattern):
    """The sum of the squared weights whose names match."""
    matching = tf.strings.regex_full_match
    found = [w for w in model.trainable_weights if matching(w.name, f"{pattern}.*")]
    return sum(float(np.square(w.numpy()).sum()) for w in found)


def randomize(model):
    """Weights other than those at the start, where biases and offsets are 0."""
    draw = np.random.default_rng(0)
    model.set_weights([draw.uniform(0.5, 1, w.shape) for w in model.get_weights()])


def test_a_groups_penalty_is_of_its_weights_alone():
    strengths = {group: 0.1 * 2**number for number, group in enumerate(GROUPS)}
    model = network(l2_groups=L2Groups(**strengths))
    randomize(model)
    expected = sum(each * squares(model, GROUPS[group]) for group, each in strengths.items())
    assert sum(model.losses).numpy() == pytest.approx(expected, rel=1e-5)


def test_the_groups_are_all_weights_and_one_penalty_is_that_of_all():
    model = network(l2=0.5)
    randomize(model)
    everything = squares(model, "")
    assert sum(squares(model, each) for each in GROUPS.values()) == pytest.approx(everything)
    assert sum(model.losses).numpy() == pytest.approx(0.5 * everything, rel=1e-5)
    assert not network(l2=0.0).losses


def images(count):
    return tf.random.stateless_uniform([count, 8, 8, 1], seed=[1, 2])


def experiment(l2, **runtime):
    task = image_classification.ImageClassificationConfig(
        model=image_models.ModelConfig(
            type="wide_resnet", wide_resnet=WideResNetConfig(depth=10, width=1, l2=l2)
        ),
        train_data=image_data.ImageData(is_training=True, global_batch_size=4),
        validation_data=image_data.ImageData(is_training=False, global_batch_size=16),
    )
    made = config.Experiment(task=task, runtime=cfg.RuntimeConfig(**runtime))
    made.override(
        {
            "trainer": {
                "train_steps": 3,
                "optimizer_config": {
                    "optimizer": {"type": "sgd", "sgd": {"momentum": 0.9}},
                    "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.1}},
                },
            },
        }
    )
    return made


@pytest.mark.parametrize(
    "runtime",
    [{"mixed_precision_dtype": "float16"}, {"enable_xla": True}],
    ids=str,
)
def test_mixed_precision_and_xla_move_every_weight(tmp_path, runtime):
    asked = Call(experiment(1e-4, distribution_strategy="off", **runtime), tmp_path)
    trainer, _ = build.build_trainer(asked, step=0, evaluates=False)
    model = trainer.model
    before = [weight.numpy() for weight in model.trainable_weights]
    logs = trainer.train(tf.constant(3))
    assert np.isfinite(float(logs["training_loss"]))
    assert all(loss.dtype == tf.float32 for loss in model.losses)
    assert model(images(2)).dtype == tf.float32
    for weight, old in zip(model.trainable_weights, before, strict=True):
        assert weight.dtype == tf.float32
        assert not np.array_equal(weight.numpy(), old), weight.name


def test_two_replicas_count_a_penalty_once():
    """Both get the same images, so that their normalisations are those of one device."""
    strategies = [tf.distribute.get_strategy(), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])]
    batch = (images(4), tf.constant([0, 1, 2, 3]))
    seen = []
    for strategy in strategies:
        with strategy.scope():
            task = task_factory.get_task(experiment(l2=1e-2).task)
            model, optimizer = task.build_model(), tf_keras.optimizers.SGD(0.1)
            weights = [np.full(w.shape, 0.1, w.dtype.as_numpy_dtype) for w in model.weights]
            model.set_weights(weights)
            logs = strategy.run(task.train_step, args=(batch, model, optimizer))
        losses = strategy.experimental_local_results(logs["loss"])
        loss, *others = [float(each) for each in losses]
        assert others == [loss] * (strategy.num_replicas_in_sync - 1)
        seen.append([loss, *[w.numpy() for w in model.trainable_weights]])
    penalty = 1e-2 * sum(w.numpy().size * 0.01 for w in model.trainable_weights)
    assert seen[0][0] > penalty
    for one, two in zip(*seen, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-6)
