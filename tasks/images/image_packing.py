"""Packs a directory of images by class into one .npz, which training holds in memory."""

import concurrent.futures
import functools
import hashlib
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from runner.core import files
from runner.errors import ConfigError
from tasks.images import image_folders

_CHUNK = 1000  # images between two progress messages


def pack(root: Path, out: Path, *, height: int, width: int, note: Callable[[str], object]) -> None:
    """Writes a directory's images, scaled to one size, into an .npz for `ImageData.input_path`.

    Partial work is kept in `<out>.<key>.part`, and the next call resumes from it. The key depends
    on the files and the size. If the .npz exists, the function returns without doing anything.

    Args:
        root: the directory that holds one directory per class.
        out: the .npz.
        height: the images' height in pixels.
        width: their width.
        note: called with progress messages.

    Raises:
        ConfigError: `out` is not an .npz, or `image_folders.scan` or `load` raises it.
    """
    if out.suffix != ".npz":
        raise ConfigError(f"{out}: expected a name that ends in .npz")
    if out.exists():
        note(f"{out} already exists")
        return
    folder = image_folders.scan(root)
    key = hashlib.sha256("\n".join([f"{height}x{width}", *folder.paths]).encode()).hexdigest()
    part = out.with_name(f"{out.name}.{key[:8]}.part")
    _decode(folder.paths, part, (height, width, 3), note)
    with files.whole(out) as whole:
        _write(whole, part, (height, width, 3), folder)
    part.unlink()
    note(f"{out}: {len(folder.paths):,} images of {len(folder.names)} classes")


def _decode(
    paths: np.ndarray, part: Path, shape: tuple[int, int, int], note: Callable[[str], object]
) -> None:
    """Appends the pixels of the remaining images to the part file."""
    load = functools.partial(image_folders.load, height=shape[0], width=shape[1])
    size = int(np.prod(shape))
    with part.open("ab") as file, concurrent.futures.ThreadPoolExecutor() as threads:
        done = file.tell() // size
        file.truncate(done * size)
        while done < len(paths):
            chunk = paths[done : done + _CHUNK]
            for image in threads.map(load, chunk):
                file.write(image.tobytes())
            done += len(chunk)
            note(f"{done:,} of {len(paths):,} images")


def _write(
    out: BinaryIO, pixels: Path, shape: tuple[int, int, int], folder: image_folders.Folder
) -> None:
    """Writes an .npz as np.savez does, without loading the images into memory."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(folder.labels), *shape)}
    with zipfile.ZipFile(out, "w") as archive:
        with archive.open("images.npy", "w", force_zip64=True) as file, pixels.open("rb") as source:
            np.lib.format.write_array_header_1_0(file, header)
            shutil.copyfileobj(source, file)
        for name, array in {"labels": folder.labels, "class_names": np.array(folder.names)}.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
