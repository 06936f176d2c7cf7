"""Formats the help for a config class, a field and an experiment."""

import itertools
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from runner.command.help.catalogue import Catalogue
from runner.command.help.facts import FieldHelp, Section
from runner.command.help.values import Values, short
from runner.configuration import gin_parser

_INDENT = "    "
_RESUME = "May change on resume"


def section(each: Section, values: Values, width: int) -> str:
    """Formats a config class with its fields."""
    paths = [f"{path} ({scope}/)" if scope else path for scope, path in values.places(each)]
    where = f" (in YAML: {', '.join(filter(None, paths))})" if any(paths) else ""
    lines = [f"{each.name}{where}: {each.summary}".removesuffix(": ")]
    may_change = [bool(row.resume) for row in each.fields]
    if any(may_change) and not all(may_change):
        text = f"Fields without the line `{_RESUME}` may only change with --allow_config_change."
        lines += ["", *textwrap.wrap(text, width, break_on_hyphens=False)]
    for row in each.fields:
        lines += ["", *_field(row.field, each, row, values, width)]
    lines += _ways(each, "FIELD", values)
    return "\n".join(lines)


def field(each: Section, row: FieldHelp, values: Values, width: int) -> str:
    """Formats one field."""
    title = f"{each.name}.{row.field}"
    lines = _field(title, each, row, values, width)
    return "\n".join([*lines, *_ways(each, row.field, values)])


def experiment(path: Path, values: Values, catalogue: Catalogue, width: int) -> str:
    """Formats a gin file: its header, its values, its config classes, and its command."""
    lines = header(path)
    command = next((line for line in lines if line.startswith("runner --")), "")
    names = [_name(each) for each in values.bindings]
    column = min(max(map(len, names), default=0), 50)
    lines += ["", "It sets:"]
    for name, each in zip(names, values.bindings, strict=True):
        lines.append(f"  {name:<{column}} = {gin_parser.literal(each.value)}  ({each.place})")
    lines += ["", "It uses these sections (--help=NAME, with this --gin_file, lists the fields):"]
    used = dict.fromkeys(short(each.target) for each in values.bindings if each.parameter)
    for name in used:
        for found in catalogue.named(name)[:1]:
            text = f"  {name}: {found.summary}"
            lines += textwrap.wrap(text, width, subsequent_indent=_INDENT, break_on_hyphens=False)
    command = command or (
        f"runner --mode=train_and_eval --gin_file={path.name} --model_dir=runs/{path.stem}"
    )
    return "\n".join([*lines, "", "Run it:", f"  {command}"])


def header(path: Path) -> list[str]:
    """Returns the lines of the comment at the top of a gin file."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
    return [line.removeprefix("#").strip() for line in comment]


def title(path: Path) -> str:
    """Returns the first sentence of a gin file."""
    text = " ".join(itertools.takewhile(bool, header(path)))
    return first_sentence(text)


def first_sentence(text: str) -> str:
    """Returns a text up to its first full stop."""
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]


def head(title: str, row: FieldHelp) -> str:
    """Formats `RunConfig.seed: int = 0`."""
    return f"{title}: {row.type}{f' = {row.default}' if row.default else ''}"


def now(each: Section, row: FieldHelp, values: Values) -> str:
    """Formats `Now 64 (digits.gin:23).`, or an empty string."""
    found = "; ".join(map(str, values.of(each, row)))
    return f"Now {found}." if found else ""


def _field(title: str, each: Section, row: FieldHelp, values: Values, width: int) -> list[str]:
    meaning = " ".join(filter(None, [row.meaning, row.requirement]))
    resume = f"{_RESUME}: {row.may_change}" if row.resume else ""
    texts = [meaning, now(each, row, values), resume]
    return [head(title, row), *itertools.chain(*(_wrapped(text, width) for text in texts))]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_on_hyphens=False,
        break_long_words=False,  # such as paths
    )


def _ways(each: Section, name: str, values: Values) -> Iterator[str]:
    """Yields the ways to set a field."""
    yield ""
    places = values.places(each) or [("", "")]
    for scope, path in places:
        gin = f"--gin.{f'{scope}/' if scope else ''}{each.name}.{name}=VALUE"
        below = f"{path}.{name}".removeprefix(".") if path or each.name == "Experiment" else ""
        is_one = below and "[]" not in below
        yield f"Set it by {gin}" + (f" or --params_override={below}=VALUE" if is_one else "")


def _name(binding: gin_parser.Binding) -> str:
    scope = f"{binding.scope}/" if binding.scope else ""
    return f"{scope}{binding.target}{f'.{binding.parameter}' if binding.parameter else ''}"
