"""Extracts what help shows about the config classes in a Python file, without running it.

Types, defaults and meanings are shown as written in the file. Therefore help for a user's task
takes milliseconds, although importing the task would load TensorFlow.
"""

import ast
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from runner.command.help import docstrings
from runner.command.help.facts import FieldHelp, Section


def find(module: str, folders: Iterable[Path]) -> Path | None:
    """Finds the file of a module in `folders` and on Python's path, without importing it."""
    top, *below = module.split(".")
    roots = [folder / top for folder in folders]
    if not any(root.exists() or root.with_suffix(".py").exists() for root in roots):
        roots = list(_roots(top))
    for root in roots:
        path = root.joinpath(*below)
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file
    return None


def sections(file: Path, module: str, known: Sequence[Section]) -> list[Section]:
    """Returns the dataclasses that a file defines.

    Args:
        file: A Python file. If it cannot be parsed, it defines none.
        module: Its name.
        known: Other config classes, for the fields of base classes.
    """
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return []
    found: list[Section] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and _is_dataclass(node):
            found.append(_section(node, module, [*reversed(found), *known]))
    return found


def _roots(top: str) -> Iterator[Path]:
    """Yields the paths where a top-level module is or would be."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return
    if spec is None:
        return
    if spec.origin and spec.submodule_search_locations is None:
        yield Path(spec.origin).with_suffix("")
    yield from map(Path, spec.submodule_search_locations or ())


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(each) for each in node.decorator_list)


def _section(node: ast.ClassDef, module: str, known: Sequence[Section]) -> Section:
    text = ast.get_docstring(node) or ""
    meanings = docstrings.attributes(text)
    fields: dict[str, FieldHelp] = {}
    for base in node.bases:
        for field in _base(ast.unparse(base), known):
            fields[field.field] = field._replace(is_own=False)
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            field = _field(line.target.id, line)
            meaning = meanings.get(field.field) or field.meaning
            fields[field.field] = field._replace(meaning=meaning)
    return Section(node.name, module, "", docstrings.summary(text, node.name), (*fields.values(),))


def _base(name: str, known: Sequence[Section]) -> tuple[FieldHelp, ...]:
    """Returns the fields of a base class as written: `cfg.TaskConfig`, `inputs.DataConfig`."""
    *modules, short = name.split(".")
    named = [each for each in known if each.name == short]
    ends = [each for each in named if modules and each.module.endswith(modules[-1])]
    return next((each.fields for each in [*ends, *named]), ())


def _field(name: str, line: ast.AnnAssign) -> FieldHelp:
    default, meaning = _default(line.value)
    return FieldHelp(name, _type(line.annotation), default, meaning)


def _type(node: ast.expr) -> str:
    """Formats an annotation in words if it is a simple one: `str or None`."""
    match node:
        case ast.Constant(value=str(text)):
            return _type(ast.parse(text, mode="eval").body)
        case ast.BinOp(left, ast.BitOr(), right):
            return f"{_type(left)} or {_type(right)}"
        case ast.Subscript(ast.Name("Optional") | ast.Attribute(attr="Optional"), inner):
            return f"{_type(inner)} or None"
        case ast.Attribute(attr=name):
            return name
    return ast.unparse(node)


def _default(node: ast.expr | None) -> tuple[str, str]:
    """Returns the default, and the meaning if it is given by `setting`."""
    if not isinstance(node, ast.Call):
        return (ast.unparse(node) if node else "", "")
    function = ast.unparse(node.func).rpartition(".")[2]
    given = {each.arg: each.value for each in node.keywords}
    if function == "setting" and node.args:
        meaning = node.args[1] if len(node.args) > 1 else given.get("help")
        text = ast.literal_eval(meaning) if isinstance(meaning, ast.Constant) else ""
        return ast.unparse(node.args[0]), str(text)
    if function == "field":
        if "default" in given:
            return ast.unparse(given["default"]), ""
        return _made(given.get("default_factory")), ""
    return ast.unparse(node), ""


def _made(factory: ast.expr | None) -> str:
    """Describes the result of a default factory: `DataConfig()`."""
    match factory:
        case None:
            return ""
        case ast.Lambda(body=body):
            return ast.unparse(body)
        case ast.Attribute(attr=name):
            return f"{name}()"
    return f"{ast.unparse(factory)}()"
