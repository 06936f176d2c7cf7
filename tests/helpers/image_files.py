"""Images in every format that is read, written by the tests."""

import io
import tarfile

import numpy as np
from PIL import Image

CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def write_npz(path, count=20, *, classes=3, **arrays):
    images = np.arange(count * 16, dtype=np.uint8).reshape(count, 4, 4)
    np.savez(path, **{"images": images, "labels": np.arange(count) % classes, **arrays})
    return str(path)


def write_folder(root, images):
    """Writes images, by their paths below the root."""
    for name, pixels in images.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return str(root)


def cifar_records(labels, *, coarse=()):
    """Records of the binary version, and their images; all but the first 5 images are black."""
    labels = np.asarray(labels, np.uint8)
    images = np.zeros((len(labels), 32, 32, 3), np.uint8)
    images[:5] = np.random.default_rng(len(labels)).integers(0, 256, images[:5].shape)
    columns = [np.asarray(column, np.uint8)[:, None] for column in (coarse, labels) if len(column)]
    planes = images.transpose(0, 3, 1, 2).reshape(len(labels), -1)
    return np.concatenate([*columns, planes], axis=1).tobytes(), images


def write_archive(path, files):
    """A .tar.gz of contents by name."""
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return str(path)
