"""Exports an experiment as a self-contained gin file, `config.gin`."""

import collections
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from official.modeling.hyperparams import base_config

from runner.configuration import gin_parser, sections

_HEADER = """\
# Generated from the resolved configuration. It builds the same experiment without any other file:
#   runner --mode=... --model_dir=... --gin_file=config.gin
"""


def write(experiment: base_config.Config, imports: Iterable[str] = ()) -> str:
    """Returns the text of a gin file that builds an equal experiment, defaults included.

    Args:
        experiment: Its classes must be importable.
        imports: Further modules to import, such as those that register a task.

    Raises:
        ValueError: if it contains NaN, which gin cannot express, or a class that cannot be
            imported.
    """
    writer = _Writer(collections.Counter(type(each) for _, each in sections.walk(experiment)))
    lines = list(writer.section(experiment, ""))
    modules = sorted({*imports, *writer.modules})
    head = ["from __gin__ import dynamic_registration", *(f"import {each}" for each in modules)]
    return "\n".join([_HEADER, *head, "", *lines]) + "\n"


class _Reference(str):
    """A reference, which gin expects without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _Writer:
    """Writes configs as gin blocks.

    Args:
        kinds: The number of configs of each class. If a class has only one, it needs no scope, so
            that a flag such as `--gin.TrainerConfig.train_steps=100` changes it.
    """

    def __init__(self, kinds: Mapping[type, int]) -> None:
        self.modules: set[str] = set()
        self._kinds = kinds
        self._scopes: set[str] = set()

    def section(self, section: base_config.Config, scope: str) -> Iterator[str]:
        """Yields the lines of a block for a config, and of one for each of its nested configs."""
        below: list[tuple[base_config.Config, str]] = []
        name = self._name(type(section))
        yield f"{scope}/{name}:" if scope else f"{name}:"
        for field in dataclasses.fields(section):
            value = self._value(getattr(section, field.name), f"{scope}_{field.name}", below)
            try:
                yield f"  {field.name} = {gin_parser.literal(value)}"
            except ValueError as error:
                raise ValueError(f"{type(section).__name__}.{field.name}: {error}") from None
        yield ""
        for each, within in below:
            yield from self.section(each, within)

    def _value(self, value: Any, scope: str, below: list[tuple[base_config.Config, str]]) -> Any:
        """Returns a value for `gin_parser.literal` and adds nested configs to `below`."""
        if isinstance(value, base_config.Config):
            if not dataclasses.fields(value):  # without declared fields
                return value.as_dict()
            own = "" if self._kinds[type(value)] == 1 else self._scope(scope)
            below.append((value, own))
            return _Reference(f"@{own}{'/' * bool(own)}{self._name(type(value))}()")
        if isinstance(value, (list, tuple)):
            return type(value)(self._value(v, f"{scope}_{n}", below) for n, v in enumerate(value))
        return value

    def _name(self, kind: type) -> str:
        """Returns `module.Class` and adds its module to the imports."""
        if "<" in kind.__qualname__ or kind.__module__ == "__main__":
            raise ValueError(f"{kind.__qualname__} cannot be imported")
        self.modules.add(kind.__module__)
        return f"{kind.__module__}.{kind.__qualname__}"

    def _scope(self, path: str) -> str:
        """Returns a unique scope, so that no config takes values from another."""
        name = re.sub(r"\W", "_", path).strip("_")
        while name in self._scopes:
            name += "_"
        self._scopes.add(name)
        return name
