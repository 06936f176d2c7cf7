"""Packs and reads the records of event files. No TensorFlow.

A record has the format of TFRecord files: length (8 bytes), checksum of the length (4), data,
checksum of the data (4). TensorBoard's own functions are slow to import, and its writer computes
the checksums byte by byte in Python.
"""

import struct
from collections.abc import Iterator

from runner.core import checksum

_HEADER, _FOOTER = 12, 4  # bytes


def packed(data: bytes) -> bytes:
    """Returns a record."""
    length = struct.pack("<Q", len(data))
    sums = [struct.pack("<I", checksum.masked(each)) for each in (length, data)]
    return length + sums[0] + data + sums[1]


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
