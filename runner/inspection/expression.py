"""Expressions over the columns of a table, such as `accuracy > 0.9 and seed == 1`. No TensorFlow.

They use Python's syntax but are never run as Python: this module evaluates each allowed part. A
missing value is None, for which comparisons by size are false.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from runner.core import sizes
from runner.errors import ConfigError

Lookup = Callable[[str], Any]
"""Maps a name in an expression to a row's value, or None if it has none."""

_SIZES: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_CONSTANTS = {"true": True, "false": False, "null": None, "nan": float("nan"), "inf": float("inf")}
_LONGEST = 10_000


class Expression:
    """An expression.

    Args:
        text: The value of `--where`. Names are columns. `best.x` or `last["x/y"]` is a metric at an
            evaluation. Dotted names are configuration paths.

    Attributes:
        names: The names in it, in the order of their appearance.

    Raises:
        ConfigError: it is invalid, or has parts that are not allowed.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            if len(text) > _LONGEST:
                raise self._wrong(f"longer than {_LONGEST:,} characters")
            self._tree = ast.parse(text.strip(), mode="eval").body
            _check_depth(self._tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            said = getattr(error, "msg", None) or "cannot be read"
            said = error if isinstance(error, sizes.TooLargeError) else said
            raise self._wrong(str(said)) from None
        self.names: list[str] = []
        self._check(self._tree)

    def holds(self, lookup: Lookup) -> bool:
        """Returns whether it is true for a row."""
        return bool(self._value(self._tree, lookup))

    def _wrong(self, why: str) -> ConfigError:
        return ConfigError(
            f"--where={self._text[:200]!r}: {why}; expected comparisons such as "
            "accuracy > 0.9 and seed == 1"
        )

    def _check(self, node: ast.AST) -> None:
        """Collects the names, and rejects syntax that is not supported."""
        match node:
            case ast.Name() | ast.Attribute() | ast.Subscript():
                name = self._name(node)
                if name not in _CONSTANTS and name not in self.names:
                    self.names.append(name)
            case ast.Constant(value=value):
                if not isinstance(value, bool | int | float | str | None):
                    raise self._wrong(f"{value!r} has no meaning here")
            case ast.BoolOp(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
                for part in parts:
                    self._check(part)
            case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd(), operand=part):
                self._check(part)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                self._check(left)
                self._check(right)
            case ast.Compare(left=left, comparators=others):
                for part in (left, *others):
                    self._check(part)
            case _:
                raise self._wrong(f"{ast.unparse(node)[:80]!r} is not allowed")

    def _name(self, node: ast.AST) -> str:
        """Returns `best.accuracy` for `best.accuracy` and for `best["accuracy"]`."""
        match node:
            case ast.Name(id=name):
                return name
            case ast.Attribute(value=inner, attr=name):
                return f"{self._name(inner)}.{name}"
            case ast.Subscript(value=inner, slice=ast.Constant(value=str(name))):
                return f"{self._name(inner)}.{name}"
        raise self._wrong(f"{ast.unparse(node)[:80]!r} is not allowed")

    def _value(self, node: ast.AST, lookup: Lookup) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.BoolOp(op=ast.And(), values=parts):
                return all(self._value(part, lookup) for part in parts)
            case ast.BoolOp(values=parts):
                return any(self._value(part, lookup) for part in parts)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [self._value(part, lookup) for part in parts]
            case ast.UnaryOp(op=ast.Not(), operand=part):
                return not self._value(part, lookup)
            case ast.UnaryOp(op=op, operand=part):
                value = self._value(part, lookup)
                sign = -1 if isinstance(op, ast.USub) else 1
                return sign * value if isinstance(value, int | float) else None
            case ast.BinOp(left=left, op=op, right=right):
                both = self._value(left, lookup), self._value(right, lookup)
                return _computed(_ARITHMETIC[type(op)], *both)
            case ast.Compare(left=left, ops=ops, comparators=others):
                values = [self._value(part, lookup) for part in (left, *others)]
                pairs = zip(ops, values[:-1], values[1:], strict=True)
                return all(_compared(op, one, other) for op, one, other in pairs)
        name = self._name(node)
        return _CONSTANTS[name] if name in _CONSTANTS else lookup(name)


def _check_depth(tree: ast.AST) -> None:
    """Raises TooLargeError for a tree that is too deep to evaluate."""
    depth, level = 0, [tree]
    while level:
        sizes.check_depth(depth)
        depth, level = depth + 1, [part for node in level for part in ast.iter_child_nodes(node)]


def _computed(function: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    if not (isinstance(one, int | float) and isinstance(other, int | float)):
        return None
    try:
        return function(one, other)
    except ArithmeticError:
        return None


def _compared(op: ast.cmpop, one: Any, other: Any) -> bool:
    """Compares two values. Returns false if they cannot be compared."""
    if isinstance(op, ast.In | ast.NotIn):
        try:
            return (one in other) == isinstance(op, ast.In)
        except TypeError:
            return isinstance(op, ast.NotIn)
    if isinstance(op, ast.Eq | ast.Is):
        return bool(one == other)
    if isinstance(op, ast.NotEq | ast.IsNot):
        return bool(one != other)
    try:
        return bool(_SIZES[type(op)](one, other))
    except TypeError:
        return False
