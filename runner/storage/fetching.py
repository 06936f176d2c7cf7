"""Downloads a bucket's contents to a local directory. References are written last."""

import concurrent.futures
import contextlib
import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from runner.core import console, files, layout
from runner.errors import RunnerError
from runner.storage import copying, manifest, snapshot
from runner.storage.bucket import Bucket, BucketError
from runner.storage.manifest import Entry, Manifest

_AT_A_TIME = 8
_ATTEMPTS = 5
_MOMENT_SECONDS = 2.0
_HEAVY = re.compile(r".*\.(index|data-\d{5}-of-\d{5})")


class Replica:
    """A local copy of a directory in a bucket, which only this object writes.

    Args:
        bucket: The source.
        folder: The destination.
        wants: Returns whether to copy a file, given its path.
        before_removal: Called with the path of a checkpoint that is about to be removed.
        read: Reads the contents of the bucket.

    Attributes:
        held: The contents of the bucket at the last update.
        stamps: The downloaded files, as they are in the local directory.
    """

    def __init__(
        self,
        bucket: Bucket,
        folder: Path,
        *,
        wants: Callable[[str], bool] = lambda _: True,
        before_removal: Callable[[Path], object] = lambda _: None,
        read: Callable[[Bucket], Manifest] = manifest.read,
    ) -> None:
        self._bucket = bucket
        self._folder = folder
        self._wants = wants
        self._before_removal = before_removal
        self._read = read
        self._have: dict[str, Entry] = {}
        self.held = Manifest({})
        self.stamps: dict[str, snapshot.Stamp] = {}

    def bring(self) -> bool:
        """Updates the copy to the current state of the bucket. Returns False if it was up to date.

        A missing part of a checkpoint is left out. The run then restores an older checkpoint.

        Raises:
            BucketError: a read failed.
            RunnerError: another file in the manifest is missing.
            OSError: a file could not be written locally.
        """
        for attempt in range(_ATTEMPTS):
            held = self._read(self._bucket)
            if held.files == self.held.files and held.texts == self.held.texts:
                return False
            is_last = attempt == _ATTEMPTS - 1
            try:
                self._bring(held, leave_out=is_last)
            except FileNotFoundError as error:  # removed since: the bucket has a newer state
                if is_last:
                    raise RunnerError(f"{self._bucket.url} has lost {error}") from error
            else:
                self.held = held
                return True
        return False

    def _bring(self, held: Manifest, *, leave_out: bool) -> None:
        wanted = {path: each for path, each in held.files.items() if self._wants(path)}
        new = [path for path, entry in wanted.items() if self._have.get(path) != entry]
        points = sorted(filter(manifest.points, new), key=manifest.order)
        others = [path for path in new if not manifest.points(path)]
        with concurrent.futures.ThreadPoolExecutor(_AT_A_TIME) as pool:
            made = {path: pool.submit(self._fetch, path, wanted[path]) for path in others}
        for path, each in made.items():
            try:
                each.result()
            except FileNotFoundError:
                if not (leave_out and manifest.checkpoint_of(path)):
                    raise
                console.say(f"{self._bucket.url}/{path} is missing")
        for path in points:
            if path in held.texts:
                files.write_text(self._target(path), held.texts[path])
                self._note(path, wanted[path])
            else:
                self._fetch(path, wanted[path])
        self._remove([path for path in self._have if path not in wanted])

    def _fetch(self, path: str, entry: Entry) -> None:
        """Downloads a file atomically."""
        target = self._target(path)
        files.make_folder(target.parent)
        with files.beside(target) as part:
            self._bucket.download(path, part)
            found = part.stat().st_size
            if found > entry.size and manifest.grows(path):
                with part.open("r+b") as file:
                    file.truncate(entry.size)
            elif manifest.checkpoint_of(path):
                self._check(part, path, entry)
            files.flush_file(part)
            part.replace(target)
        self._note(path, entry)

    def _target(self, path: str) -> Path:
        """Returns the local path of a file, inside the directory even if there are links in it.

        Raises:
            RunnerError: a link leads out of the directory.
        """
        target = self._folder / path
        if not target.parent.resolve().is_relative_to(self._folder.resolve()):
            raise RunnerError(
                f"{target.parent} is a link that leads out of {self._folder}, where nothing of "
                f"{self._bucket.url} may be written: remove it"
            )
        return target

    def _check(self, part: Path, path: str, entry: Entry) -> None:
        """Warns about a damaged part of a checkpoint. The run then restores an older one."""
        size = part.stat().st_size
        if size == entry.size and entry.crc in (None, copying.checksum(part, size)):
            return
        if self._read(self._bucket).files.get(path) != entry:  # rewritten meanwhile
            raise FileNotFoundError(path)
        console.say(f"{self._bucket.url}/{path} is damaged")

    def _note(self, path: str, entry: Entry) -> None:
        found = (self._folder / path).stat()
        self._have[path] = entry
        self.stamps[path] = (found.st_size, found.st_mtime_ns, found.st_ino)

    def _remove(self, paths: Iterable[str]) -> None:
        """Removes files, the index of a checkpoint before its data."""
        for path in sorted(paths, key=manifest.order, reverse=True):
            target = self._target(path)
            if path.endswith(".index"):
                self._before_removal(target.with_suffix(""))
            files.remove(target)
            self._have.pop(path, None)
            self.stamps.pop(path, None)


class Following:
    """A thread that keeps a copy up to date.

    Args:
        bring: Downloads new files.
        seconds: Time between two updates.
        note: Called with a line about an error, once while it lasts.
    """

    def __init__(
        self, bring: Callable[[], object], *, seconds: float, note: console.Note = console.say
    ) -> None:
        self._bring = bring
        self._seconds = seconds
        self._note = note
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="following", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._thread.join(_MOMENT_SECONDS)  # otherwise it might write to a directory being removed

    def _run(self) -> None:
        failure = ""
        while not self._ended.wait(self._seconds):
            try:
                self._bring()
                failure = ""
            except (BucketError, RunnerError, OSError) as error:
                if str(error) != failure and not self._ended.is_set():
                    self._note(f"{error}; retrying")
                failure = str(error)


class Others:
    """Downloads the files of remote evaluators of a run, so that the run can use their results.

    Args:
        bucket: The run's directory in the bucket.
        folder: The run's local directory.
    """

    def __init__(self, bucket: Bucket, folder: Path) -> None:
        self._bucket = bucket
        self._folder = folder
        self._copies: dict[str, Replica] = {}

    def leaves_out(self, path: str) -> bool:
        """Returns whether a file or directory belongs to an evaluator."""
        return path.partition("/")[0] in self._copies

    def bring(self) -> None:
        """Downloads their rows and registrations."""
        for name in self._bucket.names():
            if layout.is_evaluator(name) and name not in self._copies:
                part = self._bucket.part(name)
                if part.read(manifest.NAME) is not None:
                    self._copies[name] = Replica(part, self._folder / name, wants=_is_row)
        for copy in self._copies.values():
            with contextlib.suppress(FileNotFoundError):
                copy.bring()


def is_light(path: str) -> bool:
    """Returns whether a file is small compared to checkpoints, and enough for tables and pages."""
    return not (
        _HEAVY.fullmatch(path) or ".tfevents." in path or f"/{layout.EXPORT}/" in f"/{path}"
    )


def _is_row(path: str) -> bool:
    return path in (
        *(layout.HISTORY, layout.EVALUATOR, layout.PARAMS, layout.RESOLVED, layout.RUN),
    )
