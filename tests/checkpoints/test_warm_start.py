import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import toy
from wording import saying, says

import runner
from runner.checkpoints import warm_start
from runner.errors import ConfigError, RunnerError


def model(value=0.0, *, hidden=3, classes=2):
    points = tf_keras.Input((4,))
    hidden = tf_keras.layers.Dense(hidden, name="hidden")(tf_keras.layers.Flatten()(points))
    hidden = tf_keras.layers.BatchNormalization()(hidden)
    made = tf_keras.Model(points, tf_keras.layers.Dense(classes, name="head")(hidden))
    made.set_weights([np.full(w.shape, value) for w in made.get_weights()])
    return made


def values(made):
    return {float(x) for w in made.get_weights() for x in np.unique(w)}


def training(made, folder):
    """A training checkpoint in `folder`, as a run writes them."""
    optimizer = tf_keras.optimizers.legacy.Adam()
    optimizer._create_all_weights(made.trainable_variables)
    step = tf.Variable(7, dtype=tf.int64)
    saved = tf.train.Checkpoint(model=made, optimizer=optimizer, global_step=step)
    return tf.train.CheckpointManager(saved, str(folder), max_to_keep=1).save()


FORMS = {
    "a training checkpoint": training,
    "a folder": lambda made, folder: training(made, folder) and folder,
    "an index file": lambda made, folder: training(made, folder) + ".index",
    "the model alone": lambda made, folder: tf.train.Checkpoint(model=made).write(f"{folder}/m"),
    "Keras's weights": lambda made, folder: made.save_weights(f"{folder}/w") or f"{folder}/w",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_model_is_initialized_from(tmp_path, form):
    path = FORMS[form](model(5.0), tmp_path)
    made = model()
    report = warm_start.initialize(made, tmp_path / path)
    assert values(made) == {5.0}
    assert report.matched == 8
    assert report.render() == ""  # the optimizer is nobody's loss


def test_what_does_not_fit_keeps_its_initial_value_and_is_reported(tmp_path):
    path = training(model(5.0, classes=2), tmp_path)
    made = model(1.0, classes=4)
    report = warm_start.initialize(made, tmp_path / path)
    assert values(made.get_layer("head")) == {1.0}
    assert values(made.get_layer("hidden")) == {5.0}
    assert report.matched == 6
    assert report.missing == report.unexpected == []
    says(
        report.different[0],
        "model/layer_with_weights-2/kernel head/kernel float32 3 2 checkpoint model",
    )


def test_what_only_one_of_them_has_is_reported(tmp_path):
    larger = tf_keras.Sequential([model(5.0), tf_keras.layers.Dense(1, name="new")])
    path = tf.train.Checkpoint(model=larger).write(str(tmp_path / "m"))
    smaller = tf_keras.Sequential([model()])
    report = warm_start.initialize(smaller, tmp_path / path)
    assert [line.split()[0] for line in report.unexpected] == [
        "model/layer_with_weights-1/kernel",
        "model/layer_with_weights-1/bias",
    ]
    path = tf.train.Checkpoint(model=tf_keras.Sequential([model(5.0)])).write(str(tmp_path / "s"))
    assert len(warm_start.initialize(larger, tmp_path / path).missing) == 2


def test_the_items_that_a_model_names_are_what_is_loaded(tmp_path):
    pretrained, head = model(5.0), tf.Variable(5.0)
    saved = tf.train.Checkpoint(encoder=pretrained, head=head)
    path = saved.write(str(tmp_path / "m"))
    made = tf_keras.Sequential([model(), tf_keras.layers.Dense(1, name="head")])
    made.checkpoint_items = {"encoder": made.layers[0]}
    before = made.layers[1].get_weights()
    report = warm_start.initialize(made, tmp_path / path)
    assert values(made.layers[0]) == {5.0}
    assert np.array_equal(made.layers[1].get_weights()[0], before[0])
    assert report.matched == 8
    assert [line.split()[0] for line in report.missing] == [
        "layer_with_weights-1/kernel",
        "layer_with_weights-1/bias",
    ]
    with pytest.raises(ConfigError, match=saying("model missing 2")):
        warm_start.initialize(made, tmp_path / path, whole=True)


def deep(sizes):
    return tf_keras.Sequential([tf_keras.layers.Dense(n, name=f"d{n}") for n in sizes])


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((4, 5), "d5/kernel float32 (4, 3) (4, 5) checkpoint"),
        ((4, 3, 2), "encoder/layer_with_weights-2/kernel (3, 2) model only"),
    ],
)
@pytest.mark.parametrize("form", ["encoder", "model"])
def test_an_item_of_other_sizes_is_refused(tmp_path, sizes, said, form):
    def whole(sizes):
        encoder = deep(sizes)
        made = tf_keras.Sequential([encoder, tf_keras.layers.Dense(sizes[0], name="head")])
        made.build((None, 4))
        made.checkpoint_items = {"encoder": encoder}
        return made

    saved = whole((4, 3))
    parts = {"encoder": saved.layers[0]} if form == "encoder" else {"model": saved}
    tf.train.Checkpoint(**parts).write(str(tmp_path / "m"))
    made = whole(sizes)
    before = made.get_weights()
    with pytest.raises(ConfigError, match=saying(f"encoder sizes {said}")):
        warm_start.initialize(made, tmp_path / "m")
    assert all(map(np.array_equal, made.get_weights(), before))


def test_a_model_with_items_can_start_from_its_like_saved_as_a_model(tmp_path):
    path = tf.train.Checkpoint(model=model(5.0)).write(str(tmp_path / "m"))
    made = model()
    made.checkpoint_items = {"encoder": made.get_layer("hidden")}
    assert warm_start.initialize(made, tmp_path / path).matched == 8
    assert values(made) == {5.0}


def test_under_a_strategy_every_replica_is_initialized(tmp_path):
    path = training(model(5.0), tmp_path)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        made = model()
    warm_start.initialize(made, tmp_path / path)
    for variable in made.variables:
        for part in strategy.experimental_local_results(variable):
            assert set(np.unique(part.numpy())) == {5.0}


def test_where_nothing_fits_it_is_a_mistake(tmp_path):
    path = tf.train.Checkpoint(something=tf.Variable([1.0])).write(str(tmp_path / "m"))
    with pytest.raises(ConfigError, match=saying("/m something float32 1")):
        warm_start.initialize(model(), tmp_path / path)


def test_a_path_without_a_checkpoint_is_answered_with_those_there_are(tmp_path):
    tf.train.Checkpoint(model=model()).write(str(tmp_path / "bert.ckpt"))
    for path in (tmp_path, tmp_path / "brt.ckpt"):
        with pytest.raises(ConfigError, match=r"init_checkpoint = .*has bert\.ckpt$"):
            warm_start.initialize(model(), path)
    with pytest.raises(ConfigError, match=saying("no checkpoint")):
        warm_start.initialize(model(), tmp_path / "no" / "where")


@pytest.mark.parametrize("there", [True, False])
def test_a_missing_one_is_said_in_one_line_by_a_task_that_loads_it_itself(
    tmp_path, monkeypatch, there
):
    def load(self, model):
        path = tf.train.latest_checkpoint(str(tmp_path)) or self.task_config.init_checkpoint
        tf.train.Checkpoint(model=model).read(path).assert_existing_objects_matched()

    monkeypatch.setattr(toy.ToyTask, "initialize", load)
    if there:
        tf.train.Checkpoint(model=model()).write(str(tmp_path / "bert.ckpt"))
    config = toy.experiment({"task": {"init_checkpoint": str(tmp_path / "brt.ckpt")}})
    with pytest.raises(ConfigError, match=saying("init_checkpoint checkpoint")) as error:
        runner.run(config, tmp_path / "run", "train")
    assert ("bert.ckpt" in str(error.value)) == there


def read(path, **parts):
    return tf.train.Checkpoint(**parts).read(path)


LOADS = {  # how Model Garden's tasks load, and what the message then names
    "backbone": (
        lambda path, model: (
            read(path, backbone=model.layers[1]).expect_partial().assert_existing_objects_matched()
        ),
        r"dense\w*/kernel float32 \(4, 8\)",
    ),
    "all": (lambda path, model: read(path, model=model).assert_consumed(), r"shape \(3,\)"),
    "nothing": (lambda path, model: read(path, m=model).assert_nontrivial_match(), "4 variables"),
    "other weights": (lambda path, model: model.load_weights(f"{path}.h5"), "(?i)layer"),
    "another format": (lambda path, model: read(f"{path}.h5", model=model), "(?i)file|table"),
}


@pytest.mark.parametrize("kind", LOADS)
def test_one_of_another_model_is_said_by_a_task_that_loads_it_itself(tmp_path, monkeypatch, kind):
    load, named = LOADS[kind]
    other = model()
    path = tf.train.Checkpoint(model=other).write(str(tmp_path / "bert.ckpt"))
    other.save_weights(f"{path}.h5")
    monkeypatch.setattr(
        toy.ToyTask, "initialize", lambda self, made: load(self.task_config.init_checkpoint, made)
    )
    with pytest.raises(ConfigError, match=named) as error:
        runner.run(toy.experiment({"task": {"init_checkpoint": path}}), tmp_path / "run", "train")
    assert "TaskConfig.init_checkpoint" in str(error.value)
    assert "test_warm_start.py:" in str(error.value)  # it may be a mistake in there
    assert "numpy" not in str(error.value)
    assert not (tmp_path / "run").exists()


def lacks_a_key(self, made):
    raise KeyError("head")


def lacks_a_layer(self, made):
    made.get_layer("head")


def asserts(self, made):
    assert made is None, "head"


@pytest.mark.parametrize(
    ("load", "kind"),
    [(lacks_a_key, KeyError), (lacks_a_layer, ValueError), (asserts, AssertionError)],
)
def test_a_bug_in_a_task_that_loads_it_itself_is_raised(tmp_path, monkeypatch, load, kind):
    monkeypatch.setattr(toy.ToyTask, "initialize", load)
    path = tf.train.Checkpoint(model=model()).write(str(tmp_path / "bert.ckpt"))
    with pytest.raises(kind, match="head"):
        runner.run(toy.experiment({"task": {"init_checkpoint": path}}), tmp_path / "run", "train")


def test_a_checkpoint_of_tensorflow_1_is_refused(tmp_path):
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "old"),
        tensor_names=["w"],
        shape_and_slices=[""],
        tensors=[tf.constant(1.0)],
    )
    with pytest.raises(ConfigError, match="TensorFlow 1"):
        warm_start.initialize(model(), tmp_path / "old")


def test_a_damaged_one_changes_nothing(tmp_path):
    path = training(model(5.0), tmp_path)
    file = tmp_path / f"{path}.data-00000-of-00001"
    content = bytearray(file.read_bytes())
    content[-60] ^= 1
    file.write_bytes(content)
    made = model()
    with pytest.raises(RunnerError, match="is damaged"):
        warm_start.initialize(made, tmp_path / path)
    assert values(made) == {0.0}
