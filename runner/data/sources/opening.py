"""Opens a source by the names of its files."""

import glob
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.core import text
from runner.data.sources.array_record import ArrayRecords
from runner.data.sources.arrays import Hdf5, NumpyFiles
from runner.data.sources.image_folder import IMAGES, ImageFolder
from runner.data.sources.source import Source
from runner.data.sources.tfds import TfdsSource
from runner.data.sources.tfrecord import TFRecords
from runner.errors import ConfigError
from runner.storage import data_copies, urls

_NUMBERED = re.compile(r"-(\d{5})-of-(\d{5})")  # in the name of a shard
_PARTIAL = re.compile(r"\d\*|[?[]")  # in a pattern that selects some numbers


def _parquet(paths: Sequence[Path], name: str, **options: Any) -> Source:
    from runner.data.sources.tables import Parquet  # imports pyarrow

    return Parquet(paths, name, **options)


def _csv(paths: Sequence[Path], name: str, **options: Any) -> Source:
    from runner.data.sources.tables import Csv

    return Csv(paths, name, **options)


_KINDS: dict[str, Any] = {
    "tfrecord": TFRecords,
    "array_record": ArrayRecords,
    "parquet": _parquet,
    "csv": _csv,
    "npy": NumpyFiles,
    "hdf5": Hdf5,
    "images": ImageFolder,
}
"""The kinds of sources in files."""

_ENDINGS = {
    **{".tfrecord": "tfrecord", ".tfrecords": "tfrecord", ".tfr": "tfrecord"},
    **{".array_record": "array_record", ".arrayrecord": "array_record"},
    **{".parquet": "parquet", ".csv": "csv", ".npy": "npy"},
    **{".h5": "hdf5", ".hdf5": "hdf5"},
}


def source(path: str | Path | Sequence[str | Path], kind: str = "", **options: Any) -> Source:
    """Opens examples in files, read by index.

    Args:
        path: A file, a directory, a pattern, a URL of files in a bucket (which are copied to this
            machine first), `tfds:name:split`, or several of these.
        kind: `tfrecord`, `array_record`, `parquet`, `csv`, `npy`, `hdf5` or `images`. Empty to
            derive it from the extensions of the files.
        options: Options of the kind, such as `columns` of a table.

    Raises:
        ConfigError: if there is no file or no example, a file is damaged or compressed, or the file
            names do not show the kind.
    """
    paths = [path] if isinstance(path, (str, Path)) else list(path)
    name = ", ".join(map(str, paths))
    if len(paths) == 1 and str(paths[0]).startswith("tfds:"):
        return TfdsSource(str(paths[0]).removeprefix("tfds:"), **options)
    local = [file for each in paths for file in _files(str(each))]
    kind = kind or _kind(local, name)
    if kind not in _KINDS:
        raise ConfigError(f"inputs.source(kind={kind!r}): must be one of {', '.join(_KINDS)}")
    if kind != "images":
        local = [file for path in local for file in _inside(path, kind)]
        _check_names(local, name)
        check_numbers(paths, local)
    opened: Source = _KINDS[kind](local, name, **options)
    return opened


def _files(path: str) -> list[Path]:
    """Returns the files and directories that a path, a pattern or a URL names, in order."""
    if urls.is_url(path):
        return [data_copies.local(path, "inputs.source")]
    if glob.has_magic(path):
        names = sorted(glob.glob(str(Path(path).expanduser())))  # noqa: PTH207
        if not names:
            raise ConfigError(f"{path}: no file matches")
        return [Path(name) for name in names]
    local = Path(path).expanduser()
    if not local.exists():
        raise ConfigError(f"{path} does not exist")
    return [local]


def _inside(path: Path, kind: str) -> list[Path]:
    """Returns the files of a kind in a directory, or the file itself."""
    if not path.is_dir():
        return [path]
    files = sorted(f for f in path.rglob("*") if f.is_file() and _ending(f) == kind)
    if not files:
        raise ConfigError(f"{path}: the directory has no file of the kind {kind}")
    return files


def _ending(path: Path) -> str:
    """Returns the kind of a file by its name, which may be numbered like `a.tfrecord-00`."""
    for suffix in reversed(path.suffixes):
        if kind := _ENDINGS.get(suffix.lower().split("-")[0]):
            return kind
    return ""


def _kind(paths: Sequence[Path], name: str) -> str:
    files = [f for path in paths for f in (path.rglob("*") if path.is_dir() else [path])]
    files = [f for f in files if f.is_file()]
    if not files:
        raise ConfigError(f"{name}: the directory is empty")
    kinds = {_ending(f) for f in files} - {""}
    if not kinds and any(f.suffix.lower() in IMAGES for f in files):
        return "images"
    if len(kinds) != 1:
        found = f"files of several kinds ({', '.join(sorted(kinds))})" if kinds else "no known kind"
        raise ConfigError(f"{name}: {found}: pass kind= one of {', '.join(_KINDS)}")
    return kinds.pop()


def check_numbers(paths: Sequence[str | Path], files: Sequence[Path]) -> None:
    """Checks that no shard of numbered files, such as `a.tfrecord-00000-of-00010`, is missing.

    Args:
        paths: The directories, files and patterns that the user has given. If one of them is a file
            or selects some numbers, nothing is checked.
        files: The files that they name.

    Raises:
        ConfigError: if there is one.
    """
    if not all(_is_whole(str(path)) for path in paths):
        return
    found: dict[tuple[Path, str, str, int], set[int]] = {}
    for file in files:
        if match := _NUMBERED.search(file.name):
            start, end = file.name[: match.start()], file.name[match.end() :]
            key = (file.parent, start, end, int(match[2]))
            found.setdefault(key, set()).add(int(match[1]))
    for (folder, start, end, count), numbers in found.items():
        if lacking := sorted(set(range(count)) - numbers):
            names = [f"{start}-{number:05}-of-{count:05}{end}" for number in lacking]
            shards = text.some(names)
            raise ConfigError(f"{folder}: of {count} shards, these are missing: {shards}")


def _is_whole(path: str) -> bool:
    if glob.has_magic(path):
        return not _PARTIAL.search(Path(path).name)
    return Path(path).expanduser().is_dir()


def _check_names(paths: Sequence[Path], name: str) -> None:
    """Rejects two shards with the same name, which are the same shard twice or a mistake."""
    seen: dict[str, Path] = {}
    for path in paths:
        if other := seen.get(path.name):
            raise ConfigError(f"{name}: two shards have the same name: {other} and {path}")
        seen[path.name] = path
