"""Image classification: one label per image, softmax cross-entropy, accuracy and calibration."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import base_task, task_factory
from official.core import config_definitions as cfg

from runner.errors import ConfigError
from tasks.images import (
    calibration,
    image_data,
    image_examples,
    image_models,
    image_serving,
    out_of_distribution,
)


@dataclasses.dataclass
class ImageClassificationConfig(cfg.TaskConfig):
    """A network, its training images, and the images it is evaluated on.

    Attributes:
        model: the network.
        train_data: by default four fifths of the digits data set.
        validation_data: by default the other fifth.
        num_classes: 0: as in the training data.
        image_shape: height, width, channels. Empty: as in the training data.
        mean: the mean of each channel over the training images (white is 1), for a network that
            expects standardized images. Requires `std`.
        std: the standard deviation of each channel.
        label_smoothing: the fraction of each label's weight that is spread over all classes, in
            [0, 1] (Szegedy et al., "Rethinking the Inception architecture", 2015, section 7).
        pictures: draw a confusion matrix and a reliability diagram after each evaluation.
    """

    model: image_models.ModelConfig = dataclasses.field(default_factory=image_models.ModelConfig)
    train_data: image_data.ImageData = dataclasses.field(
        default_factory=lambda: image_data.ImageData(is_training=True)
    )
    validation_data: image_data.ImageData = dataclasses.field(
        default_factory=lambda: image_data.ImageData(is_training=False)
    )
    num_classes: int = 0
    image_shape: tuple[int, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    label_smoothing: float = 0.0
    pictures: bool = False


@task_factory.register_task_cls(ImageClassificationConfig)
class ImageClassificationTask(base_task.Task):
    """Learns and scores the labels of images. Each source is read once, when first needed."""

    def __init__(
        self,
        params: ImageClassificationConfig,
        logging_dir: str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(params, logging_dir=logging_dir, name=name)
        _check(params)
        self._read = functools.cache(image_examples.read)

    @functools.cached_property
    def num_classes(self) -> int:
        """The number of classes."""
        return self.task_config.num_classes or self._train_examples().classes

    @functools.cached_property
    def image_shape(self) -> tuple[int, ...]:
        """Height, width and channels of an image."""
        return tuple(self.task_config.image_shape or self._train_examples().image_shape)

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        """The classes of the training data. Unknown if these are not needed for a model."""
        if self.task_config.num_classes and self.task_config.image_shape:
            return ()
        return self._train_examples().class_names

    def build_model(self) -> tf_keras.Model:
        """The configured network, from images to logits.

        Raises:
            ConfigError: the network cannot take images of this shape.
        """
        config = self.task_config
        network = image_models.build(config.model, self.image_shape, self.num_classes)
        if not config.mean:
            return network
        channels = self.image_shape[-1]
        if len(config.mean) != channels:
            raise ConfigError(
                f"ImageClassificationConfig.mean has {len(config.mean)} values; the images have"
                f" {channels} channels"
            )
        return image_models.standardizing(network, config.mean, config.std)

    def build_inputs(
        self,
        params: image_data.ImageData,
        input_context: tf.distribute.InputContext | None = None,
    ) -> tf.data.Dataset:
        """Pairs of images [batch, height, width, channels] and labels [batch].

        Raises:
            ConfigError: the data cannot be read, or do not fit the network.
        """
        source = image_data.source_of(params)
        examples = image_examples.with_classes(self._read(source), self._names, str(source))
        if examples.classes > self.num_classes:
            raise ConfigError(
                f"{source}: labels go up to {examples.classes - 1},"
                f" but the network has {self.num_classes} classes"
            )
        shape = examples.image_shape
        if shape != self.image_shape:
            raise ConfigError(
                f"{source}: images are {list(shape)}, but the network takes"
                f" {list(self.image_shape)}"
            )
        return image_data.dataset(examples, params, input_context)

    @tf.autograph.experimental.do_not_convert
    def build_losses(
        self,
        labels: tf.Tensor,
        model_outputs: tf.Tensor,
        aux_losses: Sequence[tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """The mean cross-entropy of a batch, plus the network's own losses.

        Args:
            labels: [batch] integers. Negative ones are ignored. If all are, the mean is 0.
            model_outputs: logits, [batch, classes], or those of several members, [members * batch,
                classes].
            aux_losses: scalars, such as weight penalties.

        Returns:
            A float32 scalar.
        """
        labels = self._of_members(labels, model_outputs)
        losses = tf_keras.losses.categorical_crossentropy(
            tf.one_hot(labels, self.num_classes),
            model_outputs,
            from_logits=True,
            label_smoothing=self.task_config.label_smoothing,
        )
        total = tf.reduce_sum(tf.where(labels >= 0, losses, 0))
        mean = tf.math.divide_no_nan(total, _labelled(labels))
        return tf.add_n([mean, *(aux_losses or ())])

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        """Accuracy, likelihood and calibration. Validation adds the remaining metrics."""
        cheap = [
            calibration.Mean(calibration.correct, "accuracy"),
            calibration.Mean(calibration.negative_log_likelihood, "negative_log_likelihood"),
            calibration.ExpectedCalibrationError(),
        ]
        return cheap if training else [*cheap, *self._validation_metrics()]

    @tf.autograph.experimental.do_not_convert
    def process_metrics(
        self,
        metrics: Sequence[tf_keras.metrics.Metric],
        labels: tf.Tensor,
        model_outputs: tf.Tensor,
        **options: Any,
    ) -> None:
        """Adds a batch to the metrics. In training, several members count as more examples."""
        labels = self._of_members(labels, model_outputs)
        super().process_metrics(metrics, labels, model_outputs, **options)

    def validation_step(
        self,
        inputs: tuple[tf.Tensor, tf.Tensor],
        model: tf_keras.Model,
        metrics: list[tf_keras.metrics.Metric] | None = None,
    ) -> dict[str, tf.Tensor]:
        """Scores a batch. Its loss is weighted by the number of examples with a known class."""
        logs = super().validation_step(inputs, model, metrics)
        _, labels = inputs
        return {**logs, "weight": _labelled(labels)}

    def prediction(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Converts logits [batch, classes] to the most probable class and all probabilities."""
        probabilities = tf.nn.softmax(tf.cast(outputs, tf.float32))
        return {"class": tf.argmax(outputs, axis=-1), "probabilities": probabilities}

    def averaged(self, outputs: tf.Tensor) -> tf.Tensor:
        """The values that ensembles average: the probabilities, [batch, classes]."""
        return self.prediction(outputs)["probabilities"]

    def from_averaged(self, averaged: tf.Tensor) -> tf.Tensor:
        """Logits [batch, classes] with these probabilities."""
        return tf.math.log(tf.maximum(averaged, 1e-12))

    def averaged_classes(self) -> tuple[str, ...]:
        """The names of the classes. Empty if the source has none."""
        return self._train_examples().class_names

    def prediction_keys(self, data: image_data.ImageData) -> np.ndarray:
        """The paths of image files within their directory, or the indices of other images."""
        return image_data.keys(self._read(image_data.source_of(data)), data)

    def prediction_rows(
        self, data: image_data.ImageData, examples: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Classes (with their names, if known), probabilities and labels."""
        del data
        rows = {name: examples[name] for name in ("class", "probabilities", "label")}
        if names := self._train_examples().class_names:
            rows = {"name": np.array(names)[examples["class"]], **rows}
        return rows

    def pictures(self, results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The confusion matrix and the reliability diagram for one set of data.

        Args:
            results: all metrics by name. A plot whose metric is missing is skipped.

        Returns:
            uint8 images [height, width, 3], by name.
        """
        from tasks.images import classification_pictures  # loads Matplotlib

        drawn = {}
        if (counts := results.get("confusion_matrix")) is not None:
            names = self._train_examples().class_names
            drawn["confusion_matrix"] = classification_pictures.confusion_matrix(counts, names)
        if (bins := results.get("reliability")) is not None:
            drawn["reliability"] = classification_pictures.reliability(bins)
        return drawn

    def serving(self, model: tf_keras.Model) -> image_serving.ImageServing | None:
        """The signature for an export, which takes files. None if files cannot hold the images."""
        examples = self._read(image_data.source_of(self.task_config.validation_data))
        if not image_serving.can_serve(examples):
            return None
        return image_serving.ImageServing(
            self.task_config,
            model,
            image_shape=self.image_shape,
            class_names=self._names or examples.class_names,
        )

    def score_served(
        self, serve: image_serving.Serve, data: image_data.ImageData
    ) -> dict[str, np.ndarray]:
        """The validation metrics of an exported model that takes image files.

        Args:
            serve: maps `image_bytes` [batch] to the outputs of `serving`.
            data: the validation data.
        """
        metrics = self.build_metrics(training=False)
        examples = self._read(image_data.source_of(data))
        paths = () if data.corruption else image_serving.paths(examples)
        for logits, labels in image_serving.scored(serve, self.build_inputs(data), paths):
            self.process_metrics(metrics, labels, logits)
        return {
            metric.name: metric.result().numpy()
            for metric in metrics
            if getattr(metric, "is_defined", lambda: True)()
        }

    def _of_members(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """Repeats labels [batch] for the outputs of members in training."""
        model = self.task_config.model
        if model.type != "wide_resnet" or model.wide_resnet.members == 1:
            return labels
        batch = tf.maximum(tf.shape(labels)[0], 1)  # a replica may have no example
        return tf.tile(labels, [tf.shape(outputs)[0] // batch])

    def _validation_metrics(self) -> list[tf_keras.metrics.Metric]:
        metrics = [
            calibration.Mean(calibration.brier_score, "brier_score"),
            calibration.Mean(calibration.confidence, "confidence", of_all=True),
            calibration.Mean(out_of_distribution.entropy, "entropy", of_all=True),
            out_of_distribution.DetectionAUROC(),
            out_of_distribution.DetectionAUPRC(),
        ]
        if self.num_classes > 5:
            metrics.append(calibration.Mean(calibration.correct_in_5, "top_5_accuracy"))
        if self.task_config.pictures:
            metrics += [
                calibration.ConfusionMatrix(self.num_classes),
                calibration.Reliability(),
            ]
        return metrics

    def _train_examples(self) -> image_examples.Examples:
        return self._read(image_data.source_of(self.task_config.train_data))


def _check(params: ImageClassificationConfig) -> None:
    """Raises ConfigError for settings that contradict each other or are out of range."""
    image_models.check(params.model)
    if not 0 <= params.label_smoothing <= 1:
        raise ConfigError(
            f"ImageClassificationConfig.label_smoothing={params.label_smoothing}: must be"
            " from 0 to 1"
        )
    if len(params.mean) != len(params.std) or not all(std > 0 for std in params.std):
        raise ConfigError(
            f"ImageClassificationConfig has mean={params.mean} and std={params.std}: set both, with"
            " one value for every channel and std above 0"
        )
    image_data.check_apart(params.train_data, params.validation_data)


def _labelled(labels: tf.Tensor) -> tf.Tensor:
    """The number of examples with a known class, a float32 scalar."""
    return tf.reduce_sum(tf.cast(labels >= 0, tf.float32))
