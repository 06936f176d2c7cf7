"""Downloads the binary version of CIFAR-10 or CIFAR-100, verifies it and unpacks it.

    runner-prepare-cifar cifar10 data

This command creates the directory data/cifar-10-batches-bin for ImageData.input_path. To resume an
interrupted download, run the command again. If the directory exists, the command does nothing.
"""

import argparse
import shutil
import sys
import tarfile
from pathlib import Path

from runner.core import console
from runner.errors import RunnerError
from tasks.files import fetching

# Sizes and checksums are from TensorFlow Datasets (url_checksums/cifar10*.txt).
ARCHIVES = {
    "cifar10": (
        "cifar-10-batches-bin",
        fetching.RemoteFile(
            path="cifar-10-binary.tar.gz",
            url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            size=170_052_171,
            sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
    "cifar100": (
        "cifar-100-binary",
        fetching.RemoteFile(
            path="cifar-100-binary.tar.gz",
            url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            size=168_513_733,
            sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        ),
    ),
}


def prepare(name: str, archive: fetching.RemoteFile, folder: Path) -> Path:
    """Downloads and unpacks the archive's directory `name` into `folder`, unless it exists."""
    unpacked = folder / name
    if unpacked.exists():
        console.say(f"{unpacked} already exists")
        return unpacked
    local = archive.replace(path=str(folder / archive.path))
    fetching.fetch([local])
    part = folder / f"{name}.part"
    shutil.rmtree(part, ignore_errors=True)  # left by an interrupted call
    with tarfile.open(local.path) as file:
        file.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
        file.extractall(part)
    (part / name).rename(unpacked)
    part.rmdir()
    console.say(f"{unpacked}: unpacked")
    return unpacked


def main() -> None:
    """The command `runner-prepare-cifar`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=ARCHIVES)
    parser.add_argument("folder", type=Path, help="directory to download and unpack the archive in")
    flags = parser.parse_args()
    try:
        prepare(*ARCHIVES[flags.name], flags.folder)
    except RunnerError as error:
        console.say(f"{parser.prog}: {error}")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
