"""FAST-LSA: also focuses on the aspects to the left and right, whose polarity is often alike.

Yang et al., "Improving implicit sentiment learning via local sentiment aggregation", 2021: LSA-T,
with PyABSA's single run of the encoder ("fast"). Neighbours are the nearest other aspects of the
same sentence, on either side, whereas PyABSA takes the adjacent examples in the file. A missing
neighbour is replaced by the aspect itself. Attention ignores padding.
"""

import dataclasses

import tensorflow as tf
import tf_keras

from runner.errors import ConfigError
from tasks.aspects import aspect_bert, aspect_features
from tasks.text import bert

_WINDOWS = {"lr": ("left", "right"), "l": ("left",), "r": ("right",)}


@dataclasses.dataclass
class FastLsaConfig(aspect_bert.LcfBertConfig):
    """FAST-LSA.

    Attributes:
        focus: as for LCF-BERT, without 'fusion'.
        window: which neighbours are used: 'lr', 'l' or 'r'.
        eta: the initial weight of each neighbour. The weights are learned. PyABSA multiplies their
            learning rate by 1,000 (a variable group with the pattern '^head_eta').
    """

    window: str = "lr"
    eta: float = 1.0


class _Weighted(tf_keras.layers.Layer):
    """Multiplies by one learned weight."""

    def __init__(self, eta: float, name: str) -> None:
        super().__init__(name=name)
        self._initial = tf_keras.initializers.Constant(eta)

    def build(self, shape: tf.TensorShape) -> None:
        """Creates the weight, with the layer's name as prefix."""
        del shape
        self._eta = self.add_weight("weight", [], initializer=self._initial)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the weighted input, of the same shape."""
        return x * tf.cast(self._eta, x.dtype)


def build(
    config: FastLsaConfig, reader: aspect_features.PairReader, classes: int
) -> bert.BertModel:
    """Builds the model. Arguments, result and errors are those of `aspect_bert.build_spc`."""
    if config.window not in _WINDOWS:
        raise ConfigError(
            f"FastLsaConfig.window={config.window!r}: expected one of {', '.join(_WINDOWS)}"
        )
    if config.focus not in ("cdw", "cdm"):
        raise ConfigError(f"FastLsaConfig.focus={config.focus!r}: expected cdw or cdm")
    inputs, encoder = aspect_bert.begin(config, reader, pooled=False)
    neighbours = tf_keras.Input([2, 2], dtype=tf.int32, name=aspect_features.NEIGHBOURS)
    inputs[aspect_features.NEIGHBOURS] = neighbours
    mask, options = inputs["input_mask"], config.encoder
    sentence = mask * (1 - inputs["input_type_ids"])
    whole = bert.encode(encoder, inputs, reader.pieces.pad)["sequence_output"]
    places = {"left": neighbours[:, 0], "right": neighbours[:, 1]}
    read = []
    for side in ("own", *_WINDOWS[config.window]):
        place = places.get(side, inputs[aspect_features.ASPECT])
        focus = aspect_bert.LocalFocus(config.focus, config.distance, name=f"head_{side}")
        near = focus(whole, sentence=sentence, aspect=place)
        x = aspect_bert.attend(near, mask, options, f"head_{side}_attention")
        read.append(x if side == "own" else _Weighted(config.eta, f"head_eta_{side}")(x))
    join = tf_keras.layers.Concatenate
    local = aspect_bert.dense(join()(read), options, "head_window")
    x = aspect_bert.dense(join()([whole, local]), options, "head_join")
    x = tf_keras.layers.Dropout(bert.sizes(options).dropout)(x)
    x = aspect_bert.attend(x, mask, options, "head_attention")
    pooled = aspect_bert.dense(x[:, 0], options, "head_pooler", activation="tanh")
    return aspect_bert.classifier(inputs, pooled, encoder, config, classes)
