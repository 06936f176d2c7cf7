"""Overrides values from YAML strictly: known names, right types, all or nothing."""

from collections.abc import Iterator, Mapping
from typing import Any

from official.modeling.hyperparams import base_config
from official.modeling.multitask import configs

from runner.configuration import typecheck, yaml_files
from runner.core import spelling, text
from runner.errors import ConfigError


def apply(experiment: base_config.Config, layer: yaml_files.Layer) -> dict[str, str]:
    """Overrides values of `experiment`, which is not locked, with those of `layer`.

    A mapping overrides single fields of a config. A list replaces the whole existing list,
    including a list of configs. The exception is a list for the same number of tasks, which
    overrides them one by one. Numbers are converted to the field's annotation: 1e3 may be an int.

    Returns:
        The location of each given value, by path.

    Raises:
        ConfigError: if there are unknown names or wrong types. The message has one line for each,
            with its location.
    """
    problems = list(_override(experiment, layer.values, "", layer.places))
    if problems:
        raise ConfigError("\n".join(problems))
    return dict(layer.places)


def _override(
    section: base_config.Config, values: Mapping[str, Any], path: str, places: Mapping[str, str]
) -> Iterator[str]:
    """Sets the valid values and yields a line for each invalid one."""
    fields = [name for name in vars(section) if name not in section.RESERVED_ATTR]
    hints = typecheck.parameters(type(section))
    for name, value in values.items():
        below = f"{path}.{name}".removeprefix(".")
        place = _place(places, below)
        known = vars(section).get(name)
        if name not in fields and (fields or type(section) is not base_config.Config):
            what = type(section).__name__
            meant = spelling.did_you_mean(name, fields) or spelling.elsewhere(name)
            yield f"{place}: {what} has no {text.quoted(name)}{meant}"
        elif isinstance(known, base_config.Config) and isinstance(value, Mapping):
            yield from _override(known, value, below, places)
        elif _are_routines(known, value):
            for index, (routine, values_of_it) in enumerate(zip(known, value, strict=True)):
                yield from _override(routine, values_of_it, f"{below}[{index}]", places)
        else:
            hint = hints[name].hint if name in hints else Any
            made = _Made(places)
            fitting = made.value(value, hint, below)
            yield from made.problems
            if not made.problems:
                vars(section)[name] = None  # otherwise Model Garden inserts a list into the old one
                setattr(section, name, fitting)


def _are_routines(known: Any, value: Any) -> bool:
    """Returns whether a list has values for each of an experiment's several tasks.

    They override the tasks one by one, because YAML cannot name the classes of new ones.
    """
    if not isinstance(known, list | tuple) or not isinstance(value, list):
        return False
    routines = all(isinstance(each, configs.TaskRoutine) for each in known)
    return routines and len(known) == len(value) and all(isinstance(v, Mapping) for v in value)


class _Made:
    """Converts values to annotations, and a mapping to the annotated config class."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places
        self.problems: list[str] = []

    def value(self, value: Any, hint: Any, path: str) -> Any:
        configs = [c for c in typecheck.classes(hint) if issubclass(c, base_config.Config)]
        if isinstance(value, Mapping) and configs:
            section = self._section(configs[0], path)
            if section is not None:
                self.problems += _override(section, value, path, self._places)
            return section
        if isinstance(value, list) and configs and any(isinstance(v, Mapping) for v in value):
            items = [self.value(v, configs[0], f"{path}[{n}]") for n, v in enumerate(value)]
            return items
        try:
            return typecheck.convert(value, hint)
        except typecheck.MismatchError as error:
            self.problems.append(f"{_place(self._places, path)}: {path}: {error}")
            return None

    def _section(self, kind: type[base_config.Config], path: str) -> base_config.Config | None:
        try:
            return kind()
        except Exception as error:  # a constructor may raise any exception
            place = _place(self._places, path)
            self.problems.append(f"{place}: {kind.__name__} cannot be built: {error}")
            return None


def _place(places: Mapping[str, str], path: str) -> str:
    """Returns the location of a value, or of the nearest enclosing one that has a location."""
    while path not in places and path:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return places.get(path, "")
