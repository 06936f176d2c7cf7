"""Reads the resolved configuration in a run's params.yaml as plain values. No TensorFlow.

A safe YAML loader takes 3 ms for a file of 300 lines, which is half a minute for a table of 10,000
runs. Most runs share most of their configuration. Therefore the text is split into parts, and each
distinct part is parsed once. Runs with equal parts share one object, which must not be changed.
"""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from runner.core import layout, plain_yaml
from runner.errors import RunnerError

Values = Mapping[str, Any]
"""A configuration or a part of it: names to values and nested mappings."""

_SECTIONS = ("trainer", "run")
_LONG = 12  # lines; shorter texts are not split
_PART_END = re.compile(r"\n(?=[^\s-])")
_NAME = re.compile(r"\w+:")
_IS_MAPPING = re.compile(r"  \w+:(\s|$)")
_INDENTED = re.compile(r"(?m)^  ")
_NOT_INDENTED = re.compile(r"(?m)^(?!  |$)")
_ALIAS = re.compile(r"(?m)^[^#'\"\n]*?[:-] [&*]\w")


def read(folder: Path) -> Values:
    """Returns the configuration of the run in a directory, empty if it has none.

    Raises:
        RunnerError: the file is damaged.
    """
    path = layout.params(folder)
    try:
        values = parse(path.read_bytes().decode())
        if not all(isinstance(values.get(name, {}), Mapping) for name in _SECTIONS):
            raise ValueError(f"{' or '.join(_SECTIONS)} is not a mapping")
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise RunnerError(f"{path.name} is damaged ({error})") from error
    return values


def parse(text: str) -> Values:
    """Returns the values of a params.yaml.

    Raises:
        ValueError: it is not YAML, or not a mapping.
    """
    if "&" in text and _ALIAS.search(text):
        return _loaded(text)
    try:
        return _parsed(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except ValueError:  # such as a comment, which belongs to no part
        return _loaded(text)


def _parsed(text: str) -> Values:
    """Parses a text without anchors, each part separately."""
    if text.count("\n") <= _LONG:
        return _loaded(text)
    values: dict[str, Any] = {}
    *others, last = _PART_END.split(text)
    for part in (*(f"{each}\n" for each in others), last):
        if part.strip():
            values.update(_section(part))
    return values


@functools.lru_cache(maxsize=100_000)
def _section(part: str) -> Values:
    """Parses a name and its value, which is on the same line or indented below."""
    head, _, body = part.partition("\n")
    if _NAME.fullmatch(head) and _IS_MAPPING.match(body) and not _NOT_INDENTED.search(body):
        return {head[:-1]: _parsed(_INDENTED.sub("", body))}
    return _loaded(part)


@functools.lru_cache(maxsize=50_000)
def _loaded(text: str) -> Values:
    try:
        values = plain_yaml.load(text)
    except yaml.YAMLError as error:
        raise ValueError("not YAML") from error
    if not isinstance(values, Mapping):
        raise ValueError("not a configuration")
    return values
