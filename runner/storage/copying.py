"""Copies one state of a directory to a bucket, so that references follow the files they name.

The order is: the data of checkpoints, their indices, other files, growing files, files that refer
to others, and at last `mirror.json`, which makes this the state of the bucket. After that, objects
that it no longer names are removed. The lock is checked before each write.
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

_IN_MEMORY = 1 << 24  # bytes. Larger files are sent from the disk
_SMALL = 1 << 20  # bytes. Smaller growing files are sent again with each copy
_SHARE = 8  # larger ones if they have grown by this fraction, or with a checkpoint
_STATE = "state.json"


class Copier:
    """Copies states of a directory to a bucket, and remembers the bucket's contents.

    An object cannot be appended to, so a growing file is rewritten as a whole. Small ones are
    rewritten each time, larger ones with each checkpoint, at the end, or when they have grown by an
    eighth.

    Args:
        folder: The run's directory.
        bucket: The destination.
        mark: The lock that this process holds.
        held: The contents of the bucket.
        check: Called before each write. Raises if this process may not write.

    Attributes:
        known: The files that the bucket has, as they were in the directory.
        held: The contents of the bucket.
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
        """Records which files are equal in the directory and in the bucket."""
        self.known = {path: stamp for path, stamp in stamps.items() if path in self.held.files}
        self._save()

    def forget(self) -> None:
        """Records that the bucket is empty."""
        self.held, self.known = Manifest({}, serial=self.held.serial), {}

    def pending(self, state: snapshot.Snapshot, *, last: bool) -> list[str]:
        """Returns the files to copy, in order."""
        changed = [path for path, stamp in state.files.items() if self.known.get(path) != stamp]
        commits = last or any(map(manifest.checkpoint_of, changed))
        return sorted(
            (path for path in changed if commits or self._is_due(path, state.files[path][0])),
            key=manifest.order,
        )

    def copy(self, state: snapshot.Snapshot, *, last: bool = False) -> bool:
        """Copies this state to the bucket. Returns False if the bucket already had it.

        Raises:
            BucketError: a write failed. The bucket still holds its previous state.
            LostError: another process holds the directory in the bucket.
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
        """Removes checkpoints from the manifest whose objects are about to be replaced."""
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
        """Copies a file. Returns None if it is gone."""
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
        """Records the bucket's contents for the next attempt."""
        save(self._folder, self._bucket.url, self._mark, self.known)


def save(folder: Path, url: str, mark: Mark, known: Mapping[str, snapshot.Stamp]) -> None:
    """Records the last lock of a directory, and the files that were copied."""
    value = {"url": url, "claim": list(mark), "host": socket.gethostname(), "files": known}
    files.write_json(folder / snapshot.FOLDER / _STATE, value)


def saved(folder: Path, url: str) -> tuple[Mark, dict[str, snapshot.Stamp]]:
    """Returns the record of `save` for this URL, or a lock of number 0 if there is none."""
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
    """Returns the URL of the last call of `save`, or an empty string if there is none."""
    with contextlib.suppress(RunnerError, AttributeError):
        found = files.read_json(folder / snapshot.FOLDER / _STATE) or {}
        return str(found.get("url") or "")
    return ""


def was_here(folder: Path) -> bool:
    """Returns whether `save` was called on this machine, where locks show if a process lives."""
    try:
        found = files.read_json(folder / snapshot.FOLDER / _STATE) or {}
        return bool(found.get("host") == socket.gethostname())
    except (RunnerError, AttributeError):
        return False


def checksum(path: Path, size: int) -> int:
    """Returns the CRC-32 of the first `size` bytes of a file."""
    crc, left = 0, size
    with path.open("rb") as file:
        while left and (chunk := file.read(min(left, 1 << 20))):
            crc = zlib.crc32(chunk, crc)
            left -= len(chunk)
    return crc


def described(paths: Iterable[str], state: snapshot.Snapshot) -> str:
    """Describes the missing files in a few words."""
    paths = list(paths)
    size = sum(state.files[path][0] for path in paths if path in state.files)
    named = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
    return f"{named} ({text.size(size)})"
