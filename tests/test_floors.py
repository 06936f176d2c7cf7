"""A file imports only from lower floors; see "How it is built" in the README."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

FLOORS = [
    {
        "errors", "files", "spelling", "installation", "heartbeat", "claim_file", "user_code",
        "secrets", "layout", "closing",
    },
    {
        "config", "run_config", "gin_build", "gin_tree", "gin_bindings", "gin_names", "gin_files",
        "gin_text", "yaml_files", "overriding", "registered", "config_text", "unread", "run_record",
        "typecheck", "sections", "rules", "retention", "limits", "official_limits", "run_limits",
        "epochs", "schedules", "changes", "harmless", "claim", "inputs", "records", "columns",
        "history", "table", "status", "watch", "strategy", "signals", "progress", "overview",
        "flops", "products", "loops", "shuffling", "background", "waiting", "utilization", "xla",
        "cross_entropy", "functions",
    },
    {
        "optimizer", "evaluator", "trainer", "placement", "memory", "exactness", "checkpoints",
        "controller", "decisions", "divergence", "actions", "evaluation", "tensors", "comparison",
        "causes", "checkpoint_files", "restoring", "matching", "best", "spool", "pending",
        "initialization", "starts", "batches", "evaluation_sets", "watched_metrics", "selection",
        "final_test", "boards", "hparams", "profiling", "variable_groups", "accumulation",
        "gradients", "stepping", "averages", "contract",
    },
    {"build", "training", "sidecar", "folder"},
    {"modes", "resumption", "rehearsal", "model_garden", "endings"},
    {"flags", "main", "__main__", "__init__"},
]  # fmt: skip

# What `runner --help`, a watcher of a folder and a report can use without TensorFlow.
WITHOUT_TENSORFLOW = [
    "runner",
    "runner.main",
    "runner.history",
    "runner.status",
    "runner.claim",
    "runner.watch",
]


def imported(path):
    """The modules of the runner that a file imports, at its top or inside a function."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[0] in ("runner", "tasks"):
                names |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return names


def floor(name):
    return next(number for number, names in enumerate(FLOORS) if name in names)


@pytest.mark.parametrize("path", sorted((ROOT / "runner").glob("*.py")), ids=lambda p: p.stem)
def test_a_file_imports_only_from_its_own_floor_or_below(path):
    if path.stem == "__init__":
        return  # lazily reaches everything
    for name in imported(path):
        assert floor(name) <= floor(path.stem), f"{path.name} imports {name}"


def test_no_two_files_import_each_other():
    needs = {path.stem: imported(path) for path in (ROOT / "runner").glob("*.py")}
    needs.pop("__init__")

    def reaches(start, seen=()):
        for name in needs.get(start, ()):
            assert name not in seen, f"a circle: {' -> '.join([*seen, name])}"
            reaches(name, (*seen, name))

    for name in needs:
        reaches(name, (name,))


@pytest.mark.parametrize("path", sorted((ROOT / "tasks").rglob("*.py")), ids=lambda p: p.stem)
def test_a_task_knows_only_the_inputs_and_errors_of_the_runner(path):
    neighbours = {other.stem for other in (ROOT / "tasks").rglob("*")}
    assert imported(path) <= {"inputs", "errors"} | neighbours


def test_the_runner_never_imports_tasks():
    for path in (ROOT / "runner").glob("*.py"):
        assert "tasks" not in {
            node.module.split(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom) and node.module
        }


def test_some_modules_load_no_tensorflow():
    code = f"import sys, {', '.join(WITHOUT_TENSORFLOW)}; sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
