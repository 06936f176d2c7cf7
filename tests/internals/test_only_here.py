"""Private names of other libraries are used in `runner/internals` and nowhere else."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [
    path
    for folder in ("runner", "tasks")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path.parent != ROOT / "runner" / "internals"
]

# Not private, though they begin with an underscore: their documentation names them.
PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_exit"}
# Keras's hooks for those who write an optimizer.
PUBLIC |= {"_set_hyper", "_serialize_hyperparameter", "_prepare_local", "_use_locking"}
PRIVATE_MODULES = re.compile(r"(tensorflow|tensorflow_text)\.(python|core)\b|(tf_)?keras\.src\b")
FORMATS = re.compile(r"\.ATTRIBUTES|OPTIMIZER_SLOT|VARIABLE_VALUE|_CHECKPOINTABLE_OBJECT")
NAME = re.compile(r"_[a-zA-Z]\w*")


def is_private(name):
    return NAME.fullmatch(name) and not name.startswith("__") and name not in PUBLIC


def is_private_module(name):
    return PRIVATE_MODULES.match(name) or any(map(is_private, name.split(".")))


def own_names(tree):
    """What a file's classes and modules call their own: assigned, defined or annotated."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and of_self(node):
            yield node.attr


def of_self(node):
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


@pytest.fixture(scope="module")
def trees():
    return {path: ast.parse(path.read_text()) for path in FILES}


@pytest.fixture(scope="module")
def own(trees):
    """The own names of each file."""
    return {path: set(own_names(tree)) for path, tree in trees.items()}


def is_others(path, value, name, own):
    """Whether `value.name` is private, and not a name that our own classes have."""
    if not is_private(name):
        return False
    if ast.unparse(value) == "super()":
        return not any(name in names for other, names in own.items() if other != path)
    if ast.unparse(value) in ("self", "cls"):
        return not any(name in names for names in own.values())
    return name not in own[path]


def uses(path, tree, own):
    """What a file uses of others' private names, with its lines."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                bad = any(is_private_module(alias.name) for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                bad = any(is_private_module(f"{module}.{alias.name}") for alias in names)
            case ast.Attribute(value=value, attr=name):
                bad = is_others(path, value, name, own)
            case (
                ast.Call(
                    func=ast.Name("getattr" | "setattr" | "hasattr" | "delattr"),
                    args=[_, ast.Constant(str(name)), *_],
                )
                | ast.Subscript(slice=ast.Constant(str(name)))
            ):
                bad = is_private(name)
            case ast.Constant(str(text)):
                bad = FORMATS.search(text)
            case _:
                bad = False
        if bad:
            yield f"{node.lineno}: {ast.unparse(node)}"


def test_a_private_name_of_another_library_is_used_through_internals(trees, own):
    assert not [
        f"{path.relative_to(ROOT)}:{use}"
        for path, tree in trees.items()
        for use in uses(path, tree, own)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "from tensorflow.python.eager import context",
        "import tf_keras.src.backend",
        "x = optimizer._hyper",
        "atexit._run_exitfuncs()",
        "getattr(spec, '_value_specs', None)",
        "made = vars(config)['_restrictions']",
        "key = f'{name}/.ATTRIBUTES/VARIABLE_VALUE'",
        "class A(Base):\n    def f(self):\n        return self._keras_api_names",
        "class A(Base):\n    def _decayed_lr(self):\n        return super()._decayed_lr()",
    ],
)
def test_a_use_elsewhere_is_seen(line, own):
    path, tree = Path("new.py"), ast.parse(line)
    assert list(uses(path, tree, {**own, path: set(own_names(tree))}))
