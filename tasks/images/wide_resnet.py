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
from tasks.images import implicit_ensembles


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
        dropout: the dropout rate between the convolutions of a block, in [0, 1).
        samples: Monte Carlo dropout: the number of passes with dropout in an evaluation, whose
            probabilities are averaged. 1: dropout only in training.
        members: BatchEnsemble: the number of members, which share the weights of each layer except
            for two vectors and the normalization. A step then costs as much as one step of each
            member. 1: no ensemble.
    """

    depth: int = 28
    width: int = 10
    l2: float | None = None
    l2_groups: L2Groups | None = None
    dropout: float = 0.0
    samples: int = 1
    members: int = 1


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
    if not 0 <= config.dropout < 1:
        raise ConfigError(
            f"WideResNetConfig.dropout={config.dropout}: must be at least 0 and below 1"
        )
    for name in ("samples", "members"):
        if (count := getattr(config, name)) < 1:
            raise ConfigError(f"WideResNetConfig.{name}={count}: must be above 0")
    if config.samples > 1 and not config.dropout:
        raise ConfigError(
            f"WideResNetConfig.samples={config.samples} has no effect without dropout"
        )
    if config.samples > 1 and config.members > 1:
        raise ConfigError(
            f"WideResNetConfig has samples={config.samples} and members={config.members}: set"
            " only one of them above 1"
        )
    for name, penalty in _penalties(config).as_dict().items():
        if penalty < 0:
            field = "WideResNetConfig.l2" if config.l2_groups is None else f"L2Groups.{name}"
            raise ConfigError(f"{field}={penalty}: must be at least 0")


def build(config: WideResNetConfig, image_shape: Sequence[int], classes: int) -> tf_keras.Model:
    """The configured network, from images to float32 logits. See `image_models.build`.

    Each block normalizes before it convolves, and projects its input if the shape changes.
    """
    l2, layers = _penalties(config), _Layers(config)
    images = x = tf_keras.Input(image_shape, name="images")
    if layers.networks > 1:
        is_trained = config.members > 1
        x = implicit_ensembles.Repeat(layers.networks, in_training=is_trained, name="repeat")(x)
    x = layers.conv(x, 16, 3, l2=l2.input_conv, name="input_conv")
    groups = enumerate((l2.group_1_conv, l2.group_2_conv, l2.group_3_conv))
    for group, conv_l2 in groups:
        for block in range((config.depth - 4) // 6):
            x = layers.block(
                x,
                16 * config.width * 2**group,
                stride=2 if group and not block else 1,
                conv_l2=conv_l2,
                norm_l2=l2.bn,
                name=f"group_{group + 1}_block_{block + 1}",
            )
    x = layers.normalised(x, l2.bn, "norm")
    x = tf_keras.layers.GlobalAveragePooling2D(name="pool")(x)
    dense = tf_keras.layers.Dense(
        classes,
        kernel_initializer="he_normal",
        kernel_regularizer=_regularizer(l2.dense_kernel),
        bias_regularizer=_regularizer(l2.dense_bias),
        dtype="float32",
        name="logits",
    )
    logits = layers.of_members(dense, x)
    if layers.networks > 1:
        logits = implicit_ensembles.Average(layers.networks, name="average")(logits)
    return tf_keras.Model(images, logits, name="wide_resnet")


def _penalties(config: WideResNetConfig) -> L2Groups:
    names = [field.name for field in dataclasses.fields(L2Groups)]
    return config.l2_groups or L2Groups(**dict.fromkeys(names, config.l2))


class _Layers:
    """Applies the layers of one network, or of several networks that share weights."""

    def __init__(self, config: WideResNetConfig) -> None:
        self._config = config
        self._members = config.members
        self.networks = max(config.samples, config.members)

    def block(
        self, x: tf.Tensor, filters: int, *, stride: int, conv_l2: float, norm_l2: float, name: str
    ) -> tf.Tensor:
        """Applies a residual block."""
        y = self.normalised(x, norm_l2, f"{name}_norm_1")
        y = self.conv(y, filters, 3, stride=stride, l2=conv_l2, name=f"{name}_conv_1")
        y = self.normalised(y, norm_l2, f"{name}_norm_2")
        if rate := self._config.dropout:
            samples = self._config.samples
            y = implicit_ensembles.SampledDropout(rate, samples, name=f"{name}_dropout")(y)
        y = self.conv(y, filters, 3, l2=conv_l2, name=f"{name}_conv_2")
        if x.shape != y.shape:
            x = self.conv(x, filters, 1, stride=stride, l2=conv_l2, name=f"{name}_shortcut")
        return tf_keras.layers.Add(name=f"{name}_add")([x, y])

    def normalised(self, x: tf.Tensor, l2: float, name: str) -> tf.Tensor:
        """Normalizes, with separate statistics for each member, and rectifies."""
        names = [f"{name}_member_{n}" for n in range(self._members)]
        parts = tf.split(x, self._members) if self._members > 1 else [x]
        norms = [
            tf_keras.layers.BatchNormalization(
                momentum=0.9,
                epsilon=1e-5,
                beta_regularizer=_regularizer(l2),
                gamma_regularizer=_regularizer(l2),
                name=each,
            )(part)
            for each, part in zip(names if self._members > 1 else [name], parts, strict=True)
        ]
        x = tf.concat(norms, axis=0) if self._members > 1 else norms[0]
        return tf_keras.layers.ReLU(name=f"{name}_relu")(x)

    def conv(
        self, x: tf.Tensor, filters: int, size: int, *, stride: int = 1, l2: float, name: str
    ) -> tf.Tensor:
        """Applies a convolution."""
        layer = tf_keras.layers.Conv2D(
            filters,
            size,
            strides=stride,
            padding="same",
            use_bias=False,
            kernel_initializer="he_normal",
            kernel_regularizer=_regularizer(l2),
            name=name,
        )
        return self.of_members(layer, x)

    def of_members(self, layer: tf_keras.layers.Layer, x: tf.Tensor) -> tf.Tensor:
        """Applies a layer between the two vectors of each member, if there are several."""
        if self._members == 1:
            return layer(x)
        x = implicit_ensembles.MemberScale(self._members, name=f"{layer.name}_fast_in")(x)
        y = layer(x)
        return implicit_ensembles.MemberScale(self._members, name=f"{layer.name}_fast_out")(y)


def _regularizer(l2: float) -> tf_keras.regularizers.Regularizer | None:
    return tf_keras.regularizers.L2(l2) if l2 else None
