"""Functions shared by the tools of this directory: command lines and watched processes."""

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
_DEADLINE_SECONDS = 300.0


def parser(tool: str, documentation: str | None) -> argparse.ArgumentParser:
    """Returns the parser of a tool with subcommands. The caller adds the subcommands."""
    return argparse.ArgumentParser(
        prog=f"python -m scripts.{tool}",
        description=(documentation or "").partition("\n\n")[0],
        formatter_class=functools.partial(argparse.HelpFormatter, width=100, max_help_position=20),
        allow_abbrev=False,
    )


def use_this_checkout() -> None:
    """Lets the Python processes that this one starts import the packages of this checkout."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def runner(mode: str = "", *flags: str) -> list[str]:
    """Returns the command line of a mode, or of the runner alone, with this Python."""
    return [sys.executable, "-m", "runner", *([f"--mode={mode}"] if mode else []), *flags]


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time that a process has used so far, on all cores."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(condition: Callable[[], object]) -> float:
    """Waits until a condition is true. Returns the value of `time.monotonic` at that time.

    Raises:
        TimeoutError: if it is still false after five minutes.
    """
    end = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(condition)
        time.sleep(0.005)
    return time.monotonic()
