"""Which names in a run's folder are files, and which are folders. Standard library only."""

from pathlib import Path

from runner.errors import RunnerError

_FILES = (
    *("params.yaml", "config.gin", "run.json", "status.json", "claim.json", "checkpoint"),
    *("history.jsonl", "train.jsonl", "overview.json", "traceback.txt"),
)
_FOLDERS = ("train", "validation", "best", "sets", "damaged")


def check(folder: Path) -> None:
    """Returns where `folder` is, or can become, a run's or an evaluator's; nothing is changed.

    Raises:
        RunnerError: something of another kind is in the place of the folder, or of what is in it.
    """
    for path in (folder, *folder.absolute().parents):
        if path.is_symlink() and not path.exists():
            raise RunnerError(
                f"{path} is a link to {path.readlink()}, which is not there: make that folder, or "
                "remove the link"
            )
        if path.exists() and not path.is_dir():
            raise RunnerError(f"{folder} cannot be a folder: {path} is a file")
    for name in _FILES:
        if (folder / name).is_dir():
            raise RunnerError(_in_the_way(folder / name, "folder", "file"))
    for name in _FOLDERS:
        if (folder / name).is_file():
            raise RunnerError(_in_the_way(folder / name, "file", "folder"))


def _in_the_way(path: Path, found: str, wanted: str) -> str:
    return f"{path} is a {found}, and a run has a {wanted} of that name: move it elsewhere"
