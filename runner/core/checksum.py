"""The checksum in TensorFlow's files. No TensorFlow."""

from typing import Any

import google_crc32c


def masked(data: bytes) -> int:
    """Returns the masked CRC-32C, which TFRecord files, event files and checkpoints store."""
    return int(mask(google_crc32c.value(data)))


def mask(crc: Any) -> Any:
    """Masks a CRC-32C: an int, or an array of uint32."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
