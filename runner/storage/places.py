"""Local directories for URLs: a mode works in one of them, and a thread copies it.

    with places.written(url, ending) as folder:       # a run, which holds the URL's lock meanwhile
    with places.beside(folder, url, ending):          # `RunConfig.mirror`: a copy of a local run
    with places.read(url, part="eval-cpu") as folder: # a copy to read, with a part to write

A run works in a directory of the user's cache, which is kept. If no other machine has written to
the bucket since, the same machine continues from its own directory, which is newer than the bucket
after a kill. Otherwise, the bucket's state is used, and the local one is moved aside.
"""

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from runner.core import console, files, signals
from runner.errors import ConfigError, LostError, RunnerError
from runner.storage import (
    attempts,
    copying,
    display_names,
    fetching,
    lease,
    local_folders,
    manifest,
    mirror,
    snapshot,
)
from runner.storage.bucket import Bucket, BucketError

TIMEOUT_SECONDS = 600.0

_FOLLOW_SECONDS = 5.0


class Ending(NamedTuple):
    """How to copy the last state to the bucket.

    Attributes:
        stop: Defers signals meanwhile.
        timeout: Returns the maximum seconds for it, given the directory.
    """

    stop: signals.Stop
    timeout: Callable[[Path], float] = lambda _: TIMEOUT_SECONDS


@contextlib.contextmanager
def written(url: str, ending: Ending, *, where: str = "--model_dir") -> Iterator[Path]:
    """Yields the local directory of a run at a URL, with all files that the bucket has of it.

    Args:
        url: As `urls.check` returned it.
        ending: How to copy the last state.
        where: The flag that gave it.

    Raises:
        ConfigError: the bucket rejects the request.
        RunnerError: another process holds it, it does not answer, or it is not complete at the
            end.
    """
    bucket = Bucket(url, f"{where}=")
    folder = local_folders.of(url)
    if url.startswith("memory://"):
        console.say(f"{url} is lost when this process ends")
    with local_folders.alone(folder, bucket.url):
        last, known = copying.saved(folder, bucket.url)
        claim = attempts.several(lambda: lease.take(bucket, _asking(folder, bucket, where)), where)
        with _returned(claim):
            held = attempts.several(lambda: manifest.read(bucket, mine=claim.path), where)
            goes_on = held.claim <= last.number <= claim.before.number and last.number > 0
            if not goes_on:
                local_folders.put_aside(folder)
            folder.mkdir(parents=True, exist_ok=True)
            display_names.record(folder, url)
            console.say(f"working in {folder}; it is copied to {bucket.url}")
            if not goes_on:
                if held.files and not held.serial:  # keeps a manual copy valid from now on
                    held = dataclasses.replace(held, serial=1, claim=claim.mark.number)
                    attempts.several(lambda: bucket.write(manifest.NAME, held.dumps()), where)
                copy = fetching.Replica(bucket, folder)
                if attempts.several(copy.bring, where):
                    console.say(f"downloaded {len(copy.stamps):,} files from {bucket.url}")
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
    """Copies a local run to a URL within the block. Reads no run files from the URL.

    Raises:
        ConfigError: the bucket rejects the request, or holds another run.
        RunnerError: as for `written`.
    """
    where = "RunConfig.mirror"
    bucket = Bucket(url, f"{where} = ")
    is_new = not folder.exists()
    try:
        with (
            local_folders.alone(folder / snapshot.FOLDER / "copy", bucket.url),
            _mirrored(_of_local(folder, bucket, where), folder, ending),
        ):
            yield
    finally:
        if (
            is_new
            and folder.exists()
            and {each.name for each in folder.iterdir()} <= {snapshot.FOLDER}
        ):
            shutil.rmtree(folder)  # left by a rejected attempt


def _of_local(folder: Path, bucket: Bucket, where: str) -> mirror.Mirror:
    """Returns the mirror of a local run.

    Raises:
        ConfigError: another run is there.
    """
    last, known = copying.saved(folder, bucket.url)
    held = attempts.several(lambda: manifest.read(bucket), where)
    if held.files and held.claim > last.number:
        raise ConfigError(
            f"{where} = {bucket.url!r} contains another run; choose another URL, or continue that "
            f"run with --model_dir={bucket.url}"
        )
    claim = attempts.several(lambda: lease.take(bucket, _asking(folder, bucket, where)), where)
    return mirror.Mirror(folder, bucket, claim, held, known=known)


def _asking(folder: Path, bucket: Bucket, where: str) -> lease.Asking:
    """Returns a request for a lock, for a directory that no other local process uses."""
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
    """Yields a copy of the contents of a URL, in a temporary directory.

    Args:
        url: As `urls.check` returned it.
        wants: Returns whether to copy a file, given its path.
        part: The subdirectory that this process writes and copies back, or empty for none.
        follows: Whether to keep the copy up to date.
        ending: How to copy the last state of the part.
        before_removal: Called with the directory and the path of a checkpoint that is about to be
            removed.
        may_be_new: Whether the URL may be empty.
        where: The flag that gave it.

    Raises:
        ConfigError: the bucket rejects the request, or the URL is empty.
        RunnerError: it does not answer. For a part, also as for `written`.
    """
    bucket = Bucket(url, f"{where}=")
    with (
        local_folders.temporary(url) as folder,
        contextlib.ExitStack() as inside,
    ):
        copy = fetching.Replica(
            bucket,
            folder,
            wants=lambda path: wants(path) and not (part and path.startswith(f"{part}/")),
            before_removal=lambda path: before_removal(folder, path),
            read=manifest.read_with_parts,
        )
        attempts.several(copy.bring, where)
        if not copy.held.files and not may_be_new:
            raise ConfigError(f"{where}={bucket.url}: there is nothing")
        if part:
            inside.enter_context(_part(bucket.part(part), folder / part, ending, where))
        if follows:
            inside.enter_context(fetching.Following(copy.bring, seconds=_FOLLOW_SECONDS))
        yield folder


@contextlib.contextmanager
def _part(bucket: Bucket, folder: Path, ending: Ending | None, where: str) -> Iterator[None]:
    """Lets this process write a part of a run within the block."""
    claim = attempts.several(lambda: lease.take(bucket, lease.Asking(instead="name")), where)
    with _returned(claim):
        folder.mkdir(parents=True, exist_ok=True)
        copy = fetching.Replica(bucket, folder)
        attempts.several(copy.bring, where)
    kept = mirror.Mirror(folder, bucket, claim, copy.held, known=copy.stamps, stays=False)
    with _mirrored(kept, folder, ending or Ending(signals.Stop())):
        yield


@contextlib.contextmanager
def _returned(claim: lease.Lease) -> Iterator[None]:
    """Releases the lock if the block raises, so that the next attempt need not wait."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(BucketError):
            claim.release()
        raise


@contextlib.contextmanager
def _mirrored(kept: mirror.Mirror, folder: Path, ending: Ending) -> Iterator[None]:
    """Copies a directory within the block, and its last state however the block ends."""
    with kept, files.guarded(folder, kept.check):
        try:
            yield
        except LostError:
            raise
        except BaseException as error:
            try:
                _finish(kept, ending.stop, ending.timeout(folder))
            except RunnerError as incomplete:
                raise type(incomplete)(f"{error}\n{incomplete}") from error
            raise
        _finish(kept, ending.stop, ending.timeout(folder))


def _finish(kept: mirror.Mirror, stop: signals.Stop, timeout: float) -> None:
    with stop.deferred(checks=False):  # also after a signal: a second one still ends the process
        kept.finish(timeout)


def has(url: str, name: str) -> bool:
    """Returns whether a file exists at the URL.

    Raises:
        ConfigError: the bucket rejects the request.
        RunnerError: it does not answer.
    """
    where = "--model_dir"
    bucket = Bucket(url, f"{where}=")
    return attempts.several(lambda: bucket.read(name), where) is not None
