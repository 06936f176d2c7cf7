"""Kills Keras scripts that train with `runner.fit`, and loads back and exports their models.

    python -m scripts.chaos keras_scripts --kills=50 --train=mnist.npz
    python -m scripts.chaos keras_scripts --names=digits_dense,two_inputs

Each script runs once undisturbed. In another directory it is killed at random moments, and started
again until it ends. The runs must have the same bits, the loaded models must have the weights of
the script's models, and each run must export.
"""

import argparse
import ast
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import nbformat

from runner.run_directory.verification import child_run, comparison
from scripts import processes
from scripts.keras_scripts import SCRIPTS, converted

NAMES = ("digits_dense", "mnist", "two_inputs", "custom_train_step", "notebook")
_MNIST = processes.ROOT / "experiments" / "results" / "mnist_convnet" / "train.py"
_MNIST_EPOCHS = 3
_NOTEBOOK = processes.ROOT / "docs" / "tutorials" / "keras_notebook.ipynb"
_EXECUTE = (
    "import nbformat, nbclient; nbclient.NotebookClient(nbformat.read('{}', 4), timeout=600)"
    ".execute()"
)
_BACK = """
import numpy as np
weights = {model}.get_weights()
try:
    loaded = runner.load_model("{folder}", "{checkpoint}")
except runner.errors.RunnerError:  # its layers cannot be built from a description
    {model}.set_weights([0 * weight for weight in weights])
    loaded = runner.load_model("{folder}", "{checkpoint}", model={model})
for ours, theirs in zip(loaded.get_weights(), weights, strict=True):
    np.testing.assert_array_equal(ours, theirs)
runner.run(None, "{folder}", "export", validation={data})
"""


def keras_scripts(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Kills each script, and prints a row for each. Returns the problems."""
    names = flags.names.split(",") if flags.names else list(NAMES)
    if not flags.train and "mnist" in names:
        names.remove("mnist")
        print("mnist is left out: --train=mnist.npz gives its images")
    chance = random.Random(flags.seed)
    kills = -(-flags.kills // len(names))
    wrong = []
    for name in names:
        start = time.monotonic()
        once, killed = (flags.folder / name / each for each in ("once", "killed"))
        _written(name, killed, flags.train)
        command = _written(name, once, flags.train)
        _finish(command, once)
        hits = [_kill(command, killed, once, chance) for _ in range(kills)]
        _finish(command, killed)
        problems = _differences(once, killed) + _back(name, command, killed)
        row = f"{name:24} {len([hit for hit in hits if hit])} kills at steps {hits}"
        print(f"{row}, {time.monotonic() - start:.0f} s: {problems or 'ok'}", flush=True)
        wrong += [f"{name}: {problem}" for problem in problems]
    return wrong


def _written(name: str, folder: Path, data: str | None) -> list[str]:
    """Writes a script with `runner.fit`, or the notebook. Returns the command that runs it."""
    folder.mkdir(parents=True, exist_ok=True)
    if name == "notebook":
        (folder / _NOTEBOOK.name).write_bytes(_NOTEBOOK.read_bytes())
        return [sys.executable, "-c", _EXECUTE.format(_NOTEBOOK.name)]
    path = folder / f"{name}.py"
    if name == "mnist":
        path.write_text(_MNIST.read_text())
        return [sys.executable, path.name, f"--data={data}", f"--epochs={_MNIST_EPOCHS}"]
    text = (SCRIPTS / f"{name}.py").read_text()
    path.write_text(converted(text, f"runs/{name}"))
    return [sys.executable, path.name]


def _started(command: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)


def _finish(command: Sequence[str], folder: Path) -> None:
    if _started(command, folder).wait():
        sys.exit(f"{' '.join(command)} failed, see {folder / 'log.txt'}")


def _kill(
    command: Sequence[str], folder: Path, once: Path, chance: random.Random
) -> tuple[int, ...]:
    """Runs the script up to a random moment, kills it, and returns the step of each of its runs.

    Most kills hit while it trains: the first rows after a random step, or up to a second later.
    """
    ends = {run.name: child_run.last_row(run) for run in _runs(once)}
    begun = sum(_steps(folder))
    aim = chance.randint(begun, max(sum(ends.values()) - 1, begun))
    process = _started(command, folder)
    pause = chance.choice((0.0, chance.uniform(0, 0.2), chance.uniform(0, 1)))
    if chance.random() < 0.2:  # while it starts
        time.sleep(chance.uniform(0, 6))
    else:
        while process.poll() is None and sum(_steps(folder)) <= aim:
            time.sleep(0.002)
        time.sleep(pause)
    for pid in (*_children(process.pid), process.pid):
        if process.poll() is None:
            os.kill(pid, signal.SIGKILL)
    process.wait()
    return _steps(folder)


def _children(pid: int) -> list[int]:
    """The processes that a process has started: a notebook's kernel."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def _runs(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("runs/*/train.jsonl"))


def _steps(folder: Path) -> tuple[int, ...]:
    return tuple(child_run.last_row(run) for run in _runs(folder))


def _differences(once: Path, killed: Path) -> list[str]:
    """Compares all runs of a script bit by bit."""
    if [run.name for run in _runs(once)] != [run.name for run in _runs(killed)]:
        return ["a run is missing"]
    return [
        f"{run.name}, {kind}: {part.differing} differ"
        for run in _runs(once)
        for kind, part in comparison.differing(
            comparison.compare(run, killed / run.relative_to(once))
        ).items()
    ]


def _back(name: str, command: Sequence[str], folder: Path) -> list[str]:
    """Runs the script again, which then loads back its model and exports it."""
    if name == "notebook":
        notebook = nbformat.read(folder / _NOTEBOOK.name, 4)
        more = _BACK.format(folder="runs/notebook", model="model", data="(x, y)", checkpoint="best")
        notebook.cells.append(nbformat.v4.new_code_cell(more))
        nbformat.write(notebook, folder / _NOTEBOOK.name)
    else:
        path = folder / f"{name}.py"
        text = path.read_text()
        last = _runs(folder)[-1].relative_to(folder)
        model, data = ("model", "(x, y)") if name == "mnist" else _trained(text)
        more = _BACK.format(folder=last, model=model, data=data, checkpoint="latest")
        if name == "mnist":  # the model is local to a function
            more = textwrap.indent(more, "    ")
            text = text.replace("    scored =", f"{more}    scored =")
        else:
            text += more
        path.write_text(text)
    process = _started(command, folder)
    return [f"loading back or exporting failed, see {folder / 'log.txt'}"] if process.wait() else []


def _trained(text: str) -> tuple[str, str]:
    """The model and the validation data, or else the training data, of the last `runner.fit`."""
    calls = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "runner.fit"
    ]
    call = max(calls, key=lambda call: call.lineno)
    model, *data = (ast.unparse(argument) for argument in call.args)
    named = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    return model, named.get("validation_data") or (f"({', '.join(data)})" if data[1:] else data[0])
