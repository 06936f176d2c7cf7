"""`mirror.json`, the manifest of a directory in a bucket, written last to name a complete state.

It contains the size and the checksum of each file, and the contents of small files that refer to
other files or change all the time. Readers of a bucket read it first, as a single object.
"""

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple, Self

from runner.core import files, layout
from runner.errors import RunnerError
from runner.storage import names
from runner.storage.bucket import Bucket

NAME = "mirror.json"
CLAIMS = "claims"

_TEXTS = (layout.CHECKPOINT, layout.INFO, layout.STATUS, layout.STEP, layout.EVALUATOR)
_LONGEST_TEXT = 1 << 16
_PART = re.compile(r"(?P<name>ckpt-\d+)\.(?P<kind>index|data-\d{5}-of-\d{5})")


class Entry(NamedTuple):
    """A file in the bucket.

    Attributes:
        size: The size in bytes. The object of a growing file may be longer than this valid part.
        crc: The CRC-32 of these bytes, or None if unknown.
        time: A value that changes when the file is written.
    """

    size: int
    crc: int | None
    time: int


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The contents of a directory in a bucket.

    Attributes:
        files: The files by path, with `/` between names.
        texts: The contents of the files stored in the manifest itself.
        claim: The number of the lock that its writer held.
        serial: The number of manifests written.
        whole: Whether the writer had copied everything when it ended.
    """

    files: Mapping[str, Entry]
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    claim: int = 0
    serial: int = 0
    whole: bool = False

    def dumps(self) -> bytes:
        """Returns the manifest as JSON."""
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def loads(cls, content: bytes) -> Self:
        """Parses a manifest from JSON.

        Raises:
            ValueError: it is not a manifest, or contains a name that no file can have.
        """
        try:
            found: dict[str, Any] = files.loads(content)
            entries = found.pop("files").items()
            held = {names.check(name): _entry(*each) for name, each in entries}
            texts = {name: str(each) for name, each in found.pop("texts", {}).items()}
            for name in texts:
                names.check(name)
            claim, serial = int(found.pop("claim", 0)), int(found.pop("serial", 0))
            return cls(held, texts, claim, serial, **found)
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(str(error)) from error


def _entry(size: Any, crc: Any, time: Any) -> Entry:
    """Converts the values of an entry to numbers.

    Raises:
        TypeError, ValueError: they are not numbers.
    """
    if int(size) < 0:
        raise ValueError(f"a size of {size}")
    return Entry(int(size), None if crc is None else int(crc), int(time))


def read(bucket: Bucket, *, mine: str = "") -> Manifest:
    """Returns the contents of a directory from its `mirror.json`, or from a listing.

    A directory with locks but without that file never had a complete state and is treated as empty.

    Args:
        bucket: The directory.
        mine: A lock to ignore, because it was just made.

    Raises:
        RunnerError: `mirror.json` is damaged.
    """
    content = bucket.read(NAME)
    if content is None:
        held = {name: Entry(size, None, time) for name, (size, time) in bucket.objects().items()}
        if any(name.startswith(f"{CLAIMS}/") and name != mine for name in held):
            return Manifest({})
        return Manifest({name: entry for name, entry in held.items() if not is_ours(name)})
    try:
        return Manifest.loads(content)
    except ValueError as error:
        raise RunnerError(
            f"{bucket.url}/{NAME} is damaged ({error}): remove it and {CLAIMS}/, and the other "
            "files count as they are"
        ) from error


def read_with_parts(bucket: Bucket) -> Manifest:
    """Returns the contents including the subdirectories of evaluators and other modes.

    Raises:
        RunnerError: a `mirror.json` is damaged.
    """
    found = read(bucket)
    held, texts = dict(found.files), dict(found.texts)
    for name in bucket.names():
        if layout.is_part(name) and f"{name}/{NAME}" not in held:
            part = bucket.part(name)
            if part.read(NAME) is not None:
                inner = read(part)
                held |= {f"{name}/{path}": entry for path, entry in inner.files.items()}
                texts |= {f"{name}/{path}": text for path, text in inner.texts.items()}
    return dataclasses.replace(found, files=held, texts=texts)


def is_ours(path: str) -> bool:
    """Returns whether an object belongs to the copying itself and not to a run."""
    names = path.split("/")
    return names[-1] == NAME or CLAIMS in names[:-1]


def points(path: str) -> bool:
    """Returns whether a small file refers to other files, or contains the state."""
    return PurePosixPath(path).name in _TEXTS


def is_kept(path: str, content: bytes) -> bool:
    """Returns whether the content of such a file is stored in the manifest, too."""
    return path.count("/") < 2 and len(content) <= _LONGEST_TEXT


def grows(path: str) -> bool:
    """Returns whether a file is only ever appended to, or cut after a row."""
    return path.endswith((".jsonl", ".log")) or ".tfevents." in path


def checkpoint_of(path: str) -> str:
    """Returns the name of the checkpoint that a file is a part of, or "" if there is none."""
    found = _PART.fullmatch(PurePosixPath(path).name)
    return found["name"] if found else ""


def order(path: str) -> tuple[int, str]:
    """Returns a sort key that puts files with references after the files they refer to."""
    part = _PART.fullmatch(PurePosixPath(path).name)
    if part:
        return (1 if part["kind"] == "index" else 0), path
    if points(path):
        return 4, path
    return (3 if grows(path) else 2), path
