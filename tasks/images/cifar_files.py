"""The binary distribution of CIFAR-10 and CIFAR-100, unpacked or as the original archive.

Krizhevsky, "Learning multiple layers of features from tiny images", 2009. A record is a label (for
CIFAR-100 the coarse label, then the fine one), then 32x32 pixels, channel by channel. See
https://www.cs.toronto.edu/~kriz/.
"""

import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from runner.errors import ConfigError

COUNTS = {"train": 50_000, "test": 10_000}
"""The number of images in each subset, for both CIFAR-10 and CIFAR-100."""

_PIXELS = 3 * 32 * 32


class _Layout(NamedTuple):
    name: str
    classes: int
    label_bytes: int  # the last one is the label
    files: dict[str, tuple[str, ...]]
    names: str  # the file with the names of the classes, one per line


_LAYOUTS = (
    _Layout(
        "CIFAR-10",
        classes=10,
        label_bytes=1,
        files={
            "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
            "test": ("test_batch.bin",),
        },
        names="batches.meta.txt",
    ),
    _Layout(
        "CIFAR-100",
        classes=100,
        label_bytes=2,
        files={"train": ("train.bin",), "test": ("test.bin",)},
        names="fine_label_names.txt",
    ),
)


class Cifar(NamedTuple):
    """One subset: [N, 32, 32, 3] uint8, [N] int32, and the names of all classes, if known.

    `names` is empty if the distribution's text file is missing.
    """

    images: np.ndarray
    labels: np.ndarray
    classes: int
    names: tuple[str, ...]


def is_here(path: Path) -> bool:
    """Whether a path is an archive, or a directory with some of the distribution's files."""
    if path.is_dir():
        return any((path / name).is_file() for layout in _LAYOUTS for name in _files(layout))
    return path.name.endswith((".tar.gz", ".tgz", ".tar"))


def read(path: Path, subset: str) -> Cifar:
    """Reads a subset, 'train' or 'test', with the fine labels for CIFAR-100.

    Raises:
        ConfigError: a file is missing, damaged or has an invalid label.
    """
    contents = _contents(path, [name for layout in _LAYOUTS for name in _files(layout, subset)])
    for layout in _LAYOUTS:
        if any(name in contents for name in _files(layout)):
            break
    else:
        raise ConfigError(f"{path} is not the binary version of CIFAR-10 or CIFAR-100")
    count = COUNTS[subset] // len(layout.files[subset])
    parts = [_records(path, contents, layout, name, count) for name in layout.files[subset]]
    records = np.concatenate(parts)
    planes = records[:, layout.label_bytes :].reshape(-1, 3, 32, 32)
    return Cifar(
        np.ascontiguousarray(planes.transpose(0, 2, 3, 1)),
        records[:, layout.label_bytes - 1].astype(np.int32),
        layout.classes,
        tuple(contents.get(layout.names, b"").decode(errors="replace").split()),
    )


def _files(layout: _Layout, subset: str = "") -> list[str]:
    """The files of one subset, or of all subsets, and the file with the names."""
    subsets = [subset] if subset else list(layout.files)
    return [layout.names, *(name for chosen in subsets for name in layout.files[chosen])]


def _contents(path: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """The content of those wanted files that exist."""
    if path.is_dir():
        return {name: (path / name).read_bytes() for name in wanted if (path / name).is_file()}
    if not path.is_file():
        raise ConfigError(f"ImageData.input_path: there is no file {path}")
    contents = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = Path(member.name).name
                if name in wanted and (file := archive.extractfile(member)):
                    contents[name] = file.read()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise ConfigError(f"{path} is not a complete archive: {error}") from error
    return contents


def _records(
    path: Path, contents: dict[str, bytes], layout: _Layout, name: str, count: int
) -> np.ndarray:
    """Returns the records, [count, label bytes + pixels] uint8."""
    size = layout.label_bytes + _PIXELS
    if name not in contents:
        raise ConfigError(f"{path} has no file {name}, which belongs to {layout.name}")
    data = contents[name]
    if len(data) != count * size:
        raise ConfigError(
            f"{path / name}: {len(data):,} bytes; expected {count:,} records of {size:,} bytes"
        )
    records = np.frombuffer(data, np.uint8).reshape(count, size)
    labels = records[:, layout.label_bytes - 1]
    wrong = np.flatnonzero(labels >= layout.classes)
    if wrong.size:
        raise ConfigError(
            f"{path / name}: record {wrong[0]:,} has label {labels[wrong[0]]};"
            f" {layout.name} has 0 to {layout.classes - 1}"
        )
    return records
