"""Packs a directory of images by class into one .npz of a given size, for ImageData.input_path.

    runner-prepare-images flowers/train flowers_train.npz --height=64 --width=64

To resume after an interruption, run the command again. If the file is complete, the command does
nothing. Training holds the images of an .npz in memory. If the images do not fit in memory, use the
directory itself as ImageData.input_path. Training then decodes each image whenever it is needed.
"""

import argparse
import sys
from pathlib import Path

from runner.core import console
from runner.errors import RunnerError
from tasks.images import image_packing


def main() -> None:
    """The command `runner-prepare-images`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", type=Path, help="the directory with one subdirectory of images per class"
    )
    parser.add_argument("out", type=Path, help="the .npz to write")
    parser.add_argument("--height", type=int, required=True, help="in pixels")
    parser.add_argument("--width", type=int, required=True, help="in pixels")
    flags = parser.parse_args()
    try:
        image_packing.pack(
            flags.folder,
            flags.out,
            height=flags.height,
            width=flags.width,
            note=console.say,
        )
    except RunnerError as error:
        console.say(f"{parser.prog}: {error}")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
