"""Reads TensorFlow's checkpoint format without TensorFlow.

`<path>.index` is a LevelDB table of a `BundleEntryProto` for each tensor: its type, shape, position
in one of the files `<path>.data-...`, and the checksum of its bytes. See TensorFlow's
tensor_bundle.proto and table_format.txt.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from runner.core import checksum
from runner.errors import RunnerError
from runner.internals import checkpoint_keys

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48  # bytes
_STRING = 7
_TYPES: dict[int, Any] = {
    **{1: np.float32, 2: np.float64, 3: np.int32, 4: np.uint8, 5: np.int16, 6: np.int8},
    **{8: np.complex64, 9: np.int64, 10: np.bool_, 14: ml_dtypes.bfloat16, 17: np.uint16},
    **{18: np.complex128, 19: np.float16, 22: np.uint32, 23: np.uint64},
    **{24: ml_dtypes.float8_e5m2, 25: ml_dtypes.float8_e4m3fn},
}  # by the number in types.proto (other types are read as bytes)


class DamagedError(RunnerError):
    """The files of a checkpoint are missing, cut short or changed."""


class _Entry(NamedTuple):
    kind: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int


class Bundle:
    """The tensors of a checkpoint.

    Args:
        path: The checkpoint's path, without `.index`.

    Raises:
        DamagedError: its index is missing or damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._maps: dict[int, mmap.mmap] = {}
        try:
            found = dict(_table(path.with_name(f"{path.name}.index").read_bytes()))
            self._shards = _numbers(found.pop(b"")).get(1, 1)
            self._entries = {
                name.decode("utf-8", "backslashreplace"): _entry(value)
                for name, value in found.items()
            }
        except OSError as error:
            raise DamagedError(f"{path}.index: {error.strerror}") from error
        except (IndexError, KeyError, ValueError, struct.error) as error:
            raise DamagedError(f"{path}.index is damaged") from error

    @property
    def names(self) -> list[str]:
        """The tensors' keys."""
        return list(self._entries)

    @property
    def variables(self) -> dict[str, str]:
        """The names of the variables, such as `dense/kernel`, by their keys."""
        from tensorboard.compat.proto import trackable_object_graph_pb2

        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        if checkpoint_keys.OBJECT_GRAPH in self._entries:
            graph.ParseFromString(self.read(checkpoint_keys.OBJECT_GRAPH).tobytes())
        parts = (part for node in graph.nodes for part in node.attributes)
        return {part.checkpoint_key: part.full_name for part in parts}

    def place(self, name: str) -> int:
        """The offset of a tensor's bytes in their data file."""
        return self._entries[name].offset

    def raw(self, name: str) -> memoryview:
        """The bytes of a tensor as they are stored.

        Raises:
            DamagedError: the file that holds them is missing or cut short.
        """
        entry = self._entries[name]
        found = memoryview(self._map(entry.shard))[entry.offset : entry.offset + entry.size]
        if len(found) < entry.size:
            raise DamagedError(f"{self._path}: a data file is cut short")
        return found

    def is_changed(self, name: str) -> bool:
        """Whether a tensor's bytes differ from those that were saved, according to the checksum."""
        entry = self._entries[name]
        is_text = entry.kind == _STRING  # its checksum is computed differently
        return not is_text and checksum.masked(bytes(self.raw(name))) != entry.checksum

    def read(self, name: str) -> np.ndarray:
        """Reads a tensor. For a string, its bytes as numbers.

        Raises:
            DamagedError: raised as by `raw`.
        """
        entry, raw = self._entries[name], self.raw(name)
        if entry.kind == _STRING and not entry.shape:  # a length, its checksum, the bytes
            _, start = _varint(raw, 0)
            return np.frombuffer(raw[start + 4 :], np.uint8)
        if entry.kind not in _TYPES:
            return np.frombuffer(raw, np.uint8)
        return np.frombuffer(raw, _TYPES[entry.kind]).reshape(entry.shape)

    def _map(self, shard: int) -> mmap.mmap | bytes:
        if shard not in self._maps:
            name = f"{self._path.name}.data-{shard:05}-of-{self._shards:05}"
            try:
                with self._path.with_name(name).open("rb") as file:
                    if not file.seek(0, 2):
                        return b""
                    self._maps[shard] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except OSError as error:
                raise DamagedError(f"{self._path.with_name(name)}: {error.strerror}") from error
        return self._maps[shard]


def _table(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a table."""
    footer = text[-_FOOTER:]
    if struct.unpack("<Q", footer[-8:]) != (_MAGIC,):
        raise ValueError("not a table")
    at = 0
    for _ in range(2):  # the location of the index of metadata, which is empty
        _, at = _varint(footer, at)
    for _, handle in _block(text, footer[at:]):
        yield from _block(text, handle)


def _block(text: bytes, handle: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of the block at a handle."""
    offset, at = _varint(handle, 0)
    size, _ = _varint(handle, at)
    block, compression = text[offset : offset + size], text[offset + size]
    if compression:
        import pyarrow

        length, _ = _varint(block, 0)
        block = pyarrow.decompress(block, length, codec="snappy", asbytes=True)
    (restarts,) = struct.unpack("<I", block[-4:])
    end, at, key = len(block) - 4 * (restarts + 1), 0, b""
    while at < end:
        shared, at = _varint(block, at)
        rest, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + rest]
        at += rest
        yield key, block[at : at + length]
        at += length


def _entry(text: bytes) -> _Entry:
    fields = _numbers(text)
    shapes = _parts(text, 2) or [b""]
    dimensions = [_numbers(each).get(1, 0) for each in _parts(shapes[0], 2)]
    shape = tuple(size - (1 << 64 if size >> 63 else 0) for size in dimensions)
    names = (3, 4, 5, 6)
    return _Entry(fields.get(1, 0), shape, *(fields.get(name, 0) for name in names))


def _numbers(text: bytes) -> dict[int, int]:
    """The numbers in a message, by their fields."""
    return {field: value for field, value in _fields(text) if isinstance(value, int)}


def _parts(text: bytes, wanted: int) -> list[bytes]:
    """The messages in one field of a message."""
    found = [value for field, value in _fields(text) if field == wanted]
    return [each for each in found if isinstance(each, bytes)]


def _fields(text: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer message."""
    at = 0
    while at < len(text):
        tag, at = _varint(text, at)
        field, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(text, at)
            yield field, value
        elif kind == 2:
            length, at = _varint(text, at)
            yield field, text[at : at + length]
            at += length
        else:
            size = {1: 8, 5: 4}[kind]
            yield field, int.from_bytes(text[at : at + size], "little")
            at += size


def _varint(text: bytes | memoryview, at: int) -> tuple[int, int]:
    """Reads a number of variable length. Returns it and the position of its end."""
    value = shift = 0
    while True:
        byte = text[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
