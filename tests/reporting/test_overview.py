"""Parameters by layer, FLOPs, and how they are shown."""

import json

import tensorflow as tf
import tf_keras
from official.vision.modeling import backbones, classification_model
from wording import each_says, says

from runner.reporting import overview

L = tf_keras.layers


def small_model():
    return tf_keras.Sequential([L.Input([8]), L.Dense(5, name="hidden"), L.Dense(3, name="logits")])


class Shared(tf_keras.Model):
    """Layers in attributes and in a list, one of them twice, and a variable of its own."""

    def __init__(self):
        super().__init__(name="shared")
        self.frozen = L.Dense(4, name="frozen")
        self.frozen.trainable = False
        self.blocks = [
            tf_keras.Sequential([L.Dense(4, name="dense")], name=f"block{n}") for n in (1, 2)
        ]
        self.again = self.blocks[0]
        self.scale = tf.Variable(tf.ones([4]), name="scale")

    def call(self, x):
        x = self.frozen(x)
        for block in (*self.blocks, self.again):
            x = block(x)
        return x * self.scale


def test_resnet_50_has_the_parameters_and_the_multiply_adds_that_are_published():
    model = classification_model.ClassificationModel(
        backbones.ResNet(50), 1000, input_specs=L.InputSpec(shape=[None, 224, 224, 3])
    )
    forward = overview.forward(
        lambda images: model(images, training=False), tf.TensorSpec([None, 224, 224, 3])
    )
    view = overview.build(model, forward=forward, training_step=overview.Count(0))
    assert view.trainable == 25_557_032
    assert view.not_trainable == 53_120  # means and variances of batch normalization
    assert forward.multiply_adds == 4_089_184_256
    shown = overview.render(view).plain
    assert "4.09 G multiply-adds" in shown
    assert "25.6 M" in shown
    assert len(shown.splitlines()) < 45


def test_each_variable_counts_once_in_the_layer_that_owns_it():
    model = Shared()
    model(tf.zeros([1, 3]))
    rows = {row.layer: row for row in overview.parameters(model)}
    assert list(rows) == ["shared", "frozen", "block1/dense", "block2/dense"]
    assert (rows["frozen"].trainable, rows["frozen"].not_trainable) == (0, 3 * 4 + 4)
    assert (rows["block1/dense"].trainable, rows["block1/dense"].kind) == (20, "Dense")
    assert rows["block1/dense"].shapes == ((4, 4), (4,))
    assert rows["shared"].trainable == 4
    assert sum(row.trainable + row.not_trainable for row in rows.values()) == model.count_params()


def test_the_forward_pass_is_that_of_one_example_whatever_the_batch():
    model = small_model()
    for batch in (None, 32):
        features = {"image": tf.TensorSpec([batch, 8]), "step": tf.TensorSpec([], tf.int64)}
        counted = overview.forward(lambda x: model(x["image"]), features)
        assert (counted.multiply_adds, counted.flops) == (8 * 5 + 5 * 3, 2 * (8 * 5 + 5 * 3))


def test_counting_leaves_the_model_as_it_was():
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    with strategy.scope():
        model = tf_keras.Sequential([L.Input([8]), L.BatchNormalization(), L.Dense(3)])
        before = [variable.numpy() for variable in model.variables]
        inside = overview.forward(lambda x: model(x, training=True), tf.TensorSpec([4, 8]))
    outside = overview.forward(lambda x: model(x, training=False), tf.TensorSpec([4, 8]))
    assert inside.multiply_adds == outside.multiply_adds == 8 * 3
    for old, variable in zip(before, model.variables, strict=True):
        tf.debugging.assert_equal(old, variable)


def test_a_model_that_cannot_be_traced_says_why_in_one_line():
    def broken(x):
        if tf.reduce_sum(x) > 0:
            raise LookupError("no such feature\nand more")
        return x

    class Reshaping(tf_keras.Model):
        def call(self, x):
            return tf.reshape(x, [7, 3])

    features = tf.TensorSpec([None, 4])
    says(str(overview.forward(broken, features)), "unknown feature")
    says(overview.forward(Reshaping(), features).unknown, "reshape tensor")


def test_the_file_holds_every_figure_or_the_reason_why_there_is_none():
    view = overview.build(
        small_model(),
        forward=overview.Count(55),
        training_step=overview.Count(unknown="loop 'while' is endless"),
    )
    stored = json.loads(json.dumps(view.as_dict()))
    reason = view.as_dict()["training_step_flops"]
    says(reason, "unknown loop 'while' endless")
    assert stored.pop("layers")[0] == {
        "layer": "hidden",
        "kind": "Dense",
        "shapes": [[8, 5], [5]],
        "trainable": 45,
        "not_trainable": 0,
    }
    assert stored == {
        "parameters": 63,
        "trainable_parameters": 63,
        "not_trainable_parameters": 0,
        "frozen_parameters": 0,
        "forward_multiply_adds_per_example": 55,
        "forward_flops_per_example": 110,
        "training_step_multiply_adds": reason,
        "training_step_flops": reason,
    }


def test_a_table_shows_what_fits():
    view = overview.Overview(
        [overview.ParameterRow("dense", "Dense", ((8, 5), (5,)), 45, 0)],
        overview.Count(40),
        overview.Count(unknown="it runs eagerly"),
    )
    each_says(
        overview.render(view).plain.splitlines(),
        "layer shapes",
        "dense Dense 8x5 5 45 0",
        "parameters 45 trainable 0",
        "40 multiply-adds 80 FLOPs",
        "unknown eagerly",
    )


def test_a_long_table_takes_inner_layers_together_or_leaves_out_the_middle():
    def shown(names):
        rows = [overview.ParameterRow(name, "Dense", ((2,),), 2, 0) for name in names]
        view = overview.Overview(rows, overview.Count(0), overview.Count(0))
        return overview.render(view).plain.splitlines()

    nested = shown(f"block{n // 10}/dense{n}" for n in range(100))
    assert len(nested) == 1 + 10 + 3
    assert nested[1].split() == ["block0", "10", "layers", "20", "0"]
    flat = shown(f"dense{n}" for n in range(100))
    assert len(flat) == 1 + 41 + 3
    assert flat[20].startswith("dense19 ")
    says(flat[21], "60 more overview.json")
    assert flat[22].startswith("dense80 ")
