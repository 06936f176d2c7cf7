"""The networks of Model Garden's `official.vision`, by name.

Importing this module loads all of `official.vision`. Only configurations that name it do so.
"""

import dataclasses
from collections.abc import Sequence

import tf_keras
from official.modeling.hyperparams import base_config
from official.vision.configs import backbones, common
from official.vision.modeling import classification_model
from official.vision.modeling.backbones import factory

from runner.errors import ConfigError


@dataclasses.dataclass
class BackboneConfig(base_config.Config):
    """One of `official.vision`'s backbones, with a classifier on its last level.

    ResNets, MobileNets and EfficientNets take images of any size and downsample them by 32, so
    images smaller than 32 pixels lose most of their information. RevNets need multiples of 32
    pixels, SpineNets multiples of 128, ViTs multiples of their patch size.

    Attributes:
        backbone: its `type`, such as 'resnet', and the settings for that type.
        norm_activation: normalization and activation, for types that support a choice.
        dropout: the dropout rate before the dense layer, in [0, 1).
        l2: the weight penalty, at least 0. The loss includes it times the sum of squared weights.
    """

    backbone: backbones.Backbone = dataclasses.field(
        default_factory=lambda: backbones.Backbone(type="resnet")
    )
    norm_activation: common.NormActivation = dataclasses.field(
        default_factory=lambda: common.NormActivation(use_sync_bn=False)
    )
    dropout: float = 0.0
    l2: float = 0.0


def check(config: BackboneConfig) -> None:
    """Rejects invalid settings.

    Raises:
        ConfigError: the type is unknown, or a number is out of range.
    """
    types = sorted({field.name for field in dataclasses.fields(backbones.Backbone)} - {"type"})
    if config.backbone.type not in types:
        raise ConfigError(
            f"Backbone.type={config.backbone.type!r}: expected one of {', '.join(types)}"
        )
    if not 0 <= config.dropout < 1:
        raise ConfigError(
            f"BackboneConfig.dropout={config.dropout}: must be at least 0 and below 1"
        )
    if config.l2 < 0:
        raise ConfigError(f"BackboneConfig.l2={config.l2}: must be at least 0")


def build(config: BackboneConfig, image_shape: Sequence[int], classes: int) -> tf_keras.Model:
    """The configured network, from images to float32 logits. See `image_models.build`.

    Raises:
        ConfigError: the backbone does not support these settings or images of this shape.
    """
    specs = tf_keras.layers.InputSpec(shape=[None, *image_shape])
    l2 = tf_keras.regularizers.L2(config.l2) if config.l2 else None
    try:
        backbone = factory.build_backbone(
            specs, config.backbone, config.norm_activation, l2_regularizer=l2
        )
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"Backbone.type={config.backbone.type!r} cannot be built as configured, for images of"
            f" {list(image_shape)}: {error}"
        ) from error
    pooled = classification_model.ClassificationModel(
        backbone, classes, specs, skip_logits_layer=True
    )
    x = tf_keras.layers.Dropout(config.dropout)(pooled.output)
    logits = tf_keras.layers.Dense(classes, kernel_regularizer=l2, dtype="float32", name="logits")(
        x
    )
    return tf_keras.Model(pooled.input, logits, name=config.backbone.type)
