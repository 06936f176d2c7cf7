"""The task of digits.gin, with training images that a source reads by index from files.

python -m scripts.chaos workers --workers=1..3 --gin_file=scripts/indexed_digits.gin
"""

import dataclasses
import io
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import tensorflow as tf
from official.core import task_factory
from PIL import Image

from runner import inputs
from tasks import image_classification
from tasks.images import image_data

_SHAPE = (8, 8, 1)
_PIXELS = 64

Parse = Callable[[Any], tuple[tf.Tensor, tf.Tensor]]


@dataclasses.dataclass
class IndexedDigitsConfig(image_classification.ImageClassificationConfig):
    """The task, and the kind of its files.

    Attributes:
        kind: a key of `KINDS`.
        wrong: The numbers of the examples that get a wrong label.
    """

    kind: str = "tfrecord"
    wrong: tuple[int, ...] = ()


@task_factory.register_task_cls(IndexedDigitsConfig)
class IndexedDigits(image_classification.ImageClassificationTask):
    """Writes the training images to files if they do not exist, and reads them by index."""

    def build_inputs(
        self, params: image_data.ImageData, input_context: tf.distribute.InputContext | None = None
    ) -> Any:
        """Pairs of images [batch, 8, 8, 1] and labels [batch]."""
        if not params.is_training:
            return super().build_inputs(params, input_context)
        examples = self._train_examples()
        kind, wrong = self.task_config.kind, self.task_config.wrong
        name = f"{kind}-{zlib.crc32(repr(wrong).encode()):08x}" if wrong else kind
        folder = Path(tempfile.gettempdir(), "indexed_digits", name)
        write, parse = KINDS[kind]
        if not folder.exists():
            part = Path(tempfile.mkdtemp(dir=_made(folder.parent)))
            white = np.asarray(examples.images) / examples.white
            labels = np.array(examples.labels)
            labels[list(wrong)] = (labels[list(wrong)] + 5) % 10
            write(part, np.asarray(white, np.float32), labels)
            _placed(part, folder)
        return inputs.place(
            inputs.source(folder), parse, config=params, input_context=input_context
        )


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _placed(part: Path, folder: Path) -> None:
    """Gives a directory its name, unless another worker was faster."""
    try:
        part.rename(folder)
    except OSError:
        if not folder.exists():
            raise


def _tfrecord(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    for shard in range(3):
        with tf.io.TFRecordWriter(str(folder / f"digits.tfrecord-{shard:05}-of-00003")) as file:
            for image, label in zip(images[shard::3], labels[shard::3], strict=True):
                file.write(_record(image, label))


def _array_record(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    from array_record.python import array_record_module

    writer = array_record_module.ArrayRecordWriter(str(folder / "a.array_record"), "group_size:1")
    for image, label in zip(images, labels, strict=True):
        writer.write(_record(image, label))
    writer.close()


def _record(image: np.ndarray, label: int) -> bytes:
    return image.tobytes() + bytes([label])


def _of_records(batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    size = 4 * _PIXELS
    images = tf.io.decode_raw(tf.strings.substr(batch, 0, size), tf.float32)
    labels = tf.io.decode_raw(tf.strings.substr(batch, size, 1), tf.uint8)
    return tf.reshape(images, [-1, *_SHAPE]), tf.cast(labels[:, 0], tf.int32)


def _table(images: np.ndarray, labels: np.ndarray) -> pa.Table:
    flat = images.reshape(len(images), -1)
    columns = {f"p{number:02}": flat[:, number] for number in range(_PIXELS)}
    return pa.table({**columns, "label": labels.astype(np.int32)})


def _parquet(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    pyarrow.parquet.write_table(_table(images, labels), folder / "a.parquet", row_group_size=100)


def _csv(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    pyarrow.csv.write_csv(_table(images, labels), folder / "a.csv")


def _of_columns(row: Any) -> tuple[tf.Tensor, tf.Tensor]:
    pixels = [tf.cast(row[f"p{number:02}"], tf.float32) for number in range(_PIXELS)]
    return tf.reshape(tf.stack(pixels, 1), [-1, *_SHAPE]), tf.cast(row["label"], tf.int32)


def _numpy(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", labels.astype(np.int32))


def _hdf5(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    with h5py.File(folder / "a.h5", "w") as file:
        file["images"], file["labels"] = images, labels.astype(np.int32)


def _of_arrays(row: Any) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.reshape(row["images"], [-1, *_SHAPE]), row["labels"]


def _images(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    whole = np.round(255 * images).astype(np.uint8)
    for number, (image, label) in enumerate(zip(whole, labels, strict=True)):
        content = io.BytesIO()
        Image.fromarray(image[..., 0]).save(content, "PNG")
        (_made(folder / str(label)) / f"{number:04}.png").write_bytes(content.getvalue())


def _of_files(row: Any) -> tuple[tf.Tensor, tf.Tensor]:
    def one(content: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.ensure_shape(tf.io.decode_png(content), _SHAPE), tf.float32) / 255

    images = tf.map_fn(one, row["image"], fn_output_signature=tf.float32)
    return images, tf.cast(row["label"], tf.int32)


KINDS: dict[str, tuple[Callable[[Path, np.ndarray, np.ndarray], None], Parse]] = {
    "tfrecord": (_tfrecord, _of_records),
    "array_record": (_array_record, _of_records),
    "parquet": (_parquet, _of_columns),
    "csv": (_csv, _of_columns),
    "numpy": (_numpy, _of_arrays),
    "hdf5": (_hdf5, _of_arrays),
    "images": (_images, _of_files),
}
