"""`--mode=init`: creates a new project in its own directory from one of the templates here.

Each template runs without changes. No TensorFlow.
"""

import shutil
from pathlib import Path

from runner.core import console, spelling
from runner.errors import ConfigError

_HERE = Path(__file__).parent
LIKE = tuple(sorted(path.parent.name for path in _HERE.glob("*/README.md")))


def create(like: str, folder: Path) -> dict[str, object]:
    """Writes the project.

    Args:
        like: The template, one of `LIKE`.
        folder: A new or empty directory. Missing parent directories are created.

    Returns:
        The result, which the command prints as its last line.

    Raises:
        ConfigError: if there is no such template, the directory is not empty or cannot be created,
            or the disk is full.
    """
    if like not in LIKE:
        meant = spelling.did_you_mean(like, LIKE)
        given = "{like}: unknown project" if like else "{like} is missing"
        raise ConfigError(f"{given}; available: {', '.join(LIKE)}{meant}", like=like or None)
    made = _make(folder)
    files = sorted(each for each in (_HERE / like).iterdir() if each.is_file())
    try:
        for each in files:
            shutil.copyfile(each, folder / each.name)
    except OSError as error:
        for each in files:
            (folder / each.name).unlink(missing_ok=True)
        for each in made:
            each.rmdir()
        raise ConfigError(f"{folder}: {error.strerror}; the partial project was removed") from None
    console.say(f"wrote {folder}: {', '.join(each.name for each in files)}")
    console.say(f"Next: cd {folder} and follow README.md")
    return {"status": "done", "like": like, "folder": str(folder)}


def _make(folder: Path) -> list[Path]:
    """Creates the directory if needed. Returns the new directories, the innermost first."""
    if not str(folder).isprintable() or ":/" in str(folder):
        raise ConfigError(f"{str(folder)!r}: a project needs a directory on this machine")
    try:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(f"{folder} is not empty; init writes only to an empty directory")
    except (FileExistsError, NotADirectoryError):
        raise ConfigError(f"{folder}: a file is in the way") from None
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}") from None
    return missing
