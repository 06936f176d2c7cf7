"""What tests need that mount file systems of their own."""

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))  # for `scripts`

_PROGRAMS = ("losetup", "fusermount3", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs")
_MISSING = [name for name in _PROGRAMS if not shutil.which(name)]
_DEVICES = [name for name in ("/dev/fuse", "/dev/loop-control") if not Path(name).exists()]

NEEDED = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount file systems"),
    pytest.mark.skipif(bool(_MISSING), reason=f"not installed: {', '.join(_MISSING)}"),
    pytest.mark.skipif(bool(_DEVICES), reason=f"there is no {' or '.join(_DEVICES)}"),
]
