"""The checksum in TensorFlow's files. No TensorFlow."""

import google_crc32c


def masked(data: bytes) -> int:
    """Returns the masked CRC-32C, which TFRecord files, event files and checkpoints store."""
    crc = int(google_crc32c.value(data))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
