"""Networks for images, chosen by configuration. The small ones are built here."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf
import tf_keras
from official.modeling.hyperparams import base_config, oneof

from runner.errors import ConfigError
from tasks.images import wide_resnet as wide_resnets


@dataclasses.dataclass
class MLPConfig(base_config.Config):
    """A multi-layer perceptron.

    Attributes:
        hidden: the units of each hidden layer.
        dropout: the dropout rate after each hidden layer, in [0, 1).
    """

    hidden: tuple[int, ...] = (128,)
    dropout: float = 0.0


@dataclasses.dataclass
class CNNConfig(base_config.Config):
    """3x3 convolutions, each followed by 2x2 max-pooling, and one dense layer.

    Attributes:
        filters: the number of filters of each convolution.
        batch_norm: normalize each convolution's output over the batch.
        dropout: the dropout rate before the dense layer, in [0, 1).
    """

    filters: tuple[int, ...] = (32, 64)
    batch_norm: bool = False
    dropout: float = 0.0


@dataclasses.dataclass
class ModelConfig(oneof.OneOfConfig):
    """The kind of network, and its settings.

    Attributes:
        type: 'mlp', 'cnn', 'wide_resnet' or 'backbone'.
        mlp: read when `type` is 'mlp'.
        cnn: read when `type` is 'cnn'.
        wide_resnet: read when `type` is 'wide_resnet'.
        backbone: a `tasks.images.backbones.BackboneConfig`, read when `type` is 'backbone'.
    """

    type: str = "mlp"
    mlp: MLPConfig = dataclasses.field(default_factory=MLPConfig)
    cnn: CNNConfig = dataclasses.field(default_factory=CNNConfig)
    wide_resnet: wide_resnets.WideResNetConfig = dataclasses.field(
        default_factory=wide_resnets.WideResNetConfig
    )
    backbone: base_config.Config | None = None


def check(config: ModelConfig) -> None:
    """Rejects invalid settings.

    Raises:
        ConfigError: the type is unknown, or a size or rate is out of range.
    """
    match config.type:
        case "mlp":
            _check("MLPConfig.hidden", config.mlp.hidden, "MLPConfig.dropout", config.mlp.dropout)
        case "cnn":
            _check("CNNConfig.filters", config.cnn.filters, "CNNConfig.dropout", config.cnn.dropout)
        case "wide_resnet":
            wide_resnets.check(config.wide_resnet)
        case "backbone":
            _check_backbone(config.backbone)
        case _:
            raise ConfigError(
                f"ModelConfig.type={config.type!r}: expected 'mlp', 'cnn', 'wide_resnet' or"
                " 'backbone'"
            )


def build(config: ModelConfig, image_shape: Sequence[int], classes: int) -> tf_keras.Model:
    """The configured network.

    Args:
        config: the network and its settings, accepted by `check`.
        image_shape: height, width, channels.
        classes: number of outputs.

    Returns:
        A model from images [batch, *image_shape] to logits [batch, classes], float32 under any
        precision policy.

    Raises:
        ConfigError: a backbone cannot be built for images of this shape.
    """
    match config.type:
        case "mlp":
            return mlp(config.mlp, image_shape, classes)
        case "cnn":
            return cnn(config.cnn, image_shape, classes)
        case "wide_resnet":
            return wide_resnets.build(config.wide_resnet, image_shape, classes)
    from tasks.images import backbones  # loads all of official.vision

    assert config.backbone is not None, "`check` rejects this"
    return backbones.build(config.backbone, image_shape, classes)


def standardizing(
    network: tf_keras.Model, mean: Sequence[float], std: Sequence[float]
) -> tf_keras.Model:
    """Adds a layer to `network` that standardizes images by the mean and standard deviation.

    The model then takes images as stored, and the statistics are saved with the weights.
    """
    images = tf_keras.Input(network.input_shape[1:], name="images")
    scale = tf_keras.layers.Normalization(
        mean=list(mean), variance=[value**2 for value in std], dtype="float32", name="standardized"
    )
    return tf_keras.Model(images, network(scale(images)), name=f"standardizing_{network.name}")


def mlp(config: MLPConfig, image_shape: Sequence[int], classes: int) -> tf_keras.Model:
    """A multi-layer perceptron. See `build`."""
    images = tf_keras.Input(image_shape, name="images")
    x = tf_keras.layers.Flatten()(images)
    for units in config.hidden:
        x = tf_keras.layers.Dense(units, activation="relu")(x)
        x = _dropout(x, config.dropout)
    return tf_keras.Model(images, _logits(x, classes), name="mlp")


def cnn(config: CNNConfig, image_shape: Sequence[int], classes: int) -> tf_keras.Model:
    """A small convolutional network. See `build`."""
    images = x = tf_keras.Input(image_shape, name="images")
    for filters in config.filters:
        # A normalized output has its own offset, so a bias would have no effect.
        x = tf_keras.layers.Conv2D(filters, 3, padding="same", use_bias=not config.batch_norm)(x)
        if config.batch_norm:
            x = tf_keras.layers.BatchNormalization(momentum=0.9)(x)
        x = tf_keras.layers.ReLU()(x)
        x = tf_keras.layers.MaxPooling2D(2, padding="same")(x)
    x = _dropout(tf_keras.layers.Flatten()(x), config.dropout)
    return tf_keras.Model(images, _logits(x, classes), name="cnn")


def _dropout(x: tf.Tensor, rate: float) -> tf.Tensor:
    return tf_keras.layers.Dropout(rate)(x) if rate else x


def _logits(x: tf.Tensor, classes: int) -> tf.Tensor:
    return tf_keras.layers.Dense(classes, dtype="float32", name="logits")(x)


def _check(sizes_name: str, sizes: Sequence[int], rate_name: str, rate: float) -> None:
    if any(size < 1 for size in sizes):
        raise ConfigError(f"{sizes_name}={tuple(sizes)}: every size must be above 0")
    if not 0 <= rate < 1:
        raise ConfigError(f"{rate_name}={rate}: must be at least 0 and below 1")


def _check_backbone(config: base_config.Config | None) -> None:
    from tasks.images import backbones  # loads all of official.vision

    if not isinstance(config, backbones.BackboneConfig):
        raise ConfigError(
            "ModelConfig.type='backbone' needs backbone = @backbones.BackboneConfig() (of"
            " tasks.images.backbones)"
        )
    backbones.check(config)
