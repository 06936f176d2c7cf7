"""Brings what a bucket holds into a local folder; what points comes last, as it was written."""

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
    """A local copy of a folder in a bucket, which only this object writes.

    Args:
        bucket: Where from.
        folder: Where to.
        wants: Whether a file, by its path, is wanted.
        before_removal: Called with the path of a checkpoint that is about to be removed.
        read: Says what the bucket holds.

    Attributes:
        held: What the bucket held when it was last brought.
        stamps: The files brought, as they are here.
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
        """Makes the copy the present state of the bucket; False if it already was.

        A part of a checkpoint that is gone is left out: an older one is restored then.

        Raises:
            BucketError: something could not be read.
            RunnerError: another file that it names is missing.
            OSError: something could not be written here.
        """
        for attempt in range(_ATTEMPTS):
            held = self._read(self._bucket)
            if held.files == self.held.files and held.texts == self.held.texts:
                return False
            is_last = attempt == _ATTEMPTS - 1
            try:
                self._bring(held, leave_out=is_last)
            except FileNotFoundError as error:  # removed since: what it holds now is newer
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
        """Brings a file, whole or not at all."""
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
        """Where a file belongs: in the folder, even if there are links in it.

        Raises:
            RunnerError: a link leads out of the folder.
        """
        target = self._folder / path
        if not target.parent.resolve().is_relative_to(self._folder.resolve()):
            raise RunnerError(
                f"{target.parent} is a link that leads out of {self._folder}, where nothing of "
                f"{self._bucket.url} may be written: remove it"
            )
        return target

    def _check(self, part: Path, path: str, entry: Entry) -> None:
        """Says if a part of a checkpoint is not what was written: an older one is restored then."""
        size = part.stat().st_size
        if size == entry.size and entry.crc in (None, copying.checksum(part, size)):
            return
        if self._read(self._bucket).files.get(path) != entry:  # written again meanwhile
            raise FileNotFoundError(path)
        console.say(f"{self._bucket.url}/{path} is damaged")

    def _note(self, path: str, entry: Entry) -> None:
        found = (self._folder / path).stat()
        self._have[path] = entry
        self.stamps[path] = (found.st_size, found.st_mtime_ns, found.st_ino)

    def _remove(self, paths: Iterable[str]) -> None:
        """Removes files, the index of a checkpoint first."""
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
        bring: Brings what is new.
        seconds: Time between two looks.
        note: Called with a line about what is wrong, once while it lasts.
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
        self._thread.join(_MOMENT_SECONDS)  # else it might write where all is removed next

    def _run(self) -> None:
        failure = ""
        while not self._ended.wait(self._seconds):
            try:
                self._bring()
                failure = ""
            except (BucketError, RunnerError, OSError) as error:
                if str(error) != failure and not self._ended.is_set():
                    self._note(f"{error}; trying again")
                failure = str(error)


class Others:
    """What evaluators elsewhere have written beside a run: brought, so that it can be decided on.

    Args:
        bucket: The run's.
        folder: The run's, here.
    """

    def __init__(self, bucket: Bucket, folder: Path) -> None:
        self._bucket = bucket
        self._folder = folder
        self._copies: dict[str, Replica] = {}

    def leaves_out(self, path: str) -> bool:
        """Whether a file or folder is theirs."""
        return path.partition("/")[0] in self._copies

    def bring(self) -> None:
        """Brings their rows and registrations."""
        for name in self._bucket.names():
            if layout.is_evaluator(name) and name not in self._copies:
                part = self._bucket.part(name)
                if part.read(manifest.NAME) is not None:
                    self._copies[name] = Replica(part, self._folder / name, wants=_is_row)
        for copy in self._copies.values():
            with contextlib.suppress(FileNotFoundError):
                copy.bring()


def is_light(path: str) -> bool:
    """Whether a file is small beside checkpoints: enough for tables and pages."""
    return not (
        _HEAVY.fullmatch(path) or ".tfevents." in path or f"/{layout.EXPORT}/" in f"/{path}"
    )


def _is_row(path: str) -> bool:
    return path in (
        *(layout.HISTORY, layout.EVALUATOR, layout.PARAMS, layout.RESOLVED, layout.RUN),
    )
