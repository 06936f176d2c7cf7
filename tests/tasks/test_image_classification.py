import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.core import task_factory
from wording import saying

from runner.errors import ConfigError
from tasks import image_classification
from tasks.images import augmentation, image_data, image_models, wide_resnet


def training(**fields):
    return image_data.ImageData(**{"is_training": True, "global_batch_size": 16, **fields})


def validation(**fields):
    return image_data.ImageData(**{"is_training": False, "global_batch_size": 100, **fields})


def build_task(**fields):
    fields = {"train_data": training(), "validation_data": validation(), **fields}
    return task_factory.get_task(image_classification.ImageClassificationConfig(**fields))


def everything(data, task=None):
    """Images and labels of one pass, in order."""
    batches = list((task or build_task()).build_inputs(data).as_numpy_iterator())
    return [np.concatenate(part) for part in zip(*batches, strict=True)]


def write_npz(path, count=20, *, classes=3, **arrays):
    images = np.arange(count * 16, dtype=np.uint8).reshape(count, 4, 4)
    np.savez(path, **{"images": images, "labels": np.arange(count) % classes, **arrays})
    return str(path)


def test_classes_and_image_shape_come_from_the_training_data(tmp_path):
    path = write_npz(tmp_path / "x.npz", classes=7)
    model = build_task(train_data=training(input_path=path)).build_model()
    assert (model.input_shape, model.output_shape) == ((None, 4, 4, 1), (None, 7))


def test_classes_and_image_shape_can_be_given(tmp_path):
    task = build_task(
        train_data=training(input_path=str(tmp_path / "not read.npz")),
        num_classes=20,
        image_shape=(5, 6, 3),
    )
    model = task.build_model()
    assert (model.input_shape, model.output_shape) == ((None, 5, 6, 3), (None, 20))


def test_data_that_do_not_fit_the_network_are_refused(tmp_path):
    path = write_npz(tmp_path / "x.npz", classes=12)
    data = validation(input_path=path)
    with pytest.raises(ConfigError, match=saying("x.npz labels 11 10 classes")):
        build_task(image_shape=(4, 4, 1), num_classes=10).build_inputs(data)
    with pytest.raises(ConfigError, match=r"x\.npz: images are \[4, 4, 1\], .* \[8, 8, 1\]"):
        build_task(num_classes=12).build_inputs(data)


def test_validation_data_without_some_classes_are_scored_by_the_names_of_classes(tmp_path):
    train = write_npz(tmp_path / "train.npz", class_names=["ant", "bee", "cat"])
    own = write_npz(tmp_path / "own.npz", classes=2, class_names=["cat", "ant"])
    task = build_task(train_data=training(input_path=train))
    _, labels = everything(validation(input_path=own), task)
    assert labels.tolist() == [2, 0] * 10
    other = write_npz(tmp_path / "other.npz", classes=2, class_names=["ant", "cow"])
    with pytest.raises(ConfigError, match=saying("other.npz cow ant")):
        task.build_inputs(validation(input_path=other))


def test_one_file_for_training_and_validation_needs_its_splits_named(tmp_path):
    path = write_npz(tmp_path / "x.npz")
    with pytest.raises(ConfigError, match=saying("share images x.npz split='train'")):
        build_task(
            train_data=training(input_path=path), validation_data=validation(input_path=path)
        )
    train = training(input_path=path, split="train", global_batch_size=16)
    scored = validation(input_path=path, split="validation")
    task = build_task(train_data=train, validation_data=scored)
    assert len(everything(scored, task)[0]) == 4


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (image_models.ModelConfig(type="resnet"), "type='resnet'.*'mlp', 'cnn', "),
        (image_models.ModelConfig(mlp=image_models.MLPConfig(hidden=(64, 0))), "hidden=.64, 0."),
        (image_models.ModelConfig(mlp=image_models.MLPConfig(dropout=1.0)), "dropout=1.0"),
        (
            image_models.ModelConfig(type="cnn", cnn=image_models.CNNConfig(dropout=-0.1)),
            "CNNConfig.dropout=-0.1",
        ),
    ],
)
def test_an_impossible_network_is_refused(model, message):
    with pytest.raises(ConfigError, match=message):
        build_task(model=model)


@pytest.mark.parametrize("smoothing", [-0.1, 1.1])
def test_label_smoothing_out_of_range_is_refused(smoothing):
    with pytest.raises(ConfigError, match=f"label_smoothing={smoothing}"):
        build_task(label_smoothing=smoothing)


@pytest.mark.parametrize("smoothing", [0.0, 0.3, 1.0])
def test_the_loss_is_the_mean_cross_entropy_plus_the_penalties(smoothing):
    logits = np.random.default_rng(0).normal(size=(6, 10)).astype(np.float32)
    labels = np.array([3, 1, 4, 1, 5, 9])
    targets = np.eye(10)[labels] * (1 - smoothing) + smoothing / 10
    log_softmax = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    expected = -(targets * log_softmax).sum(axis=1).mean()

    task = build_task(label_smoothing=smoothing)
    labels, logits = tf.constant(labels), tf.constant(logits)
    assert task.build_losses(labels, logits).numpy() == pytest.approx(expected, rel=1e-5)
    penalised = task.build_losses(labels, logits, aux_losses=[tf.constant(2.0)])
    assert penalised.numpy() == pytest.approx(expected + 2, rel=1e-5)


def test_the_loss_of_an_empty_batch_is_0():
    loss = build_task().build_losses(tf.zeros([0], tf.int32), tf.zeros([0, 10]))
    assert loss.numpy() == 0


def test_images_of_no_known_class_have_no_loss():
    logits = tf.random.stateless_normal([6, 10], seed=[1, 2])
    task = build_task(label_smoothing=0.3)
    loss = task.build_losses(tf.constant([3, -1, 4, -1, 5, -2]), logits)
    known = task.build_losses(tf.constant([3, 4, 5]), tf.gather(logits, [0, 2, 4]))
    assert loss.numpy() == pytest.approx(known.numpy(), rel=1e-6)


def scored(task, data):
    """The results of the metrics over some data, and the batches' losses and weights."""
    model, metrics = task.build_model(), task.build_metrics(training=False)
    logs = [task.validation_step(batch, model, metrics) for batch in task.build_inputs(data)]
    results = {metric.name: metric.result().numpy() for metric in metrics if metric.is_defined()}
    return model, results, [(float(log["loss"]), float(log["weight"])) for log in logs]


def test_the_likelihood_knows_neither_smoothing_nor_penalties():
    wide = wide_resnet.WideResNetConfig(depth=10, width=1, l2=0.01)
    penalised = image_models.ModelConfig(type="wide_resnet", wide_resnet=wide)
    task = build_task(model=penalised, label_smoothing=0.3)
    model, results, batches = scored(task, validation())
    images, labels = everything(validation(), task)
    logits = model(images, training=False).numpy()
    log_softmax = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    likelihood = -log_softmax[np.arange(len(labels)), labels].mean()
    assert results["negative_log_likelihood"] == pytest.approx(likelihood, rel=1e-5)
    assert results["accuracy"] == pytest.approx((logits.argmax(axis=1) == labels).mean())

    assert [weight for _, weight in batches] == [100, 100, 100, 59]
    smoothed = 0.7 * likelihood - 0.3 * log_softmax.mean()
    total = sum(loss * weight for loss, weight in batches) / 359
    assert total == pytest.approx(smoothed + sum(model.losses).numpy(), rel=1e-4)


def test_images_of_no_known_class_are_told_from_the_others(tmp_path):
    noise = np.random.default_rng(0).uniform(size=(50, 8, 8))
    path = write_npz(tmp_path / "noise.npz", 50, images=noise)
    mixed = validation(out_of_distribution=image_data.ImageData(is_training=False, input_path=path))
    task = build_task()
    _, results, batches = scored(task, mixed)
    assert sum(weight for _, weight in batches) == 359
    assert 0 < results["ood_auroc"] < 1
    assert 0 < results["ood_auprc"] < 1
    assert "ood_auroc" not in scored(task, validation())[1]


SCORES = {"accuracy", "negative_log_likelihood", "expected_calibration_error"}


def test_training_has_the_cheap_metrics_and_validation_all(tmp_path):
    def names(training, **fields):
        return {metric.name for metric in build_task(**fields).build_metrics(training=training)}

    assert names(True) == names(True, pictures=True) == SCORES
    detection = {"ood_auroc", "ood_auprc"}
    every = SCORES | detection | {"brier_score", "confidence", "entropy", "top_5_accuracy"}
    assert names(False) == every
    assert names(False, pictures=True) == every | {"confusion_matrix", "reliability"}
    five = training(input_path=write_npz(tmp_path / "x.npz", classes=5))
    assert names(False, train_data=five) == every - {"top_5_accuracy"}


def test_pictures_are_drawn_of_the_results_there_are():
    task = build_task(pictures=True)
    _, results, _ = scored(task, validation())
    drawn = task.pictures(results)
    assert set(drawn) == {"confusion_matrix", "reliability"}
    for picture in drawn.values():
        assert (picture.dtype, picture.shape[2]) == (np.uint8, 3)
    assert not task.pictures({"accuracy": np.float64(0.5)})


MODELS = [
    image_models.ModelConfig(type="mlp", mlp=image_models.MLPConfig(hidden=(32,), dropout=0.1)),
    image_models.ModelConfig(type="cnn", cnn=image_models.CNNConfig(filters=(8,), dropout=0.1)),
    image_models.ModelConfig(
        type="cnn", cnn=image_models.CNNConfig(filters=(8, 8, 8, 8, 8), batch_norm=True)
    ),
]


@pytest.mark.parametrize("model_config", MODELS, ids=["mlp", "cnn", "deep cnn with batch norm"])
def test_training_steps_lower_the_loss(model_config):
    tf_keras.utils.set_random_seed(1)
    data = training(augment=augmentation.AugmentConfig(pad=1), global_batch_size=64)
    task = build_task(model=model_config, train_data=data)
    model, optimizer = task.build_model(), tf_keras.optimizers.Adam(1e-2)
    step = tf.function(lambda batch: task.train_step(batch, model, optimizer)["loss"])
    losses = [step(batch).numpy() for batch in task.build_inputs(data).take(40)]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])


def test_logits_are_float32_under_mixed_precision():
    try:
        tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
        models = [build_task(model=config).build_model() for config in MODELS]
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")
    for model in models:
        assert model.layers[-2].compute_dtype == "bfloat16"
        assert model(tf.zeros([1, 8, 8, 1])).dtype == tf.float32


def test_a_network_may_see_standardized_images(tmp_path):
    path = write_npz(tmp_path / "x.npz")
    data = {"train_data": training(input_path=path), "model": image_models.ModelConfig()}
    model = build_task(**data, mean=(0.25,), std=(0.5,)).build_model()
    plain = build_task(**data).build_model()
    plain.set_weights(model.get_weights())
    images = np.random.default_rng(0).random((3, 4, 4, 1), np.float32)
    np.testing.assert_allclose(model(images), plain((images - 0.25) / 0.5), rtol=1e-5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mean": (0.5,)}, "mean=(0.5 std="),
        ({"mean": (0.5,), "std": (0.0,)}, "std above 0"),
        ({"mean": (0.5, 0.5, 0.5), "std": (1.0, 1.0, 1.0)}, "3 values 1 channels"),
    ],
)
def test_means_and_deviations_that_do_not_fit_the_images_are_refused(fields, message):
    with pytest.raises(ConfigError, match=saying(message)):
        build_task(**fields).build_model()
