"""The resolved configurations of many runs: read fast, looked into by path, compared.

Runs have most of their configuration in common. What is equal as text is parsed once, and is one
object in all of them, so a comparison skips it without looking inside. No TensorFlow.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from runner.core import plain_yaml

Values = Mapping[str, Any]
"""A configuration, or a section of it: names to values and sections. Its texts are not changed."""

ABSENT: Any = type("Absent", (), {"__repr__": lambda _: "absent"})()
"""The value of what a configuration does not have."""

_LONG = 12  # lines; shorter texts are not divided
_PART = re.compile(r"(?m)^(?=[^\s-])")
_NAME = re.compile(r"\w+:")
_IS_MAPPING = re.compile(r"  \w+:(\s|$)")
_INDENTED = re.compile(r"(?m)^  ")
_NOT_INDENTED = re.compile(r"(?m)^(?!  |$)")
_ALIAS = re.compile(r"(?m)^[^#'\"\n]*?[:-] [&*]\w")


def parse(text: str) -> Values:
    """The values of a params.yaml.

    Lists of sections become sections too, by the names or else the numbers of their parts.

    Raises:
        ValueError: it is not YAML, or not a mapping.
    """
    if "&" in text and _ALIAS.search(text):
        return _loaded(text)
    try:
        return _parsed(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _parsed(text: str) -> Values:
    """The same for a text without anchors: each of its sections on its own."""
    if text.count("\n") <= _LONG:
        return _loaded(text)
    found: dict[str, Any] = {}
    for part in _PART.split(text):
        if part.strip():
            found.update(_section(part))
    return found


@functools.lru_cache(maxsize=100_000)
def _section(part: str) -> Values:
    """A name with its value, on its line or indented below it."""
    head, _, body = part.partition("\n")
    if _NAME.fullmatch(head) and _IS_MAPPING.match(body) and not _NOT_INDENTED.search(body):
        return {head[:-1]: _parsed(_INDENTED.sub("", body))}
    return _loaded(part)


@functools.lru_cache(maxsize=50_000)
def _loaded(text: str) -> Values:
    try:
        found = plain_yaml.load(text)
    except yaml.YAMLError as error:
        raise ValueError("not YAML") from error
    if not isinstance(found, Mapping):
        raise ValueError("not a configuration")
    return _named(found)


def _named(value: Any) -> Any:
    """`value` with lists of sections as sections."""
    if isinstance(value, Mapping):
        return {str(name): _named(each) for name, each in value.items()}
    if isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        names = [str(each.get("name") or number) for number, each in enumerate(value)]
        if len(set(names)) < len(names):
            names = [str(number) for number in range(len(value))]
        return {name: _named(each) for name, each in zip(names, value, strict=True)}
    return value


def get(values: Values, path: str) -> Any:
    """The value at a path such as `trainer.train_steps`; `ABSENT` if there is none.

    A name in the path may itself have dots.
    """
    if path in values:
        return values[path]
    at = path.find(".")
    while at >= 0:
        inner = values.get(path[:at])
        if isinstance(inner, Mapping):
            found = get(inner, path[at + 1 :])
            if found is not ABSENT:
                return found
        at = path.find(".", at + 1)
    return ABSENT


def paths(all_of: Iterable[Values]) -> Iterator[str]:
    """The path of every value that any of them has, once."""
    yield from dict.fromkeys(_paths(list(all_of), ""))


def _paths(all_of: Sequence[Any], path: str) -> Iterator[str]:
    sections = _distinct(each for each in all_of if isinstance(each, Mapping))
    if path and len(sections) < len(_distinct(all_of)):
        yield path
    for name in dict.fromkeys(name for each in sections for name in each):
        inner = [each[name] for each in sections if name in each]
        yield from _paths(inner, f"{path}.{name}" if path else name)


def differing(all_of: Sequence[Values]) -> list[str]:
    """The paths of the values that are not the same in all of them, in the order of the file.

    What some do not have counts only if it differs among those that have it: the fields of one
    optimizer say nothing about a run with another one.
    """
    return list(_differing(list(all_of), ""))


def _differing(all_of: Sequence[Any], path: str) -> Iterator[str]:
    different = _distinct(all_of)
    if len(different) < 2:
        return
    if not all(isinstance(each, Mapping) for each in different):
        if len({_key(each) for each in different}) > 1:
            yield path
        return
    for name in dict.fromkeys(name for each in different for name in each):
        inner = [each[name] for each in different if name in each]
        yield from _differing(inner, f"{path}.{name}" if path else name)


def _distinct(all_of: Iterable[Any]) -> list[Any]:
    """Each object once."""
    return list({id(each): each for each in all_of}.values())


def _key(value: Any) -> str:
    """Equal for equal values; 1, 1.0 and true are not."""
    return repr(value)


def leaves(values: Values, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each value with its path."""
    for name, value in values.items():
        inner = f"{path}.{name}" if path else name
        if isinstance(value, Mapping):
            yield from leaves(value, inner)
        else:
            yield inner, value


def shown(value: Any) -> str:
    """A value for a person, on one line; `-` if there is none."""
    if value is ABSENT:
        return "-"
    if isinstance(value, Mapping):
        given = [f"{name}={shown(each)}" for name, each in leaves(value) if each is not None]
        return ", ".join(given) or "{}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ",".join(map(shown, value)) or "[]"
    return str(value) if value != "" else "''"
