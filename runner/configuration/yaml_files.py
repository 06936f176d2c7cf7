"""YAML files and `--params_override`: plain values, each with its place."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import yaml

from runner.errors import ConfigError


class Layer(NamedTuple):
    """Values that override others.

    Attributes:
        values: Nested by section.
        places: Where each is written, by path (`trainer.train_steps`, `task.heads[0].name`).
    """

    values: Mapping[str, Any]
    places: Mapping[str, str]


_OURS = ("bool", "float", "timestamp")


class _Loader(yaml.SafeLoader):
    """SafeLoader, with the scalars of YAML 1.2: 1.5e4 and 1e3 are numbers, `off` is text.

    Dates stay text, as no field holds one.
    """

    yaml_implicit_resolvers: ClassVar = {  # type: ignore[misc]
        first: [(tag, rule) for tag, rule in rules if tag.rpartition(":")[2] not in _OURS]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"(true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_FLOAT = (
    "tag:yaml.org,2002:float",
    re.compile(
        r"([-+]?(\d[\d_]*\.[\d_]*|\.\d[\d_]*)([eE][-+]?\d+)?|[-+]?\d[\d_]*[eE][-+]?\d+"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"
    ),
    list("-+.0123456789"),
)
_Loader.add_implicit_resolver(*_FLOAT)


class _Dumper(yaml.SafeDumper):
    """SafeDumper that quotes strings that YAML 1.1 or 1.2 would not read as text."""


_Dumper.add_implicit_resolver(*_FLOAT)

# `a.b=1`, `a.b[0]=1`: Model Garden's syntax for several values on a command line.
_PAIR = re.compile(r"\s*(?P<path>\w+(?:\.\w+)*)(?:\[(?P<index>\d+)\])?\s*=(?P<value>.*)", re.DOTALL)


def dump(values: Any) -> str:
    """Plain values as YAML, for this loader and for others."""
    return str(yaml.dump(values, Dumper=_Dumper, sort_keys=False))


def read_file(path: Path) -> Layer:
    """The values of a YAML or JSON file.

    Raises:
        ConfigError: there is no such file, or it is not a mapping; the message says where.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not text: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    return _read(text, str(path), lambda line: f"{path}:{line}")


def read_override(text: str) -> Layer:
    """The values of `--params_override`: a file's name, YAML or JSON, or `a.b=1,c=[2, 3]`.

    The name of an existing file is taken as one, even if it contains "=".

    Raises:
        ConfigError: it is none of these.
    """
    if _is_file(text):
        return read_file(Path(text))
    if _PAIR.match(text):
        return _pairs(text)
    place = _flag(text)
    return _read(text, place, lambda _: place)


def _is_file(text: str) -> bool:
    try:
        return "\n" not in text and Path(text).is_file()
    except OSError:  # too long for a file name
        return False


def single(path: str, value: Any, place: str) -> Layer:
    """A single value, set by a flag."""
    nested: Any = value
    for name in reversed(path.split(".")):
        nested = {name: nested}
    return Layer(nested, {path: place})


def _read(text: str, name: str, place: Callable[[int], str]) -> Layer:
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return Layer({}, {})
        places: dict[str, str] = {}
        if not isinstance(node, yaml.MappingNode):
            line = node.start_mark.line + 1
            said = " or an existing file" if name.startswith("--") else ""
            raise ConfigError(f"{place(line)}: expected `section: {{name: value}}`{said}")
        values = _values(loader, node, "", place, places)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = place(mark.line + 1) if mark else name
        raise ConfigError(f"{where}: not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not YAML: {error}") from error
    return Layer(values, places)


def _values(
    loader: yaml.SafeLoader,
    node: yaml.Node,
    path: str,
    place: Callable[[int], str],
    places: dict[str, str],
) -> Any:
    """The values of a node; notes the places of everything in it."""
    if path:
        places[path] = place(node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [
            _values(loader, item, f"{path}[{index}]", place, places)
            for index, item in enumerate(node.value)
        ]
    if not isinstance(node, yaml.MappingNode):
        return loader.construct_object(node, deep=True)
    _refuse_doubles(node, path, place)
    loader.flatten_mapping(node)
    found = {}
    for key, value in node.value:
        name = str(loader.construct_object(key))
        below = f"{path}.{name}".removeprefix(".")
        found[name] = _values(loader, value, below, place, places)
    return found


def _refuse_doubles(node: yaml.MappingNode, path: str, place: Callable[[int], str]) -> None:
    """YAML forbids duplicate keys, but its loaders silently take the last one."""
    seen: dict[str, int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if isinstance(key, yaml.ScalarNode) and key.value in seen and key.value != "<<":
            name = f"{path}.{key.value}".removeprefix(".")
            raise ConfigError(
                f"{place(line)}: {name} is given twice, first in line {seen[key.value]}"
            )
        seen[key.value if isinstance(key, yaml.ScalarNode) else ""] = line


def _flag(text: str) -> str:
    short = " ".join(text.split())
    return f'--params_override "{short if len(short) < 80 else short[:76] + " ..."}"'


def _pairs(text: str) -> Layer:
    """`a.b=1,c[0]=2,c[1]=3`, with values in YAML."""
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    for pair in _split(text):
        place = _flag(pair)
        match = _PAIR.fullmatch(pair)
        if match is None:
            raise ConfigError(f"{place}: {pair.strip()!r} is not of the form name=value")
        try:
            value = yaml.load(match["value"].strip(), _Loader)
        except yaml.YAMLError as error:
            raise ConfigError(f"{place}: {match['value']!r} is not a value") from error
        *above, name = match["path"].split(".")
        section = values
        for part in above:
            section = section.setdefault(part, {})
            if not isinstance(section, dict):
                raise ConfigError(f"{place}: {match['path']} is given as a value and as a section")
        if match["index"] is None:
            section[name] = value
        else:
            _put(section.setdefault(name, []), int(match["index"]), value, place)
        for depth in range(len(above) + 1):
            places.setdefault(".".join([*above, name][: depth + 1]), place)
        places[match["path"]] = place
    return Layer(values, places)


def _put(items: Any, index: int, value: Any, where: str) -> None:
    if not isinstance(items, list) or index > len(items):
        raise ConfigError(f"{where}: the values before it are missing")
    items[index : index + 1] = [value]


def _split(text: str) -> list[str]:
    """Splits `text` at commas, except those in brackets or quotes."""
    parts, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "[{(":
            depth += 1
        elif char in "]})":
            depth -= 1
        if char == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += char
    return [part for part in parts if part.strip()]
