"""What the tools of this directory share: command lines, and processes that they watch."""

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
    """The parser of a tool with subcommands, whose help has a line about each."""
    return argparse.ArgumentParser(
        prog=f"python -m scripts.{tool}",
        description=(documentation or "").partition("\n\n")[0],
        formatter_class=functools.partial(argparse.HelpFormatter, width=100, max_help_position=20),
        allow_abbrev=False,
    )


def use_this_checkout() -> None:
    """Lets every Python process that is started from here import this checkout's packages."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def runner(mode: str = "", *flags: str) -> list[str]:
    """The command line of a mode, or of the runner alone, with this Python."""
    return [sys.executable, "-m", "runner", *([f"--mode={mode}"] if mode else []), *flags]


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used so far, on all cores."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(condition: Callable[[], object]) -> float:
    """Waits until a condition is true; returns the time then, of `time.monotonic`.

    Raises:
        TimeoutError: it is still false after five minutes.
    """
    end = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(condition)
        time.sleep(0.005)
    return time.monotonic()
