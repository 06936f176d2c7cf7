import tensorflow as tf
import tf_keras
from wording import each_says, says

from runner.checkpoints import compatibility


def model(hidden=3, layers=1):
    points = tf_keras.Input((4,))
    x = points
    for n in range(layers):
        x = tf_keras.layers.Dense(hidden, name=f"hidden_{n}")(x)
    return tf_keras.Model(points, tf_keras.layers.Dense(2, name="head")(x))


def legacy(built):
    optimizer = tf_keras.optimizers.legacy.Adam()
    optimizer._create_all_weights(built.trainable_variables)
    return tf_keras.mixed_precision.LossScaleOptimizer(optimizer)


def modern(built):
    optimizer = tf_keras.optimizers.Adam()
    optimizer.build(built.trainable_variables)
    return optimizer


def checkpoint(built, optimizer=legacy, **others):
    return tf.train.Checkpoint(model=built, optimizer=optimizer(built), **others)


def compare(tmp_path, saved, live):
    tf.train.CheckpointManager(saved, str(tmp_path), max_to_keep=1).save()
    return compatibility.compare(live, tmp_path / "ckpt-1")


def test_the_same_model_matches_whole_with_slots_of_either_kind_of_optimizer(tmp_path):
    report = compare(tmp_path, checkpoint(model()), checkpoint(model()))
    assert report.matched == 4 + 8 + 7  # weights, slots, and what Adam and the loss scale count
    assert report.render() == ""
    report = compare(tmp_path, checkpoint(model(), modern), checkpoint(model(), modern))
    assert report.matched == 4 + 8 + 2
    assert report.render() == ""


def test_differently_shaped_variables_and_slots_are_named_with_both_shapes(tmp_path):
    report = compare(tmp_path, checkpoint(model(3)), checkpoint(model(5)))
    assert (len(report.missing), len(report.unexpected), len(report.different)) == (0, 0, 9)
    says(
        report.different[0],
        "model/layer_with_weights-0/kernel hidden_0/kernel float32 4 3 checkpoint model",
    )
    assert any("optimizer's m of model/layer_with_weights-0/kernel" in d for d in report.different)


def test_what_only_one_of_them_has_is_missing_or_unexpected(tmp_path):
    report = compare(tmp_path, checkpoint(model(2)), checkpoint(model(2, layers=2)))
    assert report.missing == [
        "model/layer_with_weights-2/kernel (head/kernel) float32 (2, 2)",
        "model/layer_with_weights-2/bias (head/bias) float32 (2,)",
        *(
            f"optimizer's {slot} of model/layer_with_weights-2/{weight} (head/{weight}/{slot}) "
            f"float32 {shape}"
            for slot in "mv"
            for weight, shape in (("kernel", "(2, 2)"), ("bias", "(2,)"))
        ),
    ]
    assert report.unexpected == []
    back = compare(tmp_path, checkpoint(model(2, layers=2)), checkpoint(model(2)))
    assert (back.missing, sorted(back.unexpected)) == ([], sorted(report.missing))


def test_another_type_is_a_difference(tmp_path):
    saved = tf.train.Checkpoint(step=tf.Variable(1, dtype=tf.int64))
    report = compare(tmp_path, saved, tf.train.Checkpoint(step=tf.Variable(1.0)))
    each_says(report.different, "int64 checkpoint float32 model")


def test_a_variable_of_any_shape_takes_what_there_is(tmp_path):
    saved = tf.train.Checkpoint(grown=tf.Variable([1.0, 2.0]))
    anything = tf.Variable([0.0], shape=tf.TensorShape(None))
    assert compare(tmp_path, saved, tf.train.Checkpoint(grown=anything)).render() == ""


def test_ten_of_a_kind_are_shown_and_the_rest_counted(tmp_path):
    report = compare(tmp_path, checkpoint(model()), checkpoint(model(layers=8)))
    lines = report.render().splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("  missing") and "42" in line)
    assert lines[start + 11] == "    ... and 32 more"
    assert all(line.startswith("    model/") for line in lines[start + 1 : start + 11])


def test_under_a_strategy_variables_are_matched_as_without(tmp_path):
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        mirrored = checkpoint(model())
        larger = checkpoint(model(5))
    assert compare(tmp_path, checkpoint(model()), mirrored).render() == ""
    assert len(compatibility.compare(larger, tmp_path / "ckpt-1").different) == 9
