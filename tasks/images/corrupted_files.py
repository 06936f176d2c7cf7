"""The published files of CIFAR-10-C and CIFAR-100-C.

Hendrycks and Dietterich, "Benchmarking neural network robustness to common corruptions and
perturbations", 2019. Each corruption is an array [50,000, 32, 32, 3] uint8: the 10,000 test images
in each of five severities, one after the other. `labels.npy` has their labels. See
https://zenodo.org/records/2535967 and https://zenodo.org/records/3555552.
"""

from pathlib import Path

import numpy as np

from runner.errors import ConfigError

_LABELS = "labels.npy"
_SEVERITIES = 5


def is_here(path: Path) -> bool:
    """Whether a path is such a directory."""
    return (path / _LABELS).is_file()


def count(path: Path) -> int:
    """The number of images in each corruption and severity.

    Raises:
        ConfigError: the labels are damaged.
    """
    return len(_load(path / _LABELS)) // _SEVERITIES


def read(path: Path, subset: str) -> tuple[np.ndarray, np.ndarray]:
    """Reads one corruption with one severity.

    Args:
        path: the directory.
        subset: such as 'gaussian_noise_3'.

    Returns:
        Images [N, 32, 32, 3] uint8 and labels [N].

    Raises:
        ConfigError: there is no such corruption or severity, or a file is damaged.
    """
    kind, _, severity = subset.rpartition("_")
    known = sorted(each.stem for each in path.glob("*.npy") if each.name != _LABELS)
    if kind not in known or severity not in map(str, range(1, _SEVERITIES + 1)):
        raise ConfigError(
            f"ImageData.subset={subset!r}: {path} needs a corruption and a severity from 1 to"
            f" {_SEVERITIES}, such as 'fog_3'; it has {', '.join(known) or 'no corruption'}"
        )
    images, labels = _load(path / f"{kind}.npy"), _load(path / _LABELS)
    if len(images) != len(labels):
        raise ConfigError(
            f"{path / kind}.npy has {len(images):,} images, but there are {len(labels):,} labels"
        )
    size = count(path)
    part = slice((int(severity) - 1) * size, int(severity) * size)
    return np.array(images[part]), np.array(labels[part])


def _load(path: Path) -> np.ndarray:
    try:
        found: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return found
