"""One state of a folder, copied to a bucket: what points comes after what it points to.

First the data of checkpoints, then their indices, other files, what grows, what points, and at last
`mirror.json`, which makes it the state of the bucket. Only then are objects removed that it no
longer names. Before each write the claim is looked at.
"""

import contextlib
import socket
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from runner.core import files, text
from runner.errors import RunnerError
from runner.storage import manifest, snapshot
from runner.storage.bucket import Bucket
from runner.storage.lease import Mark
from runner.storage.manifest import Entry, Manifest

_IN_MEMORY = 1 << 24  # bytes; larger files are sent from the disk
_SMALL = 1 << 20  # a file that grows is sent again whole
_SHARE = 8  # a larger one when it has grown by this part, or with a checkpoint
_STATE = "state.json"


class Copier:
    """Copies states of a folder to a bucket, and remembers what is there.

    An object cannot be appended to: a file that grows is written again whole, small ones each time,
    larger ones with each checkpoint, at the end, or when they have grown by an eighth.

    Args:
        folder: The run's.
        bucket: Where to.
        mark: The claim that is held.
        held: What the bucket holds.
        check: Called before each write; raises if this process may not write.

    Attributes:
        known: The files that the bucket has, as they were here.
        held: What the bucket holds.
    """

    def __init__(
        self, folder: Path, bucket: Bucket, mark: Mark, held: Manifest, check: Callable[[], object]
    ) -> None:
        self._folder = folder
        self._bucket = bucket
        self._mark = mark
        self._check = check
        self.held = held
        self.known: dict[str, snapshot.Stamp] = {}

    def remember(self, stamps: Mapping[str, snapshot.Stamp]) -> None:
        """Notes which files are the same here and there."""
        self.known = {path: stamp for path, stamp in stamps.items() if path in self.held.files}
        self._save()

    def forget(self) -> None:
        """Notes that the bucket holds nothing."""
        self.held, self.known = Manifest({}, serial=self.held.serial), {}

    def pending(self, state: snapshot.Snapshot, *, last: bool) -> list[str]:
        """The files to copy, in order."""
        changed = [path for path, stamp in state.files.items() if self.known.get(path) != stamp]
        commits = last or any(map(manifest.checkpoint_of, changed))
        return sorted(
            (path for path in changed if commits or self._is_due(path, state.files[path][0])),
            key=manifest.order,
        )

    def copy(self, state: snapshot.Snapshot, *, last: bool = False) -> bool:
        """Makes the bucket hold this state; False if it already did.

        Raises:
            BucketError: something could not be written; what the bucket held, it still holds.
            LostError: another process holds the folder there.
        """
        paths = self.pending(state, last=last)
        gone = self.held.files.keys() - state.files.keys()
        if not paths and not gone and self.held.whole >= last:
            return False
        self._withdraw(paths)
        kept = {path: entry for path, entry in self.held.files.items() if path not in gone}
        stamps = {path: stamp for path, stamp in self.known.items() if path not in gone}
        for path in paths:
            if (entry := self._send(path, state)) is not None:
                kept[path], stamps[path] = entry, state.files[path]
        self._publish(kept, state.texts, whole=last)
        self.known = stamps
        self._save()
        self._remove(sorted(gone, key=manifest.order, reverse=True))
        return True

    def _is_due(self, path: str, size: int) -> bool:
        if not manifest.grows(path) or size < _SMALL or path not in self.held.files:
            return True
        before = self.held.files[path].size
        return size < before or size - before > before / _SHARE

    def _withdraw(self, paths: Iterable[str]) -> None:
        """Names no checkpoint whose objects will be replaced by others."""
        stale = {
            (Path(path).parent, name)
            for path in paths
            if (name := manifest.checkpoint_of(path)) and path in self.held.files
        }
        if not stale:
            return
        kept = {
            path: entry
            for path, entry in self.held.files.items()
            if (Path(path).parent, manifest.checkpoint_of(path)) not in stale
        }
        texts = {path: text.encode() for path, text in self.held.texts.items()}
        self._publish(kept, texts, whole=False)

    def _send(self, path: str, state: snapshot.Snapshot) -> Entry | None:
        """Copies a file; None if it is gone."""
        size, time, _ = state.files[path]
        content = state.texts.get(path)
        source = state.sources.get(path, self._folder / path)
        try:
            if content is None and size <= _IN_MEMORY:
                with source.open("rb") as file:
                    content = file.read(size)
            if content is not None:
                self._check()
                self._bucket.write(path, content)
                return Entry(len(content), zlib.crc32(content), time)
            crc = checksum(source, size)
            self._check()
            self._bucket.upload(source, path)
        except FileNotFoundError:
            return None
        return Entry(size, crc, time)

    def _publish(
        self, entries: Mapping[str, Entry], texts: Mapping[str, bytes], *, whole: bool
    ) -> None:
        made = Manifest(
            files=entries,
            texts={
                path: content.decode(errors="replace")
                for path, content in texts.items()
                if path in entries and manifest.is_kept(path, content)
            },
            claim=self._mark.number,
            serial=self.held.serial + 1,
            whole=whole,
        )
        self._check()
        self._bucket.write(manifest.NAME, made.dumps())
        self.held = made

    def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._check()
            self._bucket.remove([path])

    def _save(self) -> None:
        """Notes for the next start what the bucket has."""
        save(self._folder, self._bucket.url, self._mark, self.known)


def save(folder: Path, url: str, mark: Mark, known: Mapping[str, snapshot.Stamp]) -> None:
    """Notes which claim a folder held last, and what was copied."""
    value = {"url": url, "claim": list(mark), "host": socket.gethostname(), "files": known}
    files.write_json(folder / snapshot.FOLDER / _STATE, value)


def saved(folder: Path, url: str) -> tuple[Mark, dict[str, snapshot.Stamp]]:
    """What `save` noted for this URL; a claim of number 0 if there is nothing."""
    try:
        found = files.read_json(folder / snapshot.FOLDER / _STATE) or {}
        if found.get("url") == url:
            known = {path: (int(a), int(b), int(c)) for path, (a, b, c) in found["files"].items()}
            number, token = found["claim"]
            return Mark(int(number), str(token)), known
    except (ValueError, KeyError, TypeError, AttributeError, RunnerError):
        pass
    return Mark(), {}


def url_of(folder: Path) -> str:
    """The URL that `save` was called for last; empty if there is none."""
    with contextlib.suppress(RunnerError, AttributeError):
        found = files.read_json(folder / snapshot.FOLDER / _STATE) or {}
        return str(found.get("url") or "")
    return ""


def was_here(folder: Path) -> bool:
    """Whether `save` was called on this machine, where locks tell who is alive."""
    try:
        found = files.read_json(folder / snapshot.FOLDER / _STATE) or {}
        return bool(found.get("host") == socket.gethostname())
    except (RunnerError, AttributeError):
        return False


def checksum(path: Path, size: int) -> int:
    """The CRC-32 of the first bytes of a file."""
    crc, left = 0, size
    with path.open("rb") as file:
        while left and (chunk := file.read(min(left, 1 << 20))):
            crc = zlib.crc32(chunk, crc)
            left -= len(chunk)
    return crc


def described(paths: Iterable[str], state: snapshot.Snapshot) -> str:
    """What is missing, in a few words."""
    paths = list(paths)
    size = sum(state.files[path][0] for path in paths if path in state.files)
    named = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
    return f"{named} ({text.size(size)})"
