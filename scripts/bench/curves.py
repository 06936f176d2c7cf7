"""Measures how the cost of a run grows with its evaluations, evaluation sets and parameters.

Each point is a run of digits.gin that is evaluated after each step. It ends after ten evaluations,
and is resumed for 20 more. All figures are those of the resumed run, so they include what the part
before has left. For more earlier evaluations, the rows of history.jsonl and train.jsonl are
multiplied, because 100,000 real ones would take half an hour. TensorBoard has no events for the
copies.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from runner.core import files, layout
from scripts import processes
from scripts.bench.comparison import Comparison

_EVALUATIONS = 10
_MORE = 20  # evaluations of the resumed run
_ALLOWED = ("--allow_config_change", "--allow_lost_history")  # rows and intervals change
_GIN = """
from __gin__ import dynamic_registration
from runner import run_config
from tasks.images import image_data
include 'digits.gin'
MLPConfig.dropout = 0.0
CosineLrConfig.decay_steps = 100000
TrainerConfig:
  steps_per_loop = 1
  summary_interval = 1
  validation_interval = 1
  checkpoint_interval = 1000000000
"""
_SET = """
{name}/EvaluationSetConfig.name = '{name}'
{name}/EvaluationSetConfig.data = @{name}/image_data.ImageData()
{name}/ImageData.is_training = False
{name}/ImageData.global_batch_size = 360
"""
QUANTITIES = {
    "first step": "s",
    "training": "steps/s",
    "an evaluation": "ms",
    "peak of memory": "MiB",
    "directory": "MB",
}


def curves(options: argparse.Namespace) -> Iterator[Comparison]:
    """Measures all points, and draws them if `--plot` names a file."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for what, points in (
        ("evaluations", (10, 1_000, 100_000)),
        ("evaluation sets", (1, 4, 16, 64)),
        ("parameters", (10**3, 10**4, 10**5, 10**6, 10**7, 10**8)),
    ):
        found[what] = {}
        for point in points:
            if point > options.most:
                continue
            measured = found[what][point] = _measured(what, point)
            figures = {f"{name}, {QUANTITIES[name]}": [value] for name, value in measured.items()}
            yield Comparison(f"{point:,} {what}", "", figures)
            if options.plot:
                _draw(found, options.plot)


def _measured(what: str, point: int) -> dict[str, float]:
    """Trains and resumes a run. Returns the quantities of the resumed run."""
    text, before = _GIN, _EVALUATIONS
    if what == "evaluations":
        before = point
    elif what == "evaluation sets":
        names = [f"set{number}" for number in range(1, point)]
        text += "".join(_SET.format(name=name) for name in names)
        made = "".join(f"@{name}/run_config.EvaluationSetConfig(), " for name in names)
        text += f"RunConfig.evaluation_sets = ({made})\n"
    else:  # 64 inputs, two layers of this width, and ten classes
        width = round((-76 + (76**2 + 4 * (point - 10)) ** 0.5) / 2)
        text += f"MLPConfig.hidden = ({width}, {width})\n"
    with tempfile.TemporaryDirectory() as scratch:
        folder, gin_file = Path(scratch, "run"), Path(scratch, "run.gin")
        gin_file.write_text(text)
        rare = max(before // _EVALUATIONS, 1)
        _train(folder, gin_file, before, f"--gin.TrainerConfig.validation_interval={rare}")
        for name in (layout.HISTORY, layout.TRAINING_ROWS):
            _fill(folder / name)
        return _train(folder, gin_file, before + _MORE, *_ALLOWED)


def _fill(path: Path) -> None:
    """Adds a copy of the next row for each step without one."""
    rows, filled = files.read_json_lines(path), list[str]()
    for row in rows:
        for step in range(len(filled) + 1, row["step"] + 1):
            own = {"checkpoint": f"ckpt-{step}"} if "checkpoint" in row else {}
            filled.append(json.dumps({**row, "step": step, **own}) + "\n")
    path.write_text("".join(filled))


def _train(folder: Path, gin_file: Path, steps: int, *flags: str) -> dict[str, float]:
    """Trains up to a step, and returns the quantities of this part."""
    command = processes.runner(
        "train_and_eval",
        f"--gin_file={gin_file}",
        f"--gin.TrainerConfig.train_steps={steps}",
        f"--model_dir={folder}",
        *flags,
    )
    rows = folder / layout.TRAINING_ROWS
    before, log = _size(rows), folder.with_suffix(".log")
    began, first, ended = time.perf_counter(), 0.0, 0
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        while not ended:
            time.sleep(0.002)
            if not first and _size(rows) > before:
                first = time.perf_counter() - began
            ended, code, usage = os.wait4(process.pid, os.WNOHANG)
        process.returncode = os.waitstatus_to_exitcode(code)
    if process.returncode:
        raise RuntimeError(log.read_text()[-2000:])
    trained = files.last_json_lines(rows)[-_MORE:]
    evaluated = files.last_json_lines(folder / layout.HISTORY)[-_MORE:]
    every = [each for each in folder.rglob("*") if each.is_file()]
    figures = (
        first,
        statistics.median(row["steps_per_second"] for row in trained),
        1000 * statistics.median(row["seconds"] for row in evaluated),
        usage.ru_maxrss / 1024,
        sum(map(_size, every)) / 1e6,
    )
    return dict(zip(QUANTITIES, figures, strict=True))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _draw(found: dict[str, dict[int, dict[str, float]]], path: Path) -> None:
    """Draws a plot for each quantity and each thing that grows, with logarithmic axes."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    size = (3 * len(found), 2 * len(QUANTITIES))
    figure, rows = pyplot.subplots(len(QUANTITIES), len(found), figsize=size, squeeze=False)
    for (name, unit), row in zip(QUANTITIES.items(), rows, strict=True):
        for (what, points), axes in zip(found.items(), row, strict=True):
            values = [point[name] for point in points.values()]
            axes.loglog([*points], values, marker="o", markersize=3)
            axes.set_ylim(min(values) / 3, max(values) * 3)
            axes.set_xlabel(what)
            axes.set_ylabel(f"{name}, {unit}")
            axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
