"""Exports an experiment as a self-contained gin file: `config.gin`."""

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
    """The text of a gin file that builds an equal experiment, defaults included.

    Args:
        experiment: Its classes must be importable.
        imports: Further modules to import, such as those that register a task.

    Raises:
        ValueError: it contains what gin cannot express: NaN, or a class that cannot be imported.
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
    """Writes sections.

    Args:
        kinds: How many sections there are of each class. Those of a class with one need no scope,
            so that a flag such as `--gin.TrainerConfig.train_steps=100` changes it.
    """

    def __init__(self, kinds: Mapping[type, int]) -> None:
        self.modules: set[str] = set()
        self._kinds = kinds
        self._scopes: set[str] = set()

    def section(self, section: base_config.Config, scope: str) -> Iterator[str]:
        """A block for a section, and one for each of its subsections."""
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
        """A value for `gin_parser.literal`; sections are added to `below`."""
        if isinstance(value, base_config.Config):
            if not dataclasses.fields(value):  # free of form
                return value.as_dict()
            own = "" if self._kinds[type(value)] == 1 else self._scope(scope)
            below.append((value, own))
            return _Reference(f"@{own}{'/' * bool(own)}{self._name(type(value))}()")
        if isinstance(value, (list, tuple)):
            return type(value)(self._value(v, f"{scope}_{n}", below) for n, v in enumerate(value))
        return value

    def _name(self, kind: type) -> str:
        """`module.Class`; its module is added to the imports."""
        if "<" in kind.__qualname__ or kind.__module__ == "__main__":
            raise ValueError(f"{kind.__qualname__} cannot be imported")
        self.modules.add(kind.__module__)
        return f"{kind.__module__}.{kind.__qualname__}"

    def _scope(self, path: str) -> str:
        """A unique scope, so that no section takes values from another."""
        name = re.sub(r"\W", "_", path).strip("_")
        while name in self._scopes:
            name += "_"
        self._scopes.add(name)
        return name
