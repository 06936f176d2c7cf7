"""`--mode=log`: logs data of a run or a study that a logger does not have yet."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.core import console, layout, secrets, text
from runner.core.spelling import did_you_mean
from runner.errors import ConfigError, RunnerError
from runner.run_directory.loggers import feed


def names(given: str) -> list[str]:
    """Returns the loggers that `--to` names.

    Raises:
        ConfigError: it names no logger, or an unknown one.
    """
    found = [each.strip() for each in given.split(",") if each.strip()]
    known = ", ".join(feed.names())
    if not found:
        raise ConfigError(f"{{to}} is missing: where to log: {known}", to=None)
    for name in found:
        if name not in feed.names():
            raise ConfigError(
                f"{{to}}: {name} is not a logger; there are {known}"
                f"{did_you_mean(name, feed.names())}",
                to=given,
            )
    return list(dict.fromkeys(found))


def log(folder: Path, to: Sequence[str], *, dry_run: bool = False) -> dict[str, Any]:
    """Logs the missing data.

    Args:
        folder: The run's, or the study's.
        to: The loggers.
        dry_run: Only count the missing rows.

    Returns:
        For JSON: for each logger the number of logged rows, and the run's id.

    Raises:
        ConfigError: there is no run, or a library is not installed.
        RunnerError: a logger failed.
    """
    if not (layout.is_study(folder) or (folder / layout.PARAMS).exists()):
        wrong = layout.no_directory(folder) or "has neither a run nor a study"
        raise ConfigError(f"{{model_dir}} {wrong}", model_dir=str(folder))
    feed.check_installed(to, f"--to={','.join(to)}")
    logged: dict[str, Any] = {}
    for name in to:
        try:
            logged[name] = feed.all_of(folder, name, whole=True, rehearses=dry_run)
        except RunnerError as error:
            raise RunnerError(f"{name}: {error}") from error
        except Exception as error:
            said = secrets.masked(" ".join(str(error).split()))[:500]
            raise RunnerError(
                f"{name}: {type(error).__name__}: {said}\n"
                "sent rows are recorded; rerun the command to continue"
            ) from error
        rows = text.counted(logged[name]["rows"], "row")
        console.say(f"{name}: {rows} {'to log' if dry_run else 'logged'}")
    status = "rehearsed" if dry_run else "done"
    return {"status": status, "logged": logged, "model_dir": str(folder)}
