"""Finds where each record of a TFRecord file starts, built once and kept in the user's cache.

A TFRecord file has no index. Each record consists of its length (8 bytes), a checksum of the length
(4), the data, and a checksum of the data (4). The lengths lead from one record to the next, so that
only 16 bytes of each are read. The fingerprint is a hash of all lengths and checksums. It changes
with any byte.
"""

import hashlib
import os
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

from runner.core import checksum
from runner.data.sources import number_files
from runner.errors import ConfigError

HEADER, FOOTER = 12, 4

_VERSION = 1
_HEAD = 8  # numbers before the offsets: version, size, mtime, fingerprint (4), unused
_WINDOW, _SMALL = 2**16, 2**13  # bytes read at once, if records have fewer bytes than this
_LENGTH = struct.Struct("<Q")


class Index(NamedTuple):
    """The records of a file.

    Attributes:
        offsets: The start of each record, followed by the end of the last: [records + 1] int64.
        fingerprint: Changes with any byte of the file.
    """

    offsets: np.ndarray
    fingerprint: str


def of(path: Path) -> Index:
    """Returns the index of a file, built if there is none that fits the file's size and time.

    Raises:
        ConfigError: if the file cannot be read, is compressed or damaged, or does not match its
            index.
    """
    try:
        facts = path.stat()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    stored = number_files.place("indexes", str(path.resolve()))
    numbers = number_files.read(stored, [_VERSION, facts.st_size, facts.st_mtime_ns])
    if numbers is None or len(numbers) <= _HEAD:
        numbers = _built(path, facts)
        number_files.write(stored, numbers)
    if numbers[-1] != facts.st_size:
        raise ConfigError(f"{stored} does not match {path}: remove it, so that it is rebuilt")
    return Index(numbers[_HEAD:], numbers[3:7].tobytes().hex())


def _built(path: Path, facts: os.stat_result) -> np.ndarray:
    try:
        with path.open("rb", buffering=0) as file:
            _check_compression(path, os.pread(file.fileno(), HEADER, 0))
            offsets, heads, sums = _hops(path, file.fileno(), facts.st_size)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    head = np.frombuffer(heads, np.dtype([("length", "<u8"), ("sum", "<u4")]))
    wrong = np.flatnonzero(checksum.mask(_crc_of_numbers(head["length"])) != head["sum"])
    if len(wrong):
        at = offsets[wrong[0]]
        raise ConfigError(f"{path}: record {wrong[0]:,}, at byte {at:,}, has a wrong checksum")
    digest = hashlib.sha256(heads)
    digest.update(sums)
    fingerprint = np.frombuffer(digest.digest(), np.int64)
    first = [_VERSION, facts.st_size, facts.st_mtime_ns, *fingerprint.tolist(), 0]
    return np.concatenate([np.array(first, np.int64), np.array(offsets, np.int64)])


def _hops(path: Path, file: int, size: int) -> tuple[list[int], bytes, bytes]:
    """Returns where each record starts, and the headers and the checksums of all."""
    at, offsets, heads, sums = 0, [0], [], []
    window, start = b"", 0
    length_at = _LENGTH.unpack_from
    while at < size:
        inside = at - start
        if inside + HEADER > len(window):
            small = at < _SMALL * len(offsets)
            window, start, inside = os.pread(file, _WINDOW if small else HEADER, at), at, 0
        following = size + 1
        if len(window) - inside >= HEADER:
            following = at + length_at(window, inside)[0] + HEADER + FOOTER
        if following > size:
            raise ConfigError(
                f"{path}: record {len(offsets) - 1:,}, at byte {at:,}, is cut off or damaged: the "
                f"file ends at byte {size:,}"
            )
        heads.append(window[inside : inside + HEADER])
        end = following - start
        if end > len(window):
            sums.append(os.pread(file, FOOTER, following - FOOTER))
        else:
            sums.append(window[end - FOOTER : end])
        at = following
        offsets.append(at)
    return offsets, b"".join(heads), b"".join(sums)


def _check_compression(path: Path, head: bytes) -> None:
    """Raises ConfigError if a file starts as a compressed one does, and not with a record."""
    magic = head[:2]
    kinds = {b"\x1f\x8b": "GZIP", b"\x78\x01": "ZLIB", b"\x78\x9c": "ZLIB", b"\x78\xda": "ZLIB"}
    if magic not in kinds or _is_header(head):
        return
    kind, plain = kinds[magic], path.with_suffix("") if path.suffix == ".gz" else f"{path}.plain"
    if kind == "GZIP":
        command = f"gzip -dc {path} > {plain}"
    else:
        command = f"zlib-flate -uncompress < {path} > {plain}"
    raise ConfigError(
        f"{path} is compressed ({kind}), so its records cannot be read by index; rewrite it: "
        f"{command}"
    )


def _is_header(head: bytes) -> bool:
    """Returns whether these are a record's length and its checksum."""
    numbers = np.frombuffer(head[:8].ljust(8, b"\0"), "<u8")
    return int(checksum.mask(_crc_of_numbers(numbers))[0]) == int.from_bytes(head[8:], "little")


def _crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    return table


def _crc_of_numbers(numbers: np.ndarray) -> np.ndarray:
    """Returns the CRC-32C of each number's eight bytes."""
    table = _crc_table()
    octets = numbers.astype("<u8").view(np.uint8).reshape(-1, 8)
    crc = np.full(len(numbers), 0xFFFFFFFF, np.uint32)
    for column in octets.T:
        crc = table[(crc ^ column) & 0xFF] ^ (crc >> np.uint32(8))
    return crc ^ np.uint32(0xFFFFFFFF)
