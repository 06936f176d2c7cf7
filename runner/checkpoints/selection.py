"""Resolves the checkpoints that `--checkpoint` names."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from runner.checkpoints import checkpoint_files
from runner.core import layout
from runner.core.spelling import did_you_mean
from runner.errors import ConfigError

_MEAN = "mean:"
_LATEST = dict.fromkeys(("newest", "last", "final", "current", "most_recent"), "latest")

_STEPS = re.compile(r"(\d+|\d*:\d*)(,(\d+|\d*:\d*))*")


def select(model_dir: Path, which: str, *, best: Sequence[str]) -> list[Path]:
    """The checkpoints that `--checkpoint` names, oldest first.

    Args:
        model_dir: The run's directory.
        which: One of

            - `latest`, or empty
            - `best`
            - `all`, including the best ones
            - steps and ranges such as `1000,2000` and `1000:5000`, whose ends are included and
              optional
            - the path, from the working directory or from `model_dir`, of a checkpoint or a
              directory, which means its latest checkpoint, or for best checkpoints its best
            - `mean:` with `all`, or steps and ranges: at least two checkpoints to average
        best: The names of the directories of best checkpoints. `best` means the first.

    Returns:
        Paths without `.index`. Empty for `latest` if there is no checkpoint yet.

    Raises:
        ConfigError: there is no such checkpoint. The message lists those that exist.
    """
    if which in ("", "latest"):
        return _at(model_dir)
    there = _by_step([model_dir, *(model_dir / name for name in best)])
    steps = which.removeprefix(_MEAN)  # to be used alone or averaged
    if steps == "all":
        found = list(there.values())
    elif _STEPS.fullmatch(steps):
        found = [there[step] for step in _steps(steps, there)]
    elif which == layout.BEST or which in best:
        found = _at(model_dir / (best[0] if which == layout.BEST and best else which))
    else:
        found = _at(model_dir / which) or _at(Path(which))
    if not found:
        raise ConfigError(_nothing(which, model_dir, there, best), checkpoint=which)
    if is_mean(which) and len(found) == 1:
        raise ConfigError("{checkpoint}: a mean needs at least two checkpoints", checkpoint=which)
    return found


def is_mean(which: str) -> bool:
    """Whether `--checkpoint` means the mean of the weights of the checkpoints it names."""
    return which.startswith(_MEAN)


def _by_step(folders: Iterable[Path]) -> dict[int, Path]:
    """The checkpoints of several directories by step, each from the first directory that has it."""
    found: dict[int, Path] = {}
    for folder in folders:
        for path in checkpoint_files.there(folder):
            found.setdefault(checkpoint_files.step_in(path.name) or 0, path)
    return dict(sorted(found.items()))


def _steps(which: str, there: Iterable[int]) -> list[int]:
    """The steps that `which` lists. Empty if a step or a range has no checkpoint."""
    found: set[int] = set()
    for part in which.split(","):
        low, _, high = part.partition(":") if ":" in part else (part, "", part)
        steps = {
            step
            for step in there
            if (not low or step >= int(low)) and (not high or step <= int(high))
        }
        if not steps:
            return []
        found |= steps
    return sorted(found)


def _at(path: Path) -> list[Path]:
    """The checkpoint at a path or in a directory, if there is one."""
    if path.is_dir():
        newest = checkpoint_files.latest(path)
        return [newest] if newest else []
    name = path.name.removesuffix(".index")
    return [path.with_name(name)] if name and checkpoint_files.exists(path.with_name(name)) else []


def _nothing(which: str, model_dir: Path, there: Iterable[int], best: Sequence[str]) -> str:
    steps = list(map(str, there))
    folders = [name for name in best if _at(model_dir / name)]
    names = ["latest", "all", *folders]
    known = f"available: {', '.join([*names, *steps])}" if steps else "it has none yet"
    meant = did_you_mean(which, [*names, layout.BEST], _LATEST)
    return f"{{checkpoint}}: no such checkpoint in {model_dir}; {known}{meant}"
