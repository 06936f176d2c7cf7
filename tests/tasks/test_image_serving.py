"""Image files, served as they are evaluated."""

import image_files
import numpy as np
import pytest
import tensorflow as tf
from official.core import task_factory

from tasks import image_classification
from tasks.images import corruption, image_data


def build_task(path, **fields):
    data = {"input_path": path, **fields}
    config = image_classification.ImageClassificationConfig(
        train_data=image_data.ImageData(is_training=True, global_batch_size=4, split="all", **data),
        validation_data=image_data.ImageData(
            is_training=False, global_batch_size=4, split="all", **data
        ),
    )
    return task_factory.get_task(config)


def pixels(count, height, width):
    smooth = np.linspace(0, 200, width, dtype=np.uint8)[None, :, None]
    return [np.broadcast_to(smooth + 5 * n, (height, width, 3)).copy() for n in range(count)]


def serving(task):
    """The model, and its serving signature as a function of arrays."""
    model = task.build_model()
    module = task.serving(model)

    def serve(image_bytes):
        outputs = module.serve(tf.constant(image_bytes))
        return {name: each.numpy() for name, each in outputs.items()}

    return model, serve


def evaluated(task, model, data):
    metrics = task.build_metrics(training=False)
    for images, labels in task.build_inputs(data):
        task.process_metrics(metrics, labels, model(images, training=False))
    return {each.name: each.result().numpy() for each in metrics}


def test_a_folder_is_served_from_its_own_files_scaled_and_cropped(tmp_path):
    images = {f"{'ab'[n % 2]}/{n}.png": image for n, image in enumerate(pixels(6, 16, 24))}
    task = build_task(image_files.write_folder(tmp_path / "images", images), image_size=(8, 8))
    model, serve = serving(task)
    data = task.task_config.validation_data
    scores, expected = task.score_served(serve, data), evaluated(task, model, data)
    assert scores["accuracy"] == expected["accuracy"]
    likelihood = "negative_log_likelihood"
    assert scores[likelihood] == pytest.approx(expected[likelihood], abs=0.02)
    names = serve([(tmp_path / "images/a/0.png").read_bytes()])["class_name"]
    assert names[0] in (b"a", b"b")


def test_corrupted_images_are_served_as_corrupted(tmp_path):
    task = build_task(image_files.write_npz(tmp_path / "x.npz"))
    model, serve = serving(task)
    data = task.task_config.validation_data.replace(
        corruption=corruption.CorruptionConfig(kind="gaussian_noise", severity=3)
    )
    scores, expected = task.score_served(serve, data), evaluated(task, model, data)
    likelihood = "negative_log_likelihood"
    assert scores[likelihood] == pytest.approx(expected[likelihood], abs=1e-4)


def test_images_of_floats_are_no_files(tmp_path):
    images = np.random.default_rng(0).normal(size=(20, 4, 4, 1)).astype(np.float32)
    path = image_files.write_npz(tmp_path / "x.npz", images=images)
    task = build_task(path)
    assert task.serving(task.build_model()) is None
