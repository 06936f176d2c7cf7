"""Writes tests/messages.txt: the messages of runner/ and tasks/ that users can see.

Run it after a message has been added or changed, and to resolve a conflict in the file.
tests/test_messages.py compares the file with the code. The diff of the file shows reviewers which
messages changed.

A message is a text in the source that has at least two words, or that is passed to an error or to
the console. Inserted values are shown by name, as in `{name} is missing`. Docstrings, texts in
templates, and texts of other libraries are not in the file.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "tests" / "messages.txt"
PACKAGES = ("runner", "tasks")
EXCLUDED = ROOT / "runner" / "command" / "projects"  # its subdirectories are copied to users

_PROSE = re.compile(r"[^\W\d_]{2,}[,:;.!?)'\"]*\s+[('\"`]*(?:[^\W\d_]{2,}|\{)|\}\s+[^\W\d_]{2,}")
_SHOWS = re.compile(r"(Error|Exit|say|announce|show|warn|warning|info|print)$")
_CODE = re.compile(r"^\s*(<\w|SELECT |#!|%[a-zA-Z]\b)|\\[sdwbSDW]|\(\?[:=!P<]|\w+\(\)\s*\{")


def render() -> str:
    """Returns the content of the file."""
    parts = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if EXCLUDED in path.parent.parents:
                continue
            if lines := list(messages(path.read_text(encoding="utf-8"))):
                parts.append("\n".join([f"{path.relative_to(ROOT)}", *lines]))
    return "\n\n".join(parts) + "\n"


def messages(source: str) -> Iterator[str]:
    """Yields the messages of a module, each on one indented line, in order of appearance."""
    seen = set()
    for text, is_shown in _texts(ast.parse(source), shown=False):
        if (is_shown and re.search(r"[^\W\d_]{2,}", text)) or _is_prose(text):
            line = "    " + text.strip().replace("\n", "\\n")
            if line not in seen:
                seen.add(line)
                yield line


def _is_prose(text: str) -> bool:
    return bool(_PROSE.search(text)) and not _CODE.search(text)


def _texts(node: ast.AST, *, shown: bool) -> Iterator[tuple[str, bool]]:
    """Yields the texts below a node, and whether each is passed to an error or to the console."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    parts = _parts(node)
    if parts is not None:
        yield "".join(part if isinstance(part, str) else _named(part) for part in parts), shown
        for part in parts:
            if isinstance(part, ast.AST):
                yield from _texts(part, shown=False)
        return
    if isinstance(node, ast.Call):
        yield from _texts(node.func, shown=False)
        shown = bool(_SHOWS.search(_name(node.func)))
        for argument in node.args:
            yield from _texts(argument, shown=shown)
        for keyword in node.keywords:
            yield from _texts(keyword.value, shown=False)
        return
    passed = shown and isinstance(node, ast.IfExp)
    for child in ast.iter_child_nodes(node):
        yield from _texts(child, shown=passed)


def _parts(node: ast.AST) -> list[str | ast.AST] | None:
    """Splits a text into constant parts and inserted expressions. None for other nodes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return [getattr(part, "value", "") for part in node.values]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _parts(node.left), _parts(node.right)
        if left is not None or right is not None:
            return [*(left or [node.left]), *(right or [node.right])]
    return None


def _named(node: ast.AST) -> str:
    """Formats an inserted value: `{name}`, or `{...}` if the expression has no obvious name."""
    return "{" + (_name(node) or "...") + "}"


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Call):
        inner = next((name for each in node.args if (name := _name(each))), "")
        return inner if inner and not _SHOWS.search(_name(node.func)) else _name(node.func)
    if isinstance(node, ast.Subscript | ast.Starred):
        return _name(node.value)
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        return _name(node.generators[0].iter)
    return ""


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
