"""A trained image classifier that takes the bytes of image files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import export_base
from official.modeling.hyperparams import base_config

from tasks.images import image_examples

_WHITE = 65535  # of a 16-bit PNG, which preserves values finer than 8 bits
_CHANNELS = (1, 3, 4)  # supported by image files

Serve = Callable[..., Mapping[str, np.ndarray]]


class ImageServing(export_base.ExportModule):
    """Maps JPEG, PNG, GIF or BMP files to class probabilities.

    Args:
        params: the task's configuration.
        model: maps images, float32 with white as 1, to logits.
        image_shape: height, width, channels.
        class_names: the names of all classes. Empty if there are none.
    """

    def __init__(
        self,
        params: base_config.Config,
        model: tf_keras.Model,
        *,
        image_shape: Sequence[int],
        class_names: Sequence[str],
    ) -> None:
        super().__init__(params, model)
        # TensorFlow must not track the model, or it would also save it as a Keras model.
        self._weights = model.variables
        del self.model
        object.__setattr__(self, "model", model)
        self._shape = tuple(image_shape)
        self._names = tf.constant(list(class_names) or [""])
        self._has_names = bool(class_names)

    @tf.function(input_signature=(tf.TensorSpec([None], tf.string),))
    def serve(self, image_bytes: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Classifies a batch of image files.

        Args:
            image_bytes: [batch]. A file of another size is scaled (bilinear) to cover the network's
                size, and cropped around the middle.

        Returns:
            `label`, [batch] int64, `class_name`, [batch] strings, if the classes have names, and
            `probabilities` and `logits`, [batch, classes].
        """
        spec = tf.TensorSpec(self._shape, tf.float32)
        images = tf.map_fn(self._decoded, image_bytes, fn_output_signature=spec)
        logits = self.model(images, training=False)
        label = tf.argmax(logits, axis=-1)
        outputs = {"label": label, "logits": logits, "probabilities": tf.nn.softmax(logits)}
        if self._has_names:
            outputs["class_name"] = tf.gather(self._names, label)
        return outputs

    def get_inference_signatures(self, function_keys: Mapping[str, str]) -> Mapping[str, Any]:
        """The signature of `serve`, by its name in `function_keys`."""
        return {function_keys["serve"]: self.serve.get_concrete_function()}

    def _decoded(self, content: tf.Tensor) -> tf.Tensor:
        height, width, channels = self._shape
        image = tf.io.decode_image(
            content, channels=channels, dtype=tf.float32, expand_animations=False
        )
        size = tf.cast(tf.shape(image)[:2], tf.float32)
        wanted = tf.constant([height, width], tf.float32)
        covering = tf.cast(tf.round(size * tf.reduce_max(wanted / size)), tf.int32)
        covering = tf.maximum(covering, [height, width])
        image = tf.image.resize(image, covering, antialias=True)
        return tf.ensure_shape(tf.image.resize_with_crop_or_pad(image, height, width), self._shape)


def can_serve(examples: image_examples.Examples) -> bool:
    """Whether files can hold such images. An array of floats may have any scale."""
    return examples.image_shape[-1] in _CHANNELS and examples.images.dtype != tf.float32


def paths(examples: image_examples.Examples) -> Sequence[bytes]:
    """The paths of the images, if they are files."""
    return examples.images.numpy() if examples.images.dtype == tf.string else ()


def scored(
    serve: Serve, batches: tf.data.Dataset, paths: Sequence[bytes]
) -> Iterator[tuple[np.ndarray, tf.Tensor]]:
    """Yields, by batch, the logits of `serve` for images as files, and their labels.

    Args:
        serve: maps `image_bytes` to the outputs of `ImageServing.serve`.
        batches: images and labels.
        paths: the files of the first images, which are served unchanged. Others become PNGs.
    """
    first = 0
    for images, labels in batches:
        kept = [tf.io.read_file(path) for path in paths[first : first + len(labels)]]
        made = [tf.io.encode_png(pixels) for pixels in _pixels(images[len(kept) :])]
        outputs = serve(image_bytes=np.array([each.numpy() for each in kept + made], object))
        yield outputs["logits"], labels
        first += len(labels)


def _pixels(images: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.round(tf.clip_by_value(images, 0, 1) * _WHITE), tf.uint16)
