"""Overrides values from YAML strictly: known names, right types, all or nothing."""

from collections.abc import Mapping
from typing import Any

from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config
from official.modeling.multitask import configs

from runner.configuration import typecheck, yaml_files
from runner.core import spelling, text
from runner.errors import ConfigError

_FURTHER = "run."  # where data for the task are configured outside it


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
    overriding = _Overriding(layer.places, _data_class(experiment))
    overriding.override(experiment, layer.values, "")
    if overriding.problems:
        raise ConfigError("\n".join(overriding.problems))
    return dict(layer.places)


class _Overriding:
    """Sets the valid values of a layer.

    Args:
        places: The location of each value, by path.
        data: The class for further data of the task, such as `run.test.data`. A mapping cannot name
            its class.

    Attributes:
        problems: A line for each invalid value.
    """

    def __init__(self, places: Mapping[str, str], data: type[cfg.DataConfig]) -> None:
        self._places = places
        self._data = data
        self.problems: list[str] = []

    def override(self, section: base_config.Config, values: Mapping[str, Any], path: str) -> None:
        """Overrides the fields of a config at `path`."""
        fields = [name for name in vars(section) if name not in section.RESERVED_ATTR]
        hints = typecheck.parameters(type(section))
        for name, value in values.items():
            below = f"{path}.{name}".removeprefix(".")
            known = vars(section).get(name)
            if name not in fields and (fields or type(section) is not base_config.Config):
                meant = spelling.did_you_mean(name, fields) or spelling.elsewhere(name)
                self._refuse(below, f"{type(section).__name__} has no {text.quoted(name)}{meant}")
            elif _is_section(known, below) and isinstance(value, Mapping):
                self.override(known, value, below)
            elif _are_routines(known, value):
                for index, (routine, values_of_it) in enumerate(zip(known, value, strict=True)):
                    self.override(routine, values_of_it, f"{below}[{index}]")
            else:
                before = len(self.problems)
                made = self._value(value, hints[name].hint if name in hints else Any, below)
                if len(self.problems) == before:
                    vars(section)[name] = None  # otherwise Model Garden inserts a list into the old
                    setattr(section, name, made)

    def _value(self, value: Any, hint: Any, path: str) -> Any:
        """Converts a value to an annotation, and a mapping to the annotated config class."""
        configs = [c for c in typecheck.classes(hint) if issubclass(c, base_config.Config)]
        if isinstance(value, Mapping) and configs:
            section = self._section(configs[0], path)
            if section is not None:
                self.override(section, value, path)
            return section
        if isinstance(value, list) and configs and any(isinstance(v, Mapping) for v in value):
            return [self._value(v, configs[0], f"{path}[{n}]") for n, v in enumerate(value)]
        try:
            return typecheck.convert(value, hint)
        except typecheck.MismatchError as error:
            self._refuse(path, f"{path}: {error}")
            return None

    def _section(self, kind: type[base_config.Config], path: str) -> base_config.Config | None:
        kind = self._data if kind is cfg.DataConfig and path.startswith(_FURTHER) else kind
        try:
            return kind()
        except Exception as error:  # a constructor may raise any exception
            self._refuse(path, f"{kind.__name__} cannot be built: {error}")
            return None

    def _refuse(self, path: str, why: str) -> None:
        """Notes a problem at the location of a value, or of the nearest enclosing one."""
        while path not in self._places and path:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        self.problems.append(f"{self._places.get(path, '')}: {why}")


def _data_class(experiment: base_config.Config) -> type[cfg.DataConfig]:
    """Returns the class of the task's data, or `DataConfig` if it has none."""
    task = getattr(experiment, "task", None)
    for name in ("validation_data", "train_data"):
        if isinstance(data := getattr(task, name, None), cfg.DataConfig):
            return type(data)
    return cfg.DataConfig


def _is_section(known: Any, path: str) -> bool:
    """Returns whether a field has a config to override, and not only a default to replace."""
    may_be_default = type(known) is cfg.DataConfig and path.startswith(_FURTHER)
    is_default = may_be_default and known.as_dict() == cfg.DataConfig().as_dict()
    return isinstance(known, base_config.Config) and not is_default


def _are_routines(known: Any, value: Any) -> bool:
    """Returns whether a list has values for each of an experiment's several tasks.

    They override the tasks one by one, because YAML cannot name the classes of new ones.
    """
    if not isinstance(known, list | tuple) or not isinstance(value, list):
        return False
    routines = all(isinstance(each, configs.TaskRoutine) for each in known)
    return routines and len(known) == len(value) and all(isinstance(v, Mapping) for v in value)
