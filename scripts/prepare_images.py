"""Packs a folder of images by class into one .npz of a given size, for ImageData.input_path.

    python scripts/prepare_images.py flowers/train flowers_train.npz --height=64 --width=64

An interrupted call is taken up again by the same one; a second call does nothing. Training holds an
.npz in memory, and of a folder decodes every image whenever it is needed: that is for folders whose
pixels do not fit.
"""

import argparse
import sys
from pathlib import Path

from runner.errors import RunnerError
from tasks.images import image_packing


def main() -> None:
    """Reads the flags and packs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="has a folder of images for each class")
    parser.add_argument("out", type=Path, help="the .npz to write")
    parser.add_argument("--height", type=int, required=True, help="of the images, in pixels")
    parser.add_argument("--width", type=int, required=True, help="of the images, in pixels")
    flags = parser.parse_args()
    try:
        image_packing.pack(
            flags.folder,
            flags.out,
            height=flags.height,
            width=flags.width,
            note=lambda line: print(line, file=sys.stderr, flush=True),
        )
    except RunnerError as error:
        print(f"prepare_images: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
