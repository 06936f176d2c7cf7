"""Help on sections: their fields with type, default, meaning, and whether a resume may change them.

for kind in section_help.standard():
    for row in section_help.facts(kind):
        print(row.section, row.field, row.type, row.default, row.meaning, row.resume)
"""

import dataclasses
import importlib.util
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from official.modeling.hyperparams import base_config

from runner import config
from runner.configuration import fields, gin_builder, gin_names, gin_parser, typecheck
from runner.configuration.settings import Resume
from runner.errors import ConfigError


class FieldHelp(NamedTuple):
    """A field.

    Attributes:
        section: The name of its class.
        field: Its name.
        type: In words: `tuple of str`.
        default: As a Python literal; empty if it must be given.
        meaning: From the field for our sections, from the class's docstring for official's.
        allowed: The requirement, such as `must be 1 or more`; empty if the type allows everything.
        resume: Why a resumed run may have another value; empty if it may not.
    """

    section: str
    field: str
    type: str
    default: str
    meaning: str
    allowed: str
    resume: str


class Place(NamedTuple):
    """Where a section is in an experiment, and why a resume may change all of it, if it may."""

    path: str
    resume: Resume | None


def standard() -> dict[type[base_config.Config], Place]:
    """The standard sections of an experiment, from the top."""
    places: dict[type[base_config.Config], Place] = {}
    _place(config.Experiment, Place("", None), places)
    return places


def facts(kind: type[base_config.Config]) -> list[FieldHelp]:
    """The fields of a section, in their order."""
    place = standard().get(kind, Place("", None))
    return [_field(kind, name, known, place) for name, known in typecheck.parameters(kind).items()]


def find(name: str, files: Iterable[str] = (), params: Iterable[str] = ()) -> type:
    """The section with a name, as written in gin files and on the command line.

    Args:
        name: `RunConfig`, or `my_module.MyConfig`, whose module is imported.
        files: Gin files whose imports are searched, too.
        params: The same as text.

    Raises:
        ConfigError: there is no such section; the message suggests a similar one.
    """
    statements = [*gin_parser.read(["base.gin", *files], params)]
    gin_builder.make_importable(statements)
    source = gin_parser.Source(f"--help={name}", gin_parser.PACKAGE, is_file=False)
    module, top = name.rpartition(".")[0], name.partition(".")[0]
    imported = {each.name for each in statements if isinstance(each, gin_parser.Import)}
    if module and top not in imported and importlib.util.find_spec(top):
        statements.append(gin_parser.Import(module, top, top, source, source.label))
    try:
        kind = gin_names.Names(statements).find(name, source).target
    except ConfigError as error:
        if str(error).startswith(source.label):
            raise
        task = " (a task's: --help=my_module.MyConfig, or with its --gin_file)"
        hint = task if not files and "." not in name else ""
        raise ConfigError(f"--help={name}: {error}{hint}") from None
    if not (inspect.isclass(kind) and issubclass(kind, base_config.Config)):
        raise ConfigError(f"--help={name}: not a section of a configuration")
    return kind


def render(kind: type[base_config.Config], width: int = 100) -> str:
    """A section as `--help` prints it."""
    path = standard()[kind].path if kind in standard() else ""
    where = f" (in YAML: {path})" if path else ""
    lines = [f"{kind.__name__}{where}: {summary(kind)}"]
    for row in facts(kind):
        lines += ["", f"{row.field}: {row.type}{f' = {row.default}' if row.default else ''}"]
        said = [row.meaning, row.allowed and f"It {row.allowed}."]
        said.append(f"A resume may change it: {row.resume}." if row.resume else "")
        text = " ".join(filter(None, said))
        lines += textwrap.wrap(text, width, initial_indent="    ", subsequent_indent="    ")
    lines += [
        "",
        "A resume may not change the other fields, unless --allow_config_change is given.",
    ]
    return "\n".join(lines)


def _place(
    kind: type[base_config.Config], place: Place, places: dict[type[base_config.Config], Place]
) -> None:
    """Notes a section and its subsections; the first place of a class wins."""
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
    why = resume.why if resume else ""
    return FieldHelp(
        kind.__name__,
        name,
        typecheck.describe(known.hint),
        _default(kind, name),
        _documented(kind).get(name) or own.help,
        own.allowed.needs if own.allowed else "",
        f"{why}, unless {resume.unless}" if resume and resume.unless else why,
    )


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
    """The first paragraph of a class's docstring, unless `dataclass` generated it."""
    text = inspect.getdoc(kind) or ""
    return "" if text.startswith(f"{kind.__name__}(") else " ".join(text.split("\n\n")[0].split())


def _documented(kind: type) -> dict[str, str]:
    """The `Attributes:` in the docstrings of a class and its base classes."""
    meanings: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        text = inspect.cleandoc(base.__doc__ or "")
        meanings |= dict(_attributes(text.partition("Attributes:\n")[2]))
    return meanings


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    """Name and meaning from indented lines `name: meaning` with their continuation lines."""
    block = textwrap.dedent(re.split(r"\n(?=\S)", f"\n{text}", maxsplit=1)[0].strip("\n"))
    for entry in re.split(r"\n(?=\w+: )", block):
        name, colon, meaning = entry.partition(":")
        if colon and name.isidentifier():
            meaning = " ".join(meaning.split())
            yield name, meaning[:1].upper() + meaning[1:]
