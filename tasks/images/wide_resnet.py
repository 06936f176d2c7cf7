"""Wide residual networks (Zagoruyko and Komodakis, "Wide residual networks", 2016).

Built like the deterministic CIFAR baseline of uncertainty-baselines (Nado et al., 2021), in which
weight penalties may differ between groups of layers (Wenzel et al., "Hyperparameter ensembles for
robustness and uncertainty quantification", 2020).
"""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf
import tf_keras
from official.modeling.hyperparams import base_config

from runner.errors import ConfigError


@dataclasses.dataclass
class L2Groups(base_config.Config):
    """A weight penalty for each group of layers, at least 0.

    Attributes:
        input_conv: for the first convolution.
        group_1_conv: for the convolutions at full size, shortcuts included.
        group_2_conv: for the convolutions at half the size.
        group_3_conv: for the convolutions at a quarter of the size.
        bn: for the scales and offsets of batch normalization.
        dense_kernel: for the last layer's weights.
        dense_bias: for the last layer's biases.
    """

    input_conv: float = 0.0
    group_1_conv: float = 0.0
    group_2_conv: float = 0.0
    group_3_conv: float = 0.0
    bn: float = 0.0
    dense_kernel: float = 0.0
    dense_bias: float = 0.0


@dataclasses.dataclass
class WideResNetConfig(base_config.Config):
    """A Wide ResNet. Set exactly one of `l2` and `l2_groups`.

    The loss includes each penalty multiplied by the sum of the squared weights.

    Attributes:
        depth: the number of convolutions and dense layers on the longest path, 6n + 4.
        width: multiplies the 16, 32 and 64 filters of a plain ResNet.
        l2: one penalty for all weights, at least 0.
        l2_groups: a penalty for each group of layers.
    """

    depth: int = 28
    width: int = 10
    l2: float | None = None
    l2_groups: L2Groups | None = None


def check(config: WideResNetConfig) -> None:
    """Rejects invalid settings.

    Raises:
        ConfigError: a size or penalty is out of range, or not exactly one kind of penalty is given.
    """
    if config.depth < 10 or config.depth % 6 != 4:
        raise ConfigError(
            f"WideResNetConfig.depth={config.depth}: must be 6n + 4, such as 10, 16, 22 or 28"
        )
    if config.width < 1:
        raise ConfigError(f"WideResNetConfig.width={config.width}: must be above 0")
    if (config.l2 is None) == (config.l2_groups is None):
        both = "neither" if config.l2 is None else "both"
        raise ConfigError(
            f"WideResNetConfig has {both} of l2 and l2_groups: set exactly one (l2 = 0 for no"
            " penalty)"
        )
    for name, penalty in _penalties(config).as_dict().items():
        if penalty < 0:
            field = "WideResNetConfig.l2" if config.l2_groups is None else f"L2Groups.{name}"
            raise ConfigError(f"{field}={penalty}: must be at least 0")


def build(config: WideResNetConfig, image_shape: Sequence[int], classes: int) -> tf_keras.Model:
    """The configured network, from images to float32 logits. See `image_models.build`.

    Each block normalizes before it convolves, and projects its input if the shape changes.
    """
    l2 = _penalties(config)
    images = tf_keras.Input(image_shape, name="images")
    x = _conv(16, 3, l2=l2.input_conv, name="input_conv")(images)
    groups = enumerate((l2.group_1_conv, l2.group_2_conv, l2.group_3_conv))
    for group, conv_l2 in groups:
        for block in range((config.depth - 4) // 6):
            x = _block(
                x,
                16 * config.width * 2**group,
                stride=2 if group and not block else 1,
                conv_l2=conv_l2,
                norm_l2=l2.bn,
                name=f"group_{group + 1}_block_{block + 1}",
            )
    x = _normalised(x, l2.bn, "norm")
    x = tf_keras.layers.GlobalAveragePooling2D(name="pool")(x)
    logits = tf_keras.layers.Dense(
        classes,
        kernel_initializer="he_normal",
        kernel_regularizer=_regularizer(l2.dense_kernel),
        bias_regularizer=_regularizer(l2.dense_bias),
        dtype="float32",
        name="logits",
    )(x)
    return tf_keras.Model(images, logits, name="wide_resnet")


def _penalties(config: WideResNetConfig) -> L2Groups:
    names = [field.name for field in dataclasses.fields(L2Groups)]
    return config.l2_groups or L2Groups(**dict.fromkeys(names, config.l2))


def _block(
    x: tf.Tensor, filters: int, *, stride: int, conv_l2: float, norm_l2: float, name: str
) -> tf.Tensor:
    y = _normalised(x, norm_l2, f"{name}_norm_1")
    y = _conv(filters, 3, stride=stride, l2=conv_l2, name=f"{name}_conv_1")(y)
    y = _normalised(y, norm_l2, f"{name}_norm_2")
    y = _conv(filters, 3, l2=conv_l2, name=f"{name}_conv_2")(y)
    if x.shape != y.shape:
        x = _conv(filters, 1, stride=stride, l2=conv_l2, name=f"{name}_shortcut")(x)
    return tf_keras.layers.Add(name=f"{name}_add")([x, y])


def _normalised(x: tf.Tensor, l2: float, name: str) -> tf.Tensor:
    normalised = tf_keras.layers.BatchNormalization(
        momentum=0.9,
        epsilon=1e-5,
        beta_regularizer=_regularizer(l2),
        gamma_regularizer=_regularizer(l2),
        name=name,
    )(x)
    return tf_keras.layers.ReLU(name=f"{name}_relu")(normalised)


def _conv(
    filters: int, size: int, *, stride: int = 1, l2: float, name: str
) -> tf_keras.layers.Layer:
    return tf_keras.layers.Conv2D(
        filters,
        size,
        strides=stride,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        kernel_regularizer=_regularizer(l2),
        name=name,
    )


def _regularizer(l2: float) -> tf_keras.regularizers.Regularizer | None:
    return tf_keras.regularizers.L2(l2) if l2 else None
