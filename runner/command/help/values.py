"""Finds the values that gin files and flags set, without building anything."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from runner.command.help.facts import FieldHelp, Section
from runner.configuration import gin_parser, yaml_files


class Now(NamedTuple):
    """A value that was set.

    Attributes:
        value: The value, as gin writes it.
        place: `digits.gin:7`, or the flag.
        scope: The gin scope of one of several instances of the class, or empty for all.
    """

    value: str
    place: str
    scope: str

    def __str__(self) -> str:
        scope = f"{self.scope}/: " if self.scope else ""
        return f"{scope}{self.value} ({self.place})"


class Values:
    """The values that gin files and overrides set.

    Args:
        statements: Statements of gin files and parameters, in order.
        layers: Values of YAML files and `--params_override`, which have priority.
    """

    def __init__(
        self,
        statements: Iterable[gin_parser.Statement] = (),
        layers: Iterable[yaml_files.Layer] = (),
    ) -> None:
        self._all = [each for each in statements if isinstance(each, gin_parser.Binding)]
        self._layers = list(layers)
        self._paths: dict[str, list[tuple[str, str]]] = defaultdict(list)
        self._follow("", "Experiment", "")

    @property
    def bindings(self) -> list[gin_parser.Binding]:
        """The effective bindings, without those of base.gin."""
        last = {(each.scope, each.target, each.parameter): each for each in self._all}
        return [each for each in last.values() if not is_base(each.source)]

    def of(self, section: Section, field: FieldHelp) -> list[Now]:
        """Returns the effective values of a field, the general one first."""
        found: dict[str, Now] = {}
        for each in self.bindings:
            if short(each.target) == section.name and each.parameter == field.field:
                value = gin_parser.literal(each.value)
                found[each.scope] = Now(value, each.place, each.scope)
        for scope, path in self.places(section):
            for layer in self._layers:
                below = f"{path}.{field.field}".removeprefix(".")
                if place := layer.places.get(below):
                    found[scope] = Now(repr(_at(layer.values, below)), place, scope)
        return sorted(found.values(), key=lambda each: each.scope)

    def places(self, section: Section) -> list[tuple[str, str]]:
        """Returns each place of a config class in the experiment, as a scope and a path."""
        is_placed = section.path or section.name == "Experiment"
        return self._paths.get(section.name) or ([("", section.path)] if is_placed else [])

    def _follow(self, scope: str, name: str, path: str) -> None:
        """Records the place of a config class, and of those that it refers to."""
        if (scope, path) in self._paths[name] or path.count(".") > _DEEPEST:
            return
        self._paths[name].append((scope, path))
        for each in self._all:
            value = each.value
            is_section = isinstance(value, gin_parser.Reference) and value.called
            if is_section and short(each.target) == name and each.scope in ("", scope):
                below = f"{path}.{each.parameter}".removeprefix(".")
                self._follow(value.scope or scope, short(value.name), below)


BASE = gin_parser.PACKAGE / "base.gin"
_DEEPEST = 8


def is_base(source: gin_parser.Source) -> bool:
    """Returns whether it is base.gin, which only refers to the standard config classes."""
    return source.is_file and source.folder / Path(source.label).name == BASE


def short(name: str) -> str:
    """Returns a class's name without its modules."""
    return name.rpartition(".")[2]


def _at(values: Mapping[str, Any], path: str) -> Any:
    for name in path.split("."):
        values = values[name]
    return values
