"""Extracts what help shows about a config class: its fields with type, default and meaning.

for kind in from_classes.standard():
    for row in from_classes.facts(kind):
        print(kind.__name__, row.field, row.type, row.default, row.meaning, row.resume)
"""

import dataclasses
import inspect
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from official.modeling.hyperparams import base_config

from runner import config, inputs
from runner.command.help import docstrings
from runner.command.help.facts import FieldHelp, Section
from runner.configuration import fields, optimizer_kinds, typecheck
from runner.configuration.settings import Resume


class Place(NamedTuple):
    """The path of a config class in an experiment, and why a resume may change it, if it may."""

    path: str
    resume: Resume | None


def standard() -> dict[type[base_config.Config], Place]:
    """Returns the standard config classes of an experiment, from the top."""
    places: dict[type[base_config.Config], Place] = {}
    _place(config.Experiment, Place("", None), places)
    return places


def facts(kind: type[base_config.Config]) -> list[FieldHelp]:
    """Returns the fields of a config class, in order."""
    place = standard().get(kind, Place("", None))
    return [_field(kind, name, known, place) for name, known in typecheck.parameters(kind).items()]


def shipped(task_sections: Iterable[type[base_config.Config]]) -> list[Section]:
    """Returns the standard config classes, and those of the bundled tasks."""
    kinds = [*standard(), inputs.DataConfig, *task_sections]
    return [section(kind) for kind in dict.fromkeys(kinds)]


def section(kind: type[base_config.Config]) -> Section:
    """Returns a class as help shows it."""
    place = standard().get(kind, Place("", None))
    return Section(kind.__name__, kind.__module__, place.path, summary(kind), tuple(facts(kind)))


def _place(
    kind: type[base_config.Config], place: Place, places: dict[type[base_config.Config], Place]
) -> None:
    """Records a config class and its nested classes. The first place of a class is kept."""
    kind = optimizer_kinds.EXTENDED.get(kind, kind)
    if kind in places:
        return
    places[kind] = place
    for name, known in typecheck.parameters(kind).items():
        many = bool(re.match("tuple|list", typecheck.describe(known.hint)))
        path = f"{place.path}.{name}".removeprefix(".") + ("[]" if many else "")
        resume = place.resume or (None if many else fields.of(kind, name).resume)
        for below in typecheck.classes(known.hint):
            if issubclass(below, base_config.Config) and dataclasses.fields(below):
                _place(below, Place(path, resume), places)


def _field(
    kind: type[base_config.Config], name: str, known: typecheck.Parameter, place: Place
) -> FieldHelp:
    own = fields.of(kind, name)
    resume = place.resume or own.resume
    return FieldHelp(
        name,
        typecheck.describe(known.hint),
        _default(kind, name),
        _documented(kind).get(name) or own.help,
        own.allowed.needs if own.allowed else "",
        resume.why if resume else "",
        resume.unless if resume else "",
        any(name in inspect.get_annotations(each) for each in _declaring(kind)),
    )


def _declaring(kind: type) -> list[type]:
    """Returns a class, and the Model Garden class that it extends."""
    return [kind, *(base for base, made in optimizer_kinds.EXTENDED.items() if made is kind)]


def _default(kind: type[base_config.Config], name: str) -> str:
    field = next(each for each in dataclasses.fields(kind) if each.name == name)
    if field.default is not dataclasses.MISSING:
        return repr(field.default)
    if field.default_factory is dataclasses.MISSING:
        return ""
    value: Any = field.default_factory()
    is_section = isinstance(value, base_config.Config)
    return f"{type(value).__name__}()" if is_section else repr(value)


def summary(kind: type) -> str:
    """Returns the first paragraph of a class's docstring, unless `dataclass` generated it."""
    return docstrings.summary(inspect.getdoc(kind) or "", kind.__name__)


def _documented(kind: type) -> dict[str, str]:
    """Returns the `Attributes:` in the docstrings of a class and its base classes."""
    meanings: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        meanings |= docstrings.attributes(base.__doc__ or "")
    return meanings
