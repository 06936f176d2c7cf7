"""Runs Model Garden's own training programs with their trainer and with this runner.

The programs are `official/vision/train.py` and `official/nlp/train.py`. To use the runner, only one
line changes: the import of `train_lib`. Both versions run the same small experiments. The script
then compares their return values and the files in their directories.
"""

import importlib
import re
import runpy
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import official
import tensorflow as tf
import yaml
from official.common import registry_imports  # noqa: F401, registers
from official.core import exp_factory

from scripts.model_garden.data import generate
from scripts.model_garden.forks import alone, forked
from scripts.model_garden.small import small

IMPORT = "from official.core import train_lib\n"
REPLACED = "import runner as train_lib\n"
SIDES = {"there": IMPORT, "here": REPLACED}
LIBRARIES = {IMPORT: "official.core.train_lib", REPLACED: "runner"}

PROGRAMS = {
    "seg_resnetfpn_pascal": "vision/train.py",
    "retinanet": "vision/train.py",
    "bert/pretraining": "nlp/train.py",
}
"""The program of each experiment: a segmentation, a detection and a pretraining."""

KINDS = {
    "file": "files and directories",
    "tag": "tags of scalars",
    "image": "tags of images",
    "log": "keys of returned logs",
    "checkpoint": "keys of checkpoints",
}
"""The first words of the lines of `described`, and their meaning."""

IMAGES = {"seg_resnetfpn_pascal", "retinanet"}
"""The experiments whose validation draws images."""

BEST = {"seg_resnetfpn_pascal": "mean_iou"}
"""The metric of the best checkpoint, for an experiment that keeps it."""

MODES = {"bert/pretraining": ("train_and_eval", "continuous_eval")}
"""The modes of an experiment's program, in order. By default, it trains and evaluates."""

DIFFERENCES = {
    r"file: ckpt-1\.\S+": (
        "Model Garden saves after the first loop as well. "
        "The runner saves at multiples of `checkpoint_interval` and at the end."
    ),
    r"file: best_ckpt/best_ckpt-\S+": (
        "The best checkpoint is called `ckpt-<step>`, like the checkpoint that it is. "
        "`tf.train.latest_checkpoint` finds it as before."
    ),
}
"""Patterns for lines of `described` that the runner does not write, with the reasons."""


def program(line: str, mode: str, name: str, file: Path, folder: Path) -> dict[str, Any]:
    """Runs an experiment's program, and describes its files and return values.

    Args:
        line: The line that imports `train_lib`.
        mode: The mode of the program.
        name: The experiment.
        file: The overrides of the experiment.
        folder: The directory of this mode. The run's directory is next to it.
    """
    source = Path(official.__path__[0], PROGRAMS[name]).read_text()
    assert source.count(IMPORT) == 1, f"{PROGRAMS[name]} has changed"
    path, model_dir = folder / "train.py", folder.parent / "run"
    path.write_text(source.replace(IMPORT, line))
    library: Any = importlib.import_module(LIBRARIES[line])
    logs: list[str] = []
    run_experiment = library.run_experiment

    def recorded(**arguments: Any) -> Any:
        model, returned = run_experiment(run_post_eval=True, **arguments)
        logs.extend(returned)
        return model, returned

    library.run_experiment = recorded
    flags = {"experiment": name, "mode": mode, "config_file": file, "model_dir": model_dir}
    _main(path, [f"--{flag}={value}" for flag, value in flags.items()])
    return {"lines": [*described(model_dir), *sorted(f"log: {mode}: {key}" for key in logs)]}


def _main(path: Path, arguments: list[str]) -> None:
    """Runs a program as the command line does."""
    sys.argv = [str(path), *arguments]
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as error:
        if error.code:
            raise


def described(folder: Path) -> list[str]:
    """Yields lines that name the files of a program's directory and their contents."""
    newest = tf.train.latest_checkpoint(folder)
    lines = {f"checkpoint: {name}" for name, _ in tf.train.list_variables(newest)}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if ".tfevents." in path.name:
            lines |= set(_tags(path, str(path.relative_to(folder).parent)))
            name = re.sub(r"events\.out\.tfevents\.\S+", "events", name)
        lines.add(f"file: {name}" + "/" * path.is_dir())
    return sorted(lines)


def _tags(path: Path, parent: str) -> list[str]:
    """Yields lines that name the tags in an event file."""
    lines = []
    for event in tf.compat.v1.train.summary_iterator(str(path)):
        for value in event.summary.value:
            is_image = value.HasField("image") or value.metadata.plugin_data.plugin_name == "images"
            lines.append(f"{'image' if is_image else 'tag'}: {parent}: {value.tag}")
    return lines


def run_programs(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns the results of each experiment's program by side: `there` or `here`."""
    data = folder / "data"
    if not data.exists():
        alone(lambda: generate(data))
    results = {}
    for name in PROGRAMS:
        plain = name.replace("/", "-")
        file = folder / f"{plain}.yaml"
        file.write_text(yaml.safe_dump(_overrides(name, data)))
        sides = {
            side: _side(line, name, file, folder / plain / side) for side, line in SIDES.items()
        }
        results[name] = sides
    return results


def missing(there: Sequence[str], here: Sequence[str]) -> dict[str, str]:
    """Returns the lines that only Model Garden has, with reasons. Unexpected ones have none."""
    reasons = {}
    for line in sorted(set(there) - set(here)):
        known = [why for what, why in DIFFERENCES.items() if re.fullmatch(what, line)]
        reasons[line] = known[0] if known else ""
    return reasons


def tables(results: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """Formats the comparison: how much each program wrote, and what is missing here."""
    counts = [
        "| experiment | program | compared | Model Garden | of these, the runner |",
        "|---|---|---|---|---|",
    ]
    absent: dict[str, str] = {}
    for name, sides in results.items():
        there, here = (sides[side]["lines"] for side in SIDES)
        absent |= missing(there, here)
        for kind, words in KINDS.items():
            lines = [line for line in there if line.startswith(f"{kind}: ")]
            if lines:
                kept = str(len(set(lines) & set(here)))
                row = (f"`{name}`", f"`official/{PROGRAMS[name]}`", words, str(len(lines)), kept)
                counts.append(f"| {' | '.join(row)} |")
    why = ["| not written by the runner | reason |", "|---|---|"]
    why += [f"| {line} | {reason} |" for line, reason in absent.items()]
    return [*counts, "", *why]


def _side(line: str, name: str, file: Path, folder: Path) -> dict[str, Any]:
    """Returns the lines of all modes of one experiment, or the first error."""
    lines: list[str] = []
    for mode in MODES.get(name, ("train_and_eval",)):
        result = forked(partial(program, line, mode), name, file, folder / mode)
        if "error" in result:
            return result
        lines = sorted({*lines, *result["lines"]})
    return {"lines": lines}


def _overrides(name: str, data: Path) -> dict[str, Any]:
    values = small(exp_factory.get_exp_config(name), data)
    values["trainer"]["continuous_eval_timeout"] = 1
    if name in IMAGES:
        values["task"]["allow_image_summary"] = True
    if name in BEST:
        values["trainer"]["best_checkpoint_export_subdir"] = "best_ckpt"
        values["trainer"]["best_checkpoint_eval_metric"] = BEST[name]
    return values
