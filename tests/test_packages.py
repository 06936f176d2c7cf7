"""A package imports only from those below it; see docs/developers/architecture.md."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUNNER = ROOT / "runner"
OURS = ("runner", "tasks")
MODULES = ("runner.", "tasks")

# From the bottom up; each imports only from those before it.
PACKAGES = [
    "core", "internals", "storage", "configuration", "devices", "data", "models", "history",
    "checkpoints", "reporting", "run_directory", "evaluation", "training", "runs", "studies",
    "inspection", "launch", "command", "face",
]  # fmt: skip

# The face keeps its place, since gin files and stored configurations name it; these four are used
# from below, as if they were in these packages.
PUBLIC = {
    "errors": "core",
    "config": "configuration",
    "run_config": "configuration",
    "inputs": "data",
}

# What a task may use in addition to core, internals and models.
OPEN_TO_TASKS = (
    *("runner.inputs", "runner.errors"),
    *("runner.storage.urls", "runner.storage.data_copies"),
    *("runner.configuration.functions", "runner.configuration.settings"),
)

CORE = ("core", "internals", "models")

# What `runner --help`, a watcher of a folder and a report can use without TensorFlow.
WITHOUT_TENSORFLOW = [
    "runner",
    "runner.main",
    "runner.history.history",
    "runner.run_directory.status",
    "runner.run_directory.claim",
    "runner.run_directory.watch",
    "runner.run_directory.loggers.follow",
    "runner.storage.places",
    "runner.studies.publish",
    "runner.studies.pictures",
    "runner.inspection.rows",
    "runner.run_directory.run",
    "runner.inspection.report",
    "runner.launch.launchers",
]


def modules(folder):
    return [path for path in sorted(folder.rglob("*.py")) if path.stem != "__init__"]


def name(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@functools.cache
def tree(path):
    return ast.parse(path.read_text())


def is_module(dotted):
    path = ROOT / dotted.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def imported(path):
    """The modules of ours that a file imports, at its top or inside a function."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] in OURS:
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                yield inner if is_module(inner) else node.module
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith(MODULES))


def package(module):
    first, *rest = module.split(".")[1:]
    return first if rest else PUBLIC.get(first, "face")


def floor(module):
    return PACKAGES.index(package(module))


def imports(folder):
    """What each module of a folder imports: both names."""
    return [(name(path), each) for path in modules(folder) for each in imported(path)]


def test_a_package_imports_only_from_those_below_it():
    assert not [pair for pair in imports(RUNNER) if floor(pair[1]) > floor(pair[0])]


def test_no_two_modules_import_each_other():
    needs = {name(path): set(imported(path)) for path in modules(RUNNER)}

    def reaches(start, seen=()):
        for each in needs.get(start, ()):
            assert each not in seen, f"a circle: {' -> '.join([*seen, each])}"
            reaches(each, (*seen, each))

    for each in needs:
        reaches(each, (each,))


def test_a_task_knows_only_what_is_open_to_tasks():
    for module, each in imports(ROOT / "tasks"):
        if each.startswith("runner"):
            open_to_tasks = each in OPEN_TO_TASKS or package(each) in CORE
            assert open_to_tasks, f"{module} imports {each}"


def test_the_runner_never_imports_tasks():
    assert not [pair for pair in imports(RUNNER) if pair[1].startswith("tasks")]


def test_the_runner_has_no_name_of_a_task_to_import():
    for path in modules(RUNNER):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Constant) and str(node.value).startswith("tasks."):
                assert not is_module(node.value), f"{path}:{node.lineno}"


def test_only_a_few_modules_import_by_computed_names():
    computed = {
        name(path)
        for path in modules(RUNNER)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")
        and not isinstance(node.args[0], ast.Constant)
    }
    # The modules that gin files name, and Model Garden's experiments.
    assert computed == {
        "runner.core.plugins",  # the modes and the loggers
        "runner.models.copies",  # the layers of a stored model
        "runner.models.keras_optimizers",  # optimizers that a configuration stores
        "runner.configuration.gin_names",
        "runner.configuration.registry",
    }


def test_a_package_is_empty_so_that_importing_one_module_loads_no_other():
    for path in RUNNER.rglob("__init__.py"):
        assert path.parent == RUNNER or not path.read_text(), path


def test_no_test_imports_another():
    for path in modules(ROOT / "tests"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [each.name for each in node.names] + [getattr(node, "module", "") or ""]
                assert not [each for each in names if each.startswith("test_")], path


def test_some_modules_load_no_tensorflow():
    code = f"import sys, {', '.join(WITHOUT_TENSORFLOW)}; sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
