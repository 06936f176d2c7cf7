"""Starts a run's directory over by removing the files of an earlier run. No TensorFlow."""

import contextlib
import shutil
from collections.abc import Collection
from pathlib import Path

from runner.core import console, files, layout, text
from runner.errors import ConfigError
from runner.run_directory import claim
from runner.storage import display_names


def check(folder: Path, typed: str | bool) -> None:
    """Raises ConfigError unless the value of `--overwrite` is the name of the run's directory."""
    name = folder.absolute().name
    if typed is True:
        raise ConfigError(
            f"this deletes the run in {folder}; to confirm, pass its name: {{overwrite}}",
            overwrite=name,
        )
    if typed != name:
        raise ConfigError(
            f"{{overwrite}}: the name of the run in {folder} is {name}", overwrite=typed
        )
    if (folder / layout.STUDY).exists():
        raise ConfigError(
            f"{{overwrite}}: {folder} is a study; delete it yourself", overwrite=typed
        )


def begin_anew(folder: Path, typed: str | bool, *, more: Collection[str] = ()) -> None:
    """Removes the files of a run and its evaluators from a directory, and no others.

    Args:
        folder: The run's directory.
        typed: Its name, as a safety check.
        more: Additional names of files and directories of the run, set in its configuration.

    Raises:
        ConfigError: the name does not match.
        RunnerError: a process writes there, or the directory is not writable.
    """
    check(folder, typed)
    if not folder.exists():
        return
    with contextlib.ExitStack() as claims:
        for each in (*layout.evaluators(folder), folder):
            claims.enter_context(claim.claimed(each, note=console.say))
        found = [path for path in folder.iterdir() if _is_of_run(path.name, more)]
        for path in sorted(found, key=lambda path: not path.name.endswith(".index")):
            files.check(path)  # the lock; checkpoints go first, so that no run resumes from them
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    if found:
        console.say(f"removed the previous run in {display_names.of(folder)}")


def clear_events(folder: Path) -> None:
    """Removes the TensorBoard events of a run that this process has locked.

    Those of its evaluators stay, because other processes may be writing them.
    """
    others = layout.evaluators(folder)
    found = [
        path
        for path in sorted(folder.rglob("events.out.tfevents.*"))
        if not any(path.is_relative_to(each) for each in others)
    ]
    for path in found:
        files.check(path)
        path.unlink(missing_ok=True)
    if found:
        console.say(f"removed {text.counted(len(found), 'event file')} of TensorBoard")


def _is_of_run(name: str, more: Collection[str]) -> bool:
    return name != layout.CLAIM and (layout.is_of_run(name) or name in more)
