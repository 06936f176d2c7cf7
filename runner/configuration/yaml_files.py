"""Reads YAML files and `--params_override` as plain values, each with its location."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import yaml

from runner.core import sizes
from runner.core import text as words
from runner.errors import ConfigError


class Layer(NamedTuple):
    """Values that override others.

    Attributes:
        values: The values, nested by config.
        places: The location of each value, by path (`trainer.train_steps`, `task.heads[0].name`).
    """

    values: Mapping[str, Any]
    places: Mapping[str, str]


_OURS = ("bool", "float", "timestamp")


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2: 1.5e4 and 1e3 are numbers, `off` is text.

    Dates stay text, because no field holds one.
    """

    yaml_implicit_resolvers: ClassVar = {  # type: ignore[misc]
        first: [(tag, rule) for tag, rule in rules if tag.rpartition(":")[2] not in _OURS]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._composed = self._expanded = self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Returns a node, unless there are too many or they are nested too deeply."""
        self._composed += 1
        sizes.check_count(self._composed)
        with self.within():
            node: yaml.Node | None = super().compose_node(parent, index)
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Replaces `<<`, unless a few aliases would expand to too many values."""
        with self.within():
            super().flatten_mapping(node)
        sizes.check_count(len(node.value))

    def expand(self) -> None:
        """Counts a value each time that an alias refers to it."""
        self._expanded += 1
        sizes.check_count(self._expanded)

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        """Treats values inside the context as one level deeper."""
        self._depth += 1
        sizes.check_depth(self._depth)
        yield
        self._depth -= 1


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
    """Returns plain values as YAML, for this loader and for others."""
    return str(yaml.dump(values, Dumper=_Dumper, sort_keys=False))


def read_file(path: Path) -> Layer:
    """Returns the values of a YAML or JSON file.

    Raises:
        ConfigError: if it does not exist, is not a mapping, or is too large. The message gives the
            location.
    """
    try:
        text = sizes.read(path)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not text: {error}") from error
    except sizes.TooLargeError as error:
        raise ConfigError(f"{path}: {error}") from error
    except (OSError, ValueError) as error:  # ValueError: not a valid path
        raise ConfigError(f"{path}: {getattr(error, 'strerror', error)}") from error
    return _read(text, str(path), lambda line: f"{path}:{line}")


def read_override(text: str) -> Layer:
    """Returns the values of `--params_override`: a file's name, YAML or JSON, or `a.b=1,c=[2, 3]`.

    The name of an existing file is taken as a file, even if it contains "=".

    Raises:
        ConfigError: if it is none of these.
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
    except (OSError, ValueError):  # too long or not a valid path
        return False


def single(path: str, value: Any, place: str) -> Layer:
    """Returns a single value, set by a flag."""
    nested: Any = value
    for name in reversed(path.split(".")):
        nested = {name: nested}
    return Layer(nested, {path: place})


def _read(text: str, name: str, place: Callable[[int], str]) -> Layer:
    try:
        sizes.check_written(text)
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
    except sizes.TooLargeError as error:
        raise ConfigError(f"{name}: {error}") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an invalid character
        raise ConfigError(f"{name}: not YAML: {error}") from error
    return Layer(values, places)


def _values(
    loader: _Loader,
    node: yaml.Node,
    path: str,
    place: Callable[[int], str],
    places: dict[str, str],
) -> Any:
    """Returns the values of a node and records the locations of all its parts."""
    loader.expand()
    if path:
        places[path] = place(node.start_mark.line + 1)
    if not isinstance(node, yaml.CollectionNode):
        return _scalar(loader, node, place)
    with loader.within():
        if isinstance(node, yaml.SequenceNode):
            return [
                _values(loader, item, f"{path}[{index}]", place, places)
                for index, item in enumerate(node.value)
            ]
        assert isinstance(node, yaml.MappingNode)
        _refuse_doubles(node, path, place)
        loader.flatten_mapping(node)
        values = {}
        for key, value in node.value:
            name = str(_scalar(loader, key, place))
            below = f"{path}.{name}".removeprefix(".")
            values[name] = _values(loader, value, below, place, places)
        return values


def _scalar(loader: _Loader, node: yaml.Node, place: Callable[[int], str]) -> Any:
    """Returns the value of a node without children."""
    where = place(node.start_mark.line + 1)
    if not isinstance(node, yaml.ScalarNode):
        raise ConfigError(f"{where}: expected a name, not a list or a section")
    try:
        return loader.construct_object(node, deep=True)
    except yaml.YAMLError:
        raise
    except Exception as error:  # a tag such as !!int may not fit the text
        raise ConfigError(f"{where}: {words.quoted(node.value)} is not a value") from error


def _refuse_doubles(node: yaml.MappingNode, path: str, place: Callable[[int], str]) -> None:
    """Rejects duplicate keys, which YAML forbids but its loaders accept silently."""
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
    short = " ".join(text[:1000].split())
    return f'--params_override "{short if len(short) < 80 else short[:76] + " ..."}"'


def _pairs(text: str) -> Layer:
    """Reads `a.b=1,c[0]=2,c[1]=3`, with values in YAML."""
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    if len(text) > sizes.LONGEST:
        raise ConfigError(f"{_flag(text)}: longer than {sizes.LONGEST:,} characters")
    for pair in _split(text):
        place = _flag(pair)
        match = _PAIR.fullmatch(pair)
        if match is None:
            raise ConfigError(
                f"{place}: {words.quoted(pair.strip())} is not of the form name=value"
            )
        value = _value(match["value"].strip(), place)
        *above, name = match["path"].split(".")
        if len(above) > sizes.DEEPEST:
            raise ConfigError(f"{place}: more than {sizes.DEEPEST} names in one another")
        section = values
        for part in above:
            section = section.setdefault(part, {})
            if not isinstance(section, dict):
                path = words.shortened(match["path"])
                raise ConfigError(f"{place}: {path} is given as a value and as a section")
        if match["index"] is None:
            section[name] = value
        else:
            _put(section.setdefault(name, []), int(match["index"]), value, place)
        for depth in range(len(above) + 1):
            places.setdefault(".".join([*above, name][: depth + 1]), place)
        places[match["path"]] = place
    return Layer(values, places)


def _value(text: str, place: str) -> Any:
    """Returns a value in YAML."""
    try:
        sizes.check_written(text)
        loader = _Loader(text)
        node = loader.get_single_node()
        return None if node is None else _values(loader, node, "", lambda _: place, {})
    except sizes.TooLargeError as error:
        raise ConfigError(f"{place}: {error}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(
            f"{place}: {words.quoted(text)} is not a value in YAML; put such text in double quotes"
        ) from error


def _put(items: Any, index: int, value: Any, where: str) -> None:
    if not isinstance(items, list) or index > len(items):
        raise ConfigError(f"{where}: the values before it are missing")
    items[index : index + 1] = [value]


def _split(text: str) -> list[str]:
    """Splits `text` at commas, except those in brackets or quotes."""
    return [part for part in words.parts(text) if part.strip()]
