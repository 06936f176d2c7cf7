"""The mode `status`: the progress of a run, a study or a directory of runs on any machine.

No TensorFlow.
"""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

from runner.core import console, layout, streams, text
from runner.errors import ConfigError
from runner.history import records
from runner.inspection import outcome, progress, runs_table, timeline
from runner.inspection.progress import Line, Study
from runner.reporting import table
from runner.run_directory import goodput, pulse, supervised
from runner.run_directory.run import Run, has_begun
from runner.run_directory.state import ACTIVE
from runner.runs.call import Results
from runner.storage import display_names

_LOOK_SECONDS = 0.5
_MOST = 200  # lines on a terminal
_LONGEST_REASON = 60  # characters
_HEAD = ("run", "state", "step", "steps/s", "left", "heartbeat", "attempts", "workers", "host", "")


def status(root: Path, watch: float = 0.0) -> Results:
    """Shows the progress of the runs, with `--watch` until all have ended or stderr is closed.

    Raises:
        ConfigError: there are none.
    """
    board = progress.Board(root)
    lines = _found(board, root)
    if not watch:
        _settle(board, lines)
        lines = _found(board, root)
    while watch and streams.has_reader(2):
        if all(each.state not in progress.UNFINISHED for each in lines):
            break
        console.show("\n".join(_shown(lines, is_one=_is_one(root))))
        time.sleep(watch)
        lines = _found(board, root)
    console.end(keep=False)
    if _is_one(root):
        return _one(root, lines[0])
    console.say("\n".join(_shown(lines)))
    return _several(root, lines)


def _is_one(root: Path) -> bool:
    """Returns whether the directory is that of a run, and not of a study."""
    return has_begun(root) and not layout.is_study(root)


def _found(board: progress.Board, root: Path) -> list[Line]:
    lines = board.look()
    if _is_one(root):
        lines = [each for each in lines if each.row.folder == root]
    if not lines:
        raise ConfigError("{model_dir} has no run", model_dir=str(root))
    return lines


def _settle(board: progress.Board, lines: Sequence[Line]) -> None:
    """Waits until each remote process has sent a heartbeat, or would have."""
    end = time.monotonic() + pulse.PATIENCE_SECONDS
    unknown = [each.row for each in lines if each.sign and not each.sign.is_known]
    if unknown and console.STDERR.is_live:
        names = dict.fromkeys(row.host or row.name for row in unknown)
        console.show(f"waiting for a heartbeat from {text.some(list(names))} ...")
    while not board.is_settled and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)


def _one(folder: Path, line: Line) -> Results:
    """Shows one run in full, including its metrics and its time breakdown."""
    run = Run(folder, strict=False)
    console.say(outcome.sentence(run))
    console.say("\n".join([*_shown([line], is_one=True), *supervised.lines(run.workers)]))
    if found := outcome.results(run):
        shown = [found["head"], *found["rows"][:12]]
        console.say("\n".join(table.aligned(shown, left=1, width=console.STDERR.width)))
    for row in run.corruptions:
        console.say(f"the hardware may be faulty: {row.reason}")
    if run.not_exact:
        console.say(f"not bit-exact: {run.not_exact}")
    if run.time.parts:
        console.say("\n".join(goodput.lines(run.time)))
    for problem in run.problems:
        console.say(display_names.in_text(problem))
    last, best = run.last, run.best
    return {
        "status": line.state,
        **line.figures,
        "metrics": records.plain(last.metrics) if last else {},
        "best": {"step": best.step, "metrics": records.plain(best.metrics)} if best else None,
        "corruptions": [row.found for row in run.corruptions],
        "not_exact": run.not_exact,
        "goodput": run.time.as_dict(),
        "workers": run.workers,
        "model_dir": str(run.directory),
    }


def _several(root: Path, lines: Sequence[Line]) -> Results:
    active = [each for each in lines if each.state in ACTIVE]
    jobs = {each.row.name: each.job for each in lines if not each.ended}
    waiting = {name: job for name, job in jobs.items() if job and not job.has_begun}
    return {
        "status": "running" if active else "waiting" if waiting else "done",
        "runs": len(lines),
        "states": progress.counts(lines),
        "active": [
            {"run": each.row.name, "state": each.state, **each.figures, "workers": each.workers}
            for each in active
        ],
        "submitted": [{"run": run, **dataclasses.asdict(job)} for run, job in waiting.items()],
        "studies": [each.as_dict() for each in progress.studies(lines)],
        "model_dir": str(root),
    }


def _shown(lines: Sequence[Line], *, is_one: bool = False) -> list[str]:
    """Formats a line for each study and each run. Only active trials are included."""
    studies = [] if is_one else progress.studies(lines)
    active = [each for each in lines if each.state in ACTIVE]
    others = [each for each in lines if each not in active and (is_one or not each.row.study)]
    runs = [*active, *others]
    shown = [_study(each) for each in studies]
    if runs:
        most = _MOST if console.STDERR.is_live else len(runs)
        cells = [_HEAD, *(_cells(each) for each in runs[:most])]
        used = [n for n in range(len(_HEAD)) if any(row[n] not in ("", "-") for row in cells[1:])]
        width = console.STDERR.width
        shown += table.aligned([[row[n] for n in used] for row in cells], left=2, width=width)
        shown += [f"and {len(runs) - most:,} more"] if len(runs) > most else []
    return shown


def _study(study: Study) -> str:
    """Formats `rate: 40 trials: 10 done, 2 running, 28 waiting; about 1:20:00 left`."""
    states = ", ".join(f"{count:,} {state}" for state, count in study.states.items())
    left = f"; about {text.duration(study.left)} left" if study.left is not None else ""
    return f"{study.name}: {text.counted(len(study.trials), 'trial')}: {states}{left}"


def _cells(line: Line) -> list[str]:
    row, end = line.row, line.end
    of = f" of {end:,}" if end and line.step < end else ""
    why = row.reason if len(row.reason) <= _LONGEST_REASON else f"{row.reason[:_LONGEST_REASON]}..."
    return [
        row.name,
        line.state,
        f"{line.step:,}{of}",
        runs_table.pace(row.rate),
        "-" if line.left is None else text.duration(line.left),
        _sign(line),
        f"{row.starts:,}",
        f"{line.workers:,}" if line.workers > 1 else "-",
        row.host or "-",
        why if line.state not in ACTIVE else "",
    ]


def _sign(line: Line) -> str:
    """Formats the last heartbeat: `2 s ago`, `none for 12 s`, or the time of the end."""
    if line.sign is None:
        return "-" if line.ended is None else timeline.stamp(line.ended)
    seconds = line.sign.seconds
    since = f"{seconds:.0f} s" if seconds < 59.5 else text.duration(seconds)
    if line.sign.is_known:
        return f"{since} ago"
    return f"none for {since}" if seconds >= pulse.PATIENCE_SECONDS else "-"
