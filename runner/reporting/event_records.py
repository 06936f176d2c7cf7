"""Reads the records of event files. No TensorFlow.

TensorBoard's own reader takes a fifth of a second to import. The format is that of TFRecord files:
length (8 bytes), checksum of the length (4), data, checksum of the data (4).
"""

import struct
from collections.abc import Iterator

_HEADER, _FOOTER = 12, 4  # bytes


def read(content: bytes) -> Iterator[bytes]:
    """Yields the data of each whole record, without checking the checksums."""
    at = 0
    while at + _HEADER <= len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        data = content[at + _HEADER : at + _HEADER + length]
        if len(data) < length:
            return
        yield data
        at += _HEADER + length + _FOOTER
