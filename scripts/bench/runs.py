"""Measures `--mode=runs` and `--mode=compare` on many directories and on large runs.

Also measures commands that start without TensorFlow, and a report of a long run.
"""

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from scripts import processes
from scripts.bench import rounds, synthetic
from scripts.bench.comparison import Comparison

_DIFFER = 5  # the exit code


def runs(options: argparse.Namespace) -> Iterator[Comparison]:
    """Lists 1,000 and 10,000 runs, without and with a cache, and compares two large runs."""
    texts = synthetic.configuration()
    with tempfile.TemporaryDirectory() as scratch:
        for count, most in ((1000, 0.4), (10_000, 3)):
            folder = Path(scratch) / str(count)
            synthetic.write(folder, count, texts)
            tables = [_listed(folder) for _ in range(options.repeats)]
            what = f"`--mode=runs` over {count:,} directories, at most {most}"
            yield Comparison(what, "s", rounds.transposed(tables))
        long, large = Path(scratch) / "long", Path(scratch) / "large"
        synthetic.write(long, 2, texts, rows=50_000)
        synthetic.write(large, 2, texts)
        for run in large.glob("*/*"):
            synthetic.checkpoint(run)
        for what, folder in (("50,000 evaluations", long), ("checkpoints of 100 MB", large)):
            pair = [str(run) for run in sorted(folder.glob("*/*"))]
            seconds = [_seconds("compare", *pair) for _ in range(options.repeats)]
            yield Comparison(f"`--mode=compare` of two runs, {what}", "s", {"runner": seconds})


def commands(options: argparse.Namespace) -> Iterator[Comparison]:
    """Times short commands, and the report of a run with 100,000 training rows."""
    with tempfile.TemporaryDirectory() as scratch:
        synthetic.write(Path(scratch), 1, synthetic.configuration())
        (short,) = Path(scratch).glob("*/*")
        synthetic.write(Path(scratch, "long"), 1, synthetic.configuration(), rows=50_000)
        (long,) = Path(scratch, "long").glob("*/*")
        page = f"--output={scratch}/report.html"
        for what, most, mode, flags in (
            ("`--help`", 0.12, "", ["--help"]),
            ("`--mode=status` of a run", 0.15, "status", [f"--model_dir={short}"]),
            ("`--print_config`", 1.5, "", ["--print_config", "--gin_file=digits.gin"]),
            ("`--mode=report`, 100,000 rows", None, "report", [f"--model_dir={long}", page]),
        ):
            seconds = [_seconds(mode, *flags) for _ in range(options.repeats)]
            bound = f", at most {most}" if most else ""
            yield Comparison(f"{what}{bound}", "s", {"runner": seconds})


def _listed(folder: Path) -> dict[str, float]:
    """Returns the seconds to list the runs, with an empty cache and then again."""
    with tempfile.TemporaryDirectory() as cache:
        flags = (f"--model_dir={folder}", "--sort=-accuracy")
        condition = "--where=accuracy > 0.9 and seed == 1"
        file = f"--output={cache}/table.csv"
        return {
            "first": _seconds("runs", *flags, cache=cache),
            "again": _seconds("runs", *flags, cache=cache),
            "with a condition": _seconds("runs", *flags, condition, cache=cache),
            "to a file": _seconds("runs", *flags, file, cache=cache),
        }


def _seconds(mode: str, *arguments: str, cache: str = "") -> float:
    """Returns the duration of a command, with its own cache directory."""
    environment = {**os.environ, "XDG_CACHE_HOME": cache} if cache else None
    start = time.perf_counter()
    done = subprocess.run(
        processes.runner(mode, *arguments), env=environment, capture_output=True, text=True
    )
    if done.returncode not in (0, _DIFFER):
        raise RuntimeError(done.stderr)
    return time.perf_counter() - start
