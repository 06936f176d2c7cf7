"""The mode `report`: an HTML page about a run. No TensorFlow."""

import time
from collections.abc import Sequence
from pathlib import Path

from runner.core import console, files, layout, text
from runner.devices import garbage
from runner.errors import ConfigError
from runner.inspection import run_page, several_page
from runner.run_directory.run import Run, has_begun
from runner.runs.call import Results


def report(
    folder: Path, runs: Sequence[Path] = (), output: Path | None = None, *, watch: float = 0.0
) -> Results:
    """Writes the page once, or with `--watch` repeatedly until the run has ended.

    Args:
        folder: The directory of the run or the study.
        runs: Several runs to show on one page.
        output: The file to write, or None for one in the directory.
        watch: Seconds between updates, or 0 to write once.

    Raises:
        ConfigError: there is no run to report.
    """
    target = output or folder / layout.REPORT
    while True:
        began = time.perf_counter()
        refresh = int(watch)
        with garbage.uncollected():  # a search of all rows would find nothing
            if runs:
                html, ended = _several(runs, refresh=refresh)
            else:
                html, ended = _page(folder, refresh=refresh)
        files.write_text(target, html)
        seconds = time.perf_counter() - began
        if ended or not watch:
            break
        console.show(f"written: {target} ({text.size(len(html.encode()))}), at {_clock()}")
        time.sleep(watch)
    console.end(keep=False)
    size = len(html.encode())
    console.say(f"written: {target} ({text.size(size)})")
    return {"status": "done", "output": str(target), "bytes": size, "seconds": round(seconds, 2)}


def _page(folder: Path, *, refresh: int) -> tuple[str, bool]:
    """Returns the page about a directory, and whether its run or study has ended."""
    if layout.is_study(folder):
        from runner.inspection import study_page  # loads SciPy

        return study_page.render(folder, refresh=refresh)
    _check(folder)
    run = Run(folder, strict=False)
    ended = _has_ended(run)
    return run_page.render(run, refresh=0 if ended else refresh), ended


def _several(folders: Sequence[Path], *, refresh: int) -> tuple[str, bool]:
    """Returns the page about several runs, and whether all of them have ended."""
    for folder in folders:
        _check(folder, option="runs")
    runs = [Run(folder, strict=False) for folder in folders]
    ended = all(map(_has_ended, runs))
    return several_page.render(runs, refresh=0 if ended else refresh), ended


def _has_ended(run: Run) -> bool:
    return run.status is not None and run.status.is_final


def _check(folder: Path, *, option: str = "model_dir") -> None:
    """Raises ConfigError if there is no run in the directory."""
    if has_begun(folder):
        return
    if not (wrong := layout.no_directory(folder)):
        below = sorted(path for path in folder.iterdir() if path.is_dir() and has_begun(path))
        some = f"; there are runs in it: {text.some(list(map(str, below)))}" if below else ""
        wrong = f"has no run{some}"
    raise ConfigError(f"{{{option}}} {wrong}", **{option: str(folder)})


def _clock() -> str:
    return time.strftime("%H:%M:%S")
