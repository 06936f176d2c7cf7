"""`--help=TOPIC`: a config class, a field, an experiment, a list, or a search. No TensorFlow."""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from runner.command.help import pages
from runner.command.help.catalogue import Catalogue
from runner.command.help.facts import FieldHelp, Section
from runner.command.help.values import Values
from runner.configuration import gin_parser, yaml_files
from runner.core import spelling
from runner.errors import ConfigError

LISTS = ("modes", "experiments")
_Hit = tuple[Section, FieldHelp]
_MOST = 20  # fields shown by a search if only their meanings match


class Asked(NamedTuple):
    """The context of a request for help.

    Attributes:
        gin_files: The gin files on the command line. Fields are shown with the values they set.
        gin_params: The gin parameters, used in the same way.
        config_files: The YAML files, used in the same way.
        overrides: The overrides, used in the same way.
        experiment: A registered experiment, whose values only `--print_config` shows.
        flags: The command's flags, with their meanings.
        modes: The modes, with their descriptions.
        width: The maximum length of a line.
    """

    gin_files: Sequence[str] = ()
    gin_params: Sequence[str] = ()
    config_files: Sequence[str] = ()
    overrides: Sequence[str] = ()
    experiment: str = ""
    flags: Mapping[str, str] = {}
    modes: Mapping[str, str] = {}
    width: int = 100


def answer(topic: str, asked: Asked) -> str:
    """Returns the output of `--help=topic`.

    Raises:
        ConfigError: the topic is unknown, or a given file cannot be read.
    """
    if topic == "modes":
        return _modes(asked.modes)
    if topic == "experiments":
        return _experiments(asked.width)
    file = _gin_file(topic)
    files = [*asked.gin_files, *([str(file)] if file else [])]
    statements = list(gin_parser.read(files, asked.gin_params))
    layers = [yaml_files.read_file(Path(each)) for each in asked.config_files]
    layers += [yaml_files.read_override(each) for each in asked.overrides]
    values = Values(statements, layers)
    catalogue = Catalogue(statements, _modules(topic))
    if file:
        return pages.experiment(file, values, catalogue, asked.width)
    if found := catalogue.find(topic):
        shown = [
            pages.field(each, field, values, asked.width)
            if field
            else pages.section(each, values, asked.width)
            for each, field in found
        ]
        if named := asked.experiment:
            shown.append(f"What --experiment={named} sets: --print_config --experiment={named}")
        return "\n\n\n".join(shown)
    if lines := list(_search(topic, catalogue, values, asked)):
        return "\n".join(lines)
    raise ConfigError(f"--help={topic}: {_unknown(topic, catalogue, asked)}")


def _modes(modes: Mapping[str, str]) -> str:
    width = max(map(len, modes))
    return "\n".join(f"{name:<{width}}  {does}" for name, does in modes.items())


def _experiments(width: int) -> str:
    """Lists the gin files with the first sentence of their headers."""
    files = experiments()
    column = max((len(file.name) for file in files), default=0)
    rows = [
        textwrap.fill(
            f"{file.name:<{column}}  {pages.title(file)}",
            width,
            subsequent_indent=" " * (column + 2),
        )
        for file in files
    ]
    ends = [
        "Details: runner --help=digits.gin. For Model Garden's experiments, use --experiment=NAME."
    ]
    return "\n".join([*rows, "", *ends])


def experiments() -> list[Path]:
    """Returns the gin files that come with the runner."""
    return sorted(gin_parser.EXPERIMENTS.glob("*.gin"))


def _gin_file(topic: str) -> Path | None:
    """Returns the file that a topic names: `digits.gin`, or `digits` among the bundled ones.

    Raises:
        ConfigError: there is no such file.
    """
    if topic.endswith(".gin"):
        return gin_parser.find(topic)
    return next((file for file in experiments() if file.stem == topic), None)


def _modules(topic: str) -> list[str]:
    """Returns the modules that a dotted name may start with: a and a.B for `a.B.c`."""
    parts = topic.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _search(topic: str, catalogue: Catalogue, values: Values, asked: Asked) -> Iterator[str]:
    """Yields the flags, config classes and fields that contain a word, names before meanings."""
    if hint := spelling.elsewhere(topic):
        yield from textwrap.wrap(hint.removeprefix("; "), asked.width)
        yield ""
    named, meant = _hits(topic, catalogue)
    found = [
        *((f"{name}: {meaning}", "") for name, meaning in _named(topic, asked.flags)),
        *((f"--mode={name}: {does}", "") for name, does in _named(topic, asked.modes)),
        *(
            (f"{each.name}: {each.summary}", "")
            for each in catalogue.sections
            if _is_in(topic, _words(each.name))
        ),
        *(_row(each, field, values) for each, field in [*named, *meant[:_MOST]]),
    ]
    for text, now in found:
        yield from textwrap.wrap(text, asked.width, subsequent_indent="    ")
        yield from [f"    {now}"] if now else []
    if len(meant) > _MOST:
        yield f"and {len(meant) - _MOST} more whose meanings mention it"
    if found:
        yield ""
        yield "--help=NAME.FIELD says all about one; --gin.NAME.FIELD=VALUE sets it"


def _hits(word: str, catalogue: Catalogue) -> tuple[list[_Hit], list[_Hit]]:
    """Returns the fields whose names contain a word, and those whose meanings alone do."""
    fields = [(each, field) for each in catalogue.sections for field in each.fields if field.is_own]
    named = [hit for hit in fields if _is_in(word, hit[1].field)]
    meant = [hit for hit in fields if hit not in named and _is_in(word, hit[1].meaning)]
    return sorted(named, key=lambda hit: hit[1].field != word), meant


def _named(word: str, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((name, said) for name, said in known.items() if _is_in(word, name))


def _row(each: Section, field: FieldHelp, values: Values) -> tuple[str, str]:
    meaning = pages.first_sentence(field.meaning)
    text = f"{pages.head(f'{each.name}.{field.field}', field)}  {meaning}"
    return text, pages.now(each, field, values)


def _is_in(word: str, text: str) -> bool:
    """Returns whether the words of `word` are whole words of `text`, or their plurals."""
    wanted = r"[\W_]+".join(map(re.escape, re.split(r"[\W_]+", word)))
    return bool(re.search(rf"(?<![^\W_]){wanted}s?(?![^\W_])", text, re.IGNORECASE))


def _words(name: str) -> str:
    """Splits a class name: `Early Stopping Config`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)


def _unknown(topic: str, catalogue: Catalogue, asked: Asked) -> str:
    above, _, last = topic.rpartition(".")
    if sections := catalogue.named(above):
        own = [field.field for field in sections[0].fields]
        return f"{sections[0].name} has no {last!r}{spelling.did_you_mean(last, own)}"
    names = {each.name for each in catalogue.sections}
    fields = {field.field for each in catalogue.sections for field in each.fields}
    modules = {each.full_name for each in catalogue.sections}
    ends = {f"{each.module.rpartition('.')[2]}.{each.name}" for each in catalogue.sections}
    ends |= {each.module for each in catalogue.sections}
    known = [*LISTS, *names, *fields, *modules, *ends, *asked.flags, *asked.modes]
    meant = spelling.did_you_mean(topic, [*known, *(file.name for file in experiments())])
    task = " (a section of your task: --help=my_module.MyConfig, or give its --gin_file, too)"
    return f"no match in names or descriptions{meant or task}"
