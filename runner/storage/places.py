"""Local folders in place of URLs: a mode works in one of them, and a thread copies it.

    with places.written(url, ending) as folder:       # a run, which holds the URL while it lasts
    with places.beside(folder, url, ending):          # `RunConfig.mirror`: a copy of a local run
    with places.read(url, part="eval-cpu") as folder: # what others hold; a part may be written

A run works in a folder of the user's cache, which stays. If no other machine has written since,
the same machine goes on from there, which is newer than the bucket after a kill. Otherwise the
bucket counts, and what was there is put aside.
"""

import contextlib
import dataclasses
import fcntl
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from runner.core import console, files, signals
from runner.errors import ConfigError, LostError, RunnerError
from runner.storage import copying, data_copies, fetching, lease, manifest, mirror, snapshot, urls
from runner.storage.bucket import Bucket, BucketError

TIMEOUT_SECONDS = 600.0

_PAUSES = (1.0, 2.0, 4.0)  # between attempts at the start
_FOLLOW_SECONDS = 5.0
_LOCK = "lock"
_ASIDE = ".before"
_TEMPORARY = "read-"

T = TypeVar("T")


class Ending(NamedTuple):
    """How the last state reaches the bucket.

    Attributes:
        stop: Signals are only noted meanwhile.
        timeout: Seconds that it may take.
    """

    stop: signals.Stop
    timeout: float = TIMEOUT_SECONDS


@contextlib.contextmanager
def written(url: str, ending: Ending, *, where: str = "--model_dir") -> Iterator[Path]:
    """The local folder of a run whose place is a URL, with all that the bucket has of it.

    Args:
        url: As `urls.check` returned it.
        ending: For the last state.
        where: The flag that gave it.

    Raises:
        ConfigError: the bucket refuses.
        RunnerError: another process holds it, it does not answer, or in the end it does not have
            all.
    """
    bucket = Bucket(url, f"{where}=")
    folder = _cache() / urls.folder_name(url)
    with _alone(folder, bucket.url):
        last, known = copying.saved(folder, bucket.url)
        claim = _started(lambda: lease.take(bucket, _asking(folder, bucket, where)), where)
        held = _started(lambda: manifest.read(bucket, mine=claim.path), where)
        goes_on = held.claim <= last.number <= claim.before.number and last.number > 0
        if not goes_on:
            _put_aside(folder)
        folder.mkdir(parents=True, exist_ok=True)
        console.say(f"working in {folder}, which is copied to {bucket.url}")
        if not goes_on:
            if held.files and not held.serial:  # a copy by hand counts whatever comes next
                held = dataclasses.replace(held, serial=1, claim=claim.mark.number)
                _started(lambda: bucket.write(manifest.NAME, held.dumps()), where)
            copy = fetching.Replica(bucket, folder)
            if _started(copy.bring, where):
                console.say(f"brought {len(copy.stamps):,} files from {bucket.url}")
            held, known = copy.held, copy.stamps
        others = fetching.Others(bucket, folder)
        kept = mirror.Mirror(
            folder,
            bucket,
            claim,
            held,
            known=known,
            leaves_out=others.leaves_out,
            fetch=others.bring,
        )
        with _mirrored(kept, folder, ending):
            yield folder


@contextlib.contextmanager
def beside(folder: Path, url: str, ending: Ending) -> Iterator[None]:
    """Inside, a local run is copied to a URL, which nothing is read from.

    Raises:
        ConfigError: the bucket refuses, or holds another run.
        RunnerError: as `written` does.
    """
    where = "RunConfig.mirror"
    bucket = Bucket(url, f"{where} = ")
    is_new = not folder.exists()
    try:
        with (
            _alone(folder / snapshot.FOLDER / "copy", bucket.url),
            _mirrored(_of_local(folder, bucket, where), folder, ending),
        ):
            yield
    finally:
        if (
            is_new
            and folder.exists()
            and {each.name for each in folder.iterdir()} <= {snapshot.FOLDER}
        ):
            shutil.rmtree(folder)  # of a start that was refused


def _of_local(folder: Path, bucket: Bucket, where: str) -> mirror.Mirror:
    """The mirror of a local run.

    Raises:
        ConfigError: another run is there.
    """
    last, known = copying.saved(folder, bucket.url)
    held = _started(lambda: manifest.read(bucket), where)
    if held.files and held.claim > last.number:
        raise ConfigError(
            f"{where} = {bucket.url!r}: another run is there; choose another place, or go on with "
            f"that one by --model_dir={bucket.url}"
        )
    claim = _started(lambda: lease.take(bucket, _asking(folder, bucket, where)), where)
    return mirror.Mirror(folder, bucket, claim, held, known=known)


def _asking(folder: Path, bucket: Bucket, where: str) -> lease.Asking:
    """A request for a claim, for a folder that no other process of this machine works in."""
    last = copying.saved(folder, bucket.url)[0] if copying.was_here(folder) else lease.Mark()
    return lease.Asking(instead=where, last=last)


@contextlib.contextmanager
def read(
    url: str,
    *,
    wants: Callable[[str], bool] = lambda _: True,
    part: str = "",
    follows: bool = False,
    ending: Ending | None = None,
    before_removal: Callable[[Path, Path], object] = lambda *_: None,
    may_be_new: bool = False,
    where: str = "--model_dir",
) -> Iterator[Path]:
    """A copy of what a URL holds, in a temporary folder.

    Args:
        url: As `urls.check` returned it.
        wants: Whether a file, by its path, is wanted.
        part: The folder in it that this process writes, and that is copied back; empty: none.
        follows: Whether the copy is kept up to date.
        ending: For the last state of the part.
        before_removal: Called with the folder and the path of a checkpoint that is about to be
            removed.
        may_be_new: Whether there may be nothing yet.
        where: The flag that gave it.

    Raises:
        ConfigError: the bucket refuses, or there is nothing.
        RunnerError: it does not answer; for a part as `written` does.
    """
    bucket = Bucket(url, f"{where}=")
    with _temporary(url.rpartition("/")[2]) as folder, contextlib.ExitStack() as inside:
        copy = fetching.Replica(
            bucket,
            folder,
            wants=lambda path: wants(path) and not (part and path.startswith(f"{part}/")),
            before_removal=lambda path: before_removal(folder, path),
            read=manifest.read_with_parts,
        )
        _started(copy.bring, where)
        if not copy.held.files and not may_be_new:
            raise ConfigError(f"{where}={bucket.url}: there is nothing")
        if part:
            inside.enter_context(_part(bucket.part(part), folder / part, ending, where))
        if follows:
            inside.enter_context(fetching.Following(copy.bring, seconds=_FOLLOW_SECONDS))
        yield folder


@contextlib.contextmanager
def _part(bucket: Bucket, folder: Path, ending: Ending | None, where: str) -> Iterator[None]:
    """Inside, a part of a run is this process's to write."""
    claim = _started(lambda: lease.take(bucket, lease.Asking(instead="name")), where)
    folder.mkdir(parents=True, exist_ok=True)
    copy = fetching.Replica(bucket, folder)
    _started(copy.bring, where)
    kept = mirror.Mirror(folder, bucket, claim, copy.held, known=copy.stamps)
    with _mirrored(kept, folder, ending or Ending(signals.Stop())):
        yield


@contextlib.contextmanager
def _mirrored(kept: mirror.Mirror, folder: Path, ending: Ending) -> Iterator[None]:
    """Inside, a folder is copied; afterwards its last state is there, however the block ended."""
    with kept, files.guarded(folder, kept.check):
        try:
            yield
        except LostError:
            raise
        except BaseException as error:
            try:
                _finish(kept, ending)
            except RunnerError as incomplete:
                raise type(incomplete)(f"{error}\n{incomplete}") from error
            raise
        _finish(kept, ending)


def _finish(kept: mirror.Mirror, ending: Ending) -> None:
    with contextlib.ExitStack() as inside:
        if not ending.stop.requested:
            inside.enter_context(ending.stop.deferred())
        kept.finish(ending.timeout)


def _started(do: Callable[[], T], where: str) -> T:
    """What `do` returns, after a few attempts.

    Raises:
        ConfigError: no attempt can succeed.
        RunnerError: none did.
    """
    for pause in (*_PAUSES, None):
        try:
            return do()
        except BucketError as error:
            if error.is_final:
                raise ConfigError(f"{where}: {error}") from error
            if pause is None:
                raise RunnerError(f"{where}: {error}") from error
            console.say(f"{error}; trying again in {pause:.0f} s")
            time.sleep(pause)
    raise AssertionError


def _cache() -> Path:
    """Where local folders are: in the user's cache."""
    return data_copies.cache() / "buckets"


def _put_aside(folder: Path) -> None:
    """Empties a folder; what another machine's start has made old is kept once."""
    aside = folder.with_name(folder.name + _ASIDE)
    if folder.exists() and any(each.name != snapshot.FOLDER for each in folder.iterdir()):
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
        console.say(f"what this machine had is older, and is in {aside}")


@contextlib.contextmanager
def _alone(folder: Path, url: str) -> Iterator[None]:
    """Inside, no other process of this machine works in the folder."""
    lock = folder.with_name(f"{folder.name}.{_LOCK}")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a")
    except OSError as error:
        raise RunnerError(
            f"{lock.parent} cannot be written: {error.strerror} (XDG_CACHE_HOME says where the "
            "folders of runs in buckets are)"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunnerError(
                f"{url} is being written by another process on this machine; stop that one first, "
                "or choose another --model_dir"
            ) from error
        yield


@contextlib.contextmanager
def _temporary(name: str) -> Iterator[Path]:
    """A folder for as long as the block lasts; those of processes that were killed are removed."""
    cache = _cache()
    cache.mkdir(parents=True, exist_ok=True)
    for left in cache.glob(f"{_TEMPORARY}*/{_LOCK}"):
        with contextlib.suppress(OSError), left.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left.parent, ignore_errors=True)
    made = tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=cache, ignore_cleanup_errors=True)
    with made as own, (Path(own) / _LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        folder = Path(own) / (name or "run")
        folder.mkdir()
        yield folder
