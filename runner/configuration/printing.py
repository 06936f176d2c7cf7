"""Prints the resolved configuration, each value with the location where it was set."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from official.modeling.hyperparams import base_config

from runner.configuration import origins as origins_of

_COLUMN = 60  # where the locations start, unless a value is longer


def render(
    experiment: base_config.Config,
    origins: Mapping[str, str],
    *,
    otherwise: str = "",
    changed: bool = False,
) -> str:
    """Returns YAML with a comment on each line that shows where its value was set.

    Args:
        experiment: The experiment to show.
        origins: Where each value was set, by path (`trainer.train_steps`).
        otherwise: The source of the other values that differ from their class's defaults, such as
            `--experiment=bert/squad`. Empty for the default of the enclosing config.
        changed: Leave out the values that equal their class's defaults.
    """
    printer = _Printer(origins, otherwise or "default of its section", changed)
    lines = printer.section(experiment, default_of(experiment), "", "")
    return "\n".join(lines) or "every value is the default"


def changed(experiment: base_config.Config) -> dict[str, Any]:
    """Returns the values that differ from their class's defaults, by path.

    Values within a tuple of configs have paths like `run.evaluation_sets[0].name`.
    """
    return dict(_changed(experiment, default_of(experiment), ""))


def places_of_changes(experiment: base_config.Config) -> dict[str, str]:
    """Returns where the values that differ from their defaults were set, or "" if unknown."""
    places = origins_of.of(experiment)
    return {path: places.get(path, "") for path in changed(experiment)}


def default_of(section: base_config.Config) -> base_config.Config | None:
    """Returns a config of the same class with all defaults, or None if it cannot be created."""
    return _made(section.__class__)  # which `unused_values` leaves unchanged


@functools.lru_cache(maxsize=256)
def _made(kind: type[base_config.Config]) -> base_config.Config | None:
    try:
        return kind()
    except (TypeError, ValueError):
        return None


class _Printer:
    def __init__(self, origins: Mapping[str, str], otherwise: str, changed: bool) -> None:
        self._origins = origins
        self._otherwise = otherwise
        self._changed = changed

    def section(
        self,
        section: base_config.Config,
        default: base_config.Config | None,
        path: str,
        indent: str,
    ) -> Iterator[str]:
        """Yields the lines of a config, if it has any."""
        if not dataclasses.fields(section) and path in self._origins:  # no declared fields
            names = (f"{path}.{name}" for name in vars(section))
            self._origins = {**dict.fromkeys(names, self._origins[path]), **self._origins}
        for name, below, value, known in _fields(section, default, path):
            if _is_section(value):
                inner = list(self.section(value, _default(value, known), below, f"{indent}  "))
                if inner:
                    yield from [f"{indent}{name}:", *inner]
                elif type(known) is not type(value):  # the default has no such config
                    yield from self._value(name, {}, below, indent, is_default=False)
            elif _is_sections(value):
                yield f"{indent}{name}:"
                for index, each in enumerate(value):
                    item = f"{below}[{index}]"
                    inner = list(self.section(each, default_of(each), item, f"{indent}    "))
                    first = inner[0].lstrip() if inner else "{}"
                    yield f"{indent}  - {first}"
                    yield from inner[1:]
            else:
                is_default = _is_default(value, known, default)
                yield from self._value(name, value, below, indent, is_default=is_default)

    def _value(
        self, name: str, value: Any, path: str, indent: str, *, is_default: bool
    ) -> Iterator[str]:
        place = self._origins.get(path)
        if self._changed and is_default:
            return
        text = f"{indent}{name}: {inline(value)}"
        yield f"{text:<{_COLUMN}}  # {place or ('default' if is_default else self._otherwise)}"


def _changed(
    section: base_config.Config, default: base_config.Config | None, path: str
) -> Iterator[tuple[str, Any]]:
    for _, below, value, known in _fields(section, default, path):
        if _is_section(value):
            inner = dict(_changed(value, _default(value, known), below))
            yield from (inner or ({} if type(known) is type(value) else {below: {}})).items()
        elif _is_sections(value):
            for index, each in enumerate(value):
                yield from _changed(each, default_of(each), f"{below}[{index}]")
        elif not _is_default(value, known, default):
            yield below, value


def _fields(
    section: base_config.Config, default: base_config.Config | None, path: str
) -> Iterator[tuple[str, str, Any, Any]]:
    """Yields the name, path, value and default of each field."""
    for name, value in vars(section).items():
        if name not in section.RESERVED_ATTR:
            known = vars(default).get(name) if default is not None else None
            yield name, f"{path}.{name}".removeprefix("."), value, known


def _is_default(value: Any, known: Any, default: base_config.Config | None) -> bool:
    return default is not None and plain(value) == plain(known)


def _default(value: base_config.Config, known: Any) -> base_config.Config | None:
    """Returns the config to compare with: the replaced one, if it has the same class."""
    return known if type(known) is type(value) else default_of(value)


def _is_section(value: Any) -> bool:
    return isinstance(value, base_config.Config)


def _is_sections(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(_is_section(each) for each in value)


def plain(value: Any) -> Any:
    """Returns a value as YAML types, with lists for tuples."""
    if isinstance(value, base_config.Config):
        value = value.as_dict()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def inline(value: Any) -> str:
    """Returns a value as one line of YAML."""
    text = yaml.safe_dump(plain(value), default_flow_style=True, width=10**9)
    return str(text).removesuffix("\n").removesuffix("\n...")
