"""The parameters of classes and functions, and checks of values against their annotations."""

import collections.abc
import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

from runner.configuration import functions
from runner.configuration.functions import FunctionConfig
from runner.core import spelling, text

# Values that Model Garden assigns, or its builders take, for fields with other annotations.
_DOCUMENTED = {
    "continuous_eval_timeout": int | None,
    "global_clipnorm": float | None,
    "include_in_weight_decay": list[str] | str | None,
    "exclude_from_weight_decay": list[str] | str | None,
    "input_size": list[int | None],
    "sentencepiece_model_path": str | None,
}
# Every Model Garden Config's constructor takes these, which would bypass all checks.
_INHERITED = ("default_params", "restrictions")
_NO_DEFAULT = (inspect.Parameter.empty, dataclasses.MISSING)
_BEYOND = 2**63  # beyond what TensorFlow and files of numbers can hold
_HALF = re.compile(r"[\ud800-\udfff]")  # half of a UTF-16 surrogate pair, which no file can hold
_SEQUENCES = (list, tuple, collections.abc.Sequence, collections.abc.Iterable)


class MismatchError(Exception):
    """A value that its annotation does not allow. The message describes what was expected."""


@dataclasses.dataclass(frozen=True)
class Pending:
    """A placeholder for a future value. Only its type can be checked, if it is known.

    Attributes:
        produces: The type of the future value, or None if unknown.
        called: False if the value is the class or function itself.
        is_class: Whether it is a class, not a function.
        by_name: The path at which the config that replaces it names the class or function (see
            `functions.named_in`). None if the value itself is meant.
    """

    produces: type | None
    called: bool
    is_class: bool = False
    by_name: tuple[str, ...] | None = dataclasses.field(default=None, kw_only=True)


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter's annotation, and whether it is required."""

    hint: Any
    required: bool


def parameters(target: Callable[..., Any]) -> dict[str, Parameter]:
    """Returns the parameters of a class or function by name, where `**` accepts any other.

    A default that violates its own annotation widens the annotation, because that is not the user's
    mistake.
    """
    hints = type_hints(target)
    fields = dataclasses.fields(target) if dataclasses.is_dataclass(target) else ()
    defaults = {field.name: field.default for field in fields}
    found = {}
    for name, each in inspect.signature(target).parameters.items():
        if each.kind is each.VAR_KEYWORD:
            found["**"] = Parameter(Any, required=False)
        elif each.kind is not each.VAR_POSITIONAL and name not in _INHERITED:
            hint = _widened(hints.get(name, Any), defaults.get(name, each.default))
            found[name] = Parameter(hint, required=each.default is each.empty)
    return found


def type_hints(target: Callable[..., Any]) -> dict[str, Any]:
    """Returns the annotations of a class's fields or of its constructor, or of a function.

    If a name in them cannot be resolved, the result is {}.
    """
    if inspect.isclass(target) and not dataclasses.is_dataclass(target):
        target = target.__init__
    try:
        hints = typing.get_type_hints(target)
    except (NameError, AttributeError, TypeError):
        return {}
    return hints | {name: hint for name, hint in _DOCUMENTED.items() if name in hints}


def convert(value: Any, hint: Any) -> Any:
    """Converts `value` to the annotation `hint`: 1e3 may be an int, 1 a float, a list a tuple.

    A dict for a config class is checked against the class's fields. Annotations that are not types
    (a type variable, an unresolved name) allow any value.

    Raises:
        MismatchError: if the annotation does not allow the value.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return convert(value, arguments[0])
    if isinstance(hint, dataclasses.InitVar):
        return convert(value, hint.type)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(value, hint)
    if origin is typing.Literal:
        if value in arguments:
            return value
        raise _mismatch(value, hint)
    expected = origin or (type(None) if hint is None else hint)
    if not isinstance(expected, type) or expected in (Any, object):
        return value
    if isinstance(value, Pending):
        return _check_pending(value, expected, hint)
    if expected in _SEQUENCES and isinstance(value, (list, tuple)):
        return _convert_sequence(value, hint, expected, arguments)
    if isinstance(value, dict) and dataclasses.is_dataclass(expected):
        return _convert_fields(value, expected)
    return _convert_plain(value, expected, hint)


def describe(hint: Any) -> str:
    """Returns the annotation in words: `int`, `float or None`, `list of int`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe(argument) for argument in arguments)
    if origin is typing.Literal:
        return " or ".join(repr(argument) for argument in arguments)
    if hint in (None, type(None)):
        return "None"
    if hint is FunctionConfig:
        return "a function (in gin @module.name, in YAML {name: module.name})"
    if origin and arguments and origin in _SEQUENCES:
        items = arguments[:1] if arguments[-1] is ... else tuple(dict.fromkeys(arguments))
        return f"{origin.__name__.lower()} of {' and '.join(describe(item) for item in items)}"
    return getattr(hint, "__name__", str(hint))


def is_text(hint: Any) -> bool:
    """Returns whether an annotation names `str`, and no other type that is written as one word."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    kinds = typing.get_args(hint) if is_union else (hint,)
    others = (each for each in kinds if each not in (str, None, type(None)))
    return str in kinds and all(
        dataclasses.is_dataclass(each) or typing.get_origin(each) in _SEQUENCES for each in others
    )


def may_be_text(hint: Any) -> bool:
    """Returns whether an annotation allows some strings, which all non-types do."""
    try:
        convert("", hint)
    except MismatchError:
        return typing.Literal in (
            typing.get_origin(each) for each in (hint, *typing.get_args(hint))
        )
    return True


def classes(hint: Any) -> Iterable[type]:
    """Yields the classes that an annotation names, including those in unions and sequences."""
    if isinstance(hint, type) and not typing.get_args(hint):
        yield hint
    for argument in typing.get_args(hint):
        yield from classes(argument)


def _widened(hint: Any, default: Any) -> Any:
    if any(default is nothing for nothing in _NO_DEFAULT):
        return hint
    try:
        convert(default, hint)
    except MismatchError:
        return typing.Union[hint, type(default)]  # noqa: UP007, since a hint may be no type.
    return hint


def _mismatch(value: Any, hint: Any) -> MismatchError:
    got = repr(value) if value is None else f"{type(value).__name__} {text.quoted(value, 200)}"
    return MismatchError(f"expected {describe(hint)}, got {got}")


def _convert_union(value: Any, hint: Any) -> Any:
    """Prefers a member that accepts the value unchanged to one that would convert it."""
    converted = []
    for member in typing.get_args(hint):
        try:
            converted.append(convert(value, member))
        except MismatchError:
            continue
    if not converted:
        raise _mismatch(value, hint) if not isinstance(value, Pending) else _pending(value, hint)
    return next((each for each in converted if type(each) is type(value)), converted[0])


def _pending(value: Pending, hint: Any) -> MismatchError:
    if value.called and any(functions.named_in(kind) is not None for kind in classes(hint)):
        return MismatchError(f"{value} calls it; {str(value).removesuffix('()')} names it")
    if not value.called:
        return MismatchError(f"{value} is the class itself; {value}() builds it")
    wanted, got = describe(hint), str(value)
    if value.produces is not None and value.produces.__name__ == wanted:  # two modules define it
        wanted, got = f"{hint.__module__}.{wanted}", f"{got} of {value.produces.__module__}"
    return MismatchError(f"expected {wanted}, got {got}")


def _check_pending(value: Pending, expected: type, hint: Any) -> Pending:
    where = functions.named_in(expected)
    builds = value.produces is not None and issubclass(value.produces, expected)
    if where is not None and (value.is_class or not value.called) and not builds:
        return dataclasses.replace(value, by_name=where)
    if not value.called:
        fits = expected in (type, collections.abc.Callable)
    else:
        unknown = where is None and expected is not type(None)  # it need not be built
        fits = unknown if value.produces is None else issubclass(value.produces, expected)
    if not fits:
        raise _pending(value, hint)
    return value


def _convert_sequence(value: Any, hint: Any, expected: type, arguments: tuple[Any, ...]) -> Any:
    fixed = expected is tuple and arguments and arguments[-1] is not ...
    if fixed and len(value) != len(arguments):
        raise MismatchError(
            f"expected {len(arguments)} values, got {len(value)}: {text.quoted(value)}"
        )
    item_hints = arguments if fixed else (arguments[0] if arguments else Any,) * len(value)
    try:
        items = [convert(item, each) for item, each in zip(value, item_hints, strict=True)]
    except MismatchError as error:
        within = text.quoted(value, 200)
        raise MismatchError(f"expected {describe(hint)}; in {within}: {error}") from None
    links = {item.by_name is None for item in items if isinstance(item, Pending)}
    if len(links) > 1:  # Model Garden takes configs or dicts, but not both
        raise MismatchError(f"give all of {describe(hint)} in one way, not {text.quoted(value)}")
    return expected(items) if expected in (list, tuple) else type(value)(items)


def _convert_fields(value: dict[str, Any], expected: type) -> dict[str, Any]:
    """Checks a dict for a config class. A class without fields accepts any dict."""
    known = {field.name for field in dataclasses.fields(expected)}
    hints = type_hints(expected)
    for name in value if known else ():
        if name not in known:
            raise MismatchError(
                f"{expected.__name__} has no {text.quoted(name)}"
                f"{spelling.did_you_mean(str(name), known)}"
            )
    return {name: convert(item, hints.get(name, Any)) for name, item in value.items()}


def _convert_plain(value: Any, expected: type, hint: Any) -> Any:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and not -_BEYOND < value < _BEYOND and (expected is int or isinstance(value, int)):
        raise MismatchError(f"expected {describe(hint)} below 2^63, got {text.quoted(value)}")
    if isinstance(value, str) and _HALF.search(value):
        raise MismatchError(f"expected valid Unicode, got str {text.quoted(value)}")
    if expected is float and number:
        return float(value)
    if expected is int and number and float(value).is_integer():
        return int(value)
    if isinstance(value, expected) and not (isinstance(value, bool) and expected is int):
        return value
    raise _mismatch(value, hint)
