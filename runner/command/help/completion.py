"""Completes the word under the cursor in bash and zsh. No TensorFlow.

The scripts call the command itself, so they need not change when the command does. Libraries for
completion work with an argparse parser, which cannot represent `--gin.Section.field=` or paths
within a value. shtab also does not support `--name=value`.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from runner.command.help import topics
from runner.command.help.catalogue import Catalogue
from runner.command.help.facts import FieldHelp, Section
from runner.command.help.values import Values
from runner.configuration import gin_parser
from runner.core import spelling
from runner.errors import ConfigError

# Both scripts omit the blank after a word whose end shows that more follows. bash splits words at
# "=" and ":".
_BASH = r"""
_runner_complete() {
    local line="${COMP_LINE:0:COMP_POINT}" IFS=$'\n'
    local word="${line##* }"
    COMPREPLY=($("${COMP_WORDS[0]}" --complete "$line" 2>/dev/null))
    [[ $COMP_WORDBREAKS == *=* ]] && COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*[=:]}"}"}")
    [[ ${#COMPREPLY[@]} == 1 && "${COMPREPLY[0]}" == *[=./] ]] && compopt -o nospace
}
complete -F _runner_complete runner
"""
_ZSH = r"""
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_runner_complete() {
    local -a found
    found=("${(@f)$(${words[1]} --complete "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)}")
    compadd -S '' -- ${(M)found:#*[=./]}
    compadd -- ${found:#*[=./]}
}
compdef _runner_complete runner
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH}
_SPECIAL = re.compile(r"""[\x00-\x20\x7f-\xa0\ud800-\udfff\\'"`$;&|<>(){}\[\]*?!#~]""")


def script(shell: str) -> str:
    """Returns the code that a shell must evaluate.

    Raises:
        ConfigError: there is none for that shell.
    """
    if shell not in SCRIPTS:
        meant = spelling.did_you_mean(shell, SCRIPTS) or f"; there are {', '.join(SCRIPTS)}"
        raise ConfigError(f"--completion={shell}: no such shell{meant}")
    return SCRIPTS[shell].strip()


class Flag(NamedTuple):
    """A flag's properties for completion.

    Attributes:
        needs_value: Whether it requires a value.
        values: The possible values, as far as known.
        is_path: Whether its value may be the path of a file or a directory.
    """

    needs_value: bool = True
    values: Sequence[str] = ()
    is_path: bool = False


def candidates(line: str, flags: Mapping[str, Flag], *, takes_folders: bool) -> list[str]:
    """Returns the completions of the last word of a line, as whole words.

    Args:
        line: The command line up to the cursor.
        flags: The flags of its mode, by name: `--data`.
        takes_folders: Whether words without a flag are directories.
    """
    *before, word = [*line.split(), ""] if line[-1:].isspace() else line.split() or [""]
    flag, equals, value = word.partition("=")
    if word.startswith("--gin."):
        found = _bindings(word.removeprefix("--gin."), "--gin.", _known(before))
    elif takes_folders and not word.startswith("-"):
        found = [each for each in _files(word, "*") if each.endswith("/")]
    elif not equals:
        found = [f"{name}=" if each.needs_value else name for name, each in flags.items()]
        found += ["--gin."]
    elif flag == "--help":
        found = [f"--help={each}" for each in _topics(value, _known(before))]
    elif flag == "--gin_params":
        found = _bindings(value, "--gin_params=", _known(before))
    elif flag == "--params_override":
        done, comma, path = value.rpartition(",")
        paths = _paths(path, _known(before))
        found = [f"{flag}={done}{comma}{each}" for each in paths]
    elif flag == "--gin_file":
        found = [f"{flag}={each}" for each in _gin_files(value)]
    else:
        known = flags.get(flag, Flag())
        files = list(_files(value, "*")) if known.is_path else []
        found = [f"{flag}={each}" for each in (*known.values, *files)]
    return sorted({each for each in found if each.startswith(word)})


def _known(words: Iterable[str]) -> tuple[Catalogue, Values]:
    """Returns the config classes and values, including those of gin files on the line."""
    files = [each.partition("=")[2] for each in words if each.startswith("--gin_file=")]
    with contextlib.suppress(ConfigError):
        statements = list(gin_parser.read(files, []))
        return Catalogue(statements), Values(statements)
    return Catalogue(), Values()


def _bindings(text: str, before: str, known: tuple[Catalogue, Values]) -> list[str]:
    """Returns `Section.`, then `Section.field=`, then the known values."""
    name, equals, _ = text.partition("=")
    target, dot, _ = name.rpartition(".")
    scope, slash, target = target.rpartition("/") if dot else name.rpartition("/")
    before += f"{scope}{slash}"
    catalogue, values = known
    if not dot:
        scopes = {s for each in catalogue.sections for s, _ in values.places(each) if s}
        found = [f"{before}{each.name}." for each in catalogue.sections]
        return found + ([] if slash else [f"{before}{each}/" for each in scopes])
    found = []
    for each in catalogue.named(target):
        for field in each.fields:
            start = f"{before}{target}.{field.field}="
            found += [f"{start}{value}" for value in _values(each, field)] if equals else [start]
    return found


def _values(section: Section, field: FieldHelp) -> Iterator[str]:
    """Yields the values of a field with a fixed set of values."""
    if field.type == "bool":
        yield from ("True", "False")
    if field.field == "type" and field.type.startswith("str"):  # a choice of Model Garden's
        yield from (each.field for each in section.fields if each.field != "type")
    if field.type.startswith("str"):
        yield from re.findall(r"'([\w.-]+)'", field.allowed)


def _paths(text: str, known: tuple[Catalogue, Values]) -> Iterator[str]:
    """Yields `trainer.`, then `trainer.train_steps=`, then the known values."""
    catalogue, values = known
    # Standard config classes come first, so that a class that replaces one overrides it.
    sections = sorted(catalogue.sections, key=lambda each: not each.path)
    places = {path: each for each in sections for _, path in values.places(each)}
    path, equals, _ = text.partition("=")
    above, _, _ = path.rpartition(".")
    section = places.get(above)
    if section is None:
        return
    for field in section.fields:
        below = f"{above}.{field.field}".removeprefix(".")
        if equals and below == path:
            yield from (f"{path}={value}" for value in _values(section, field))
        elif not equals:
            yield f"{below}." if below in places else f"{below}="


def _topics(text: str, known: tuple[Catalogue, Values]) -> Iterator[str]:
    catalogue, _ = known
    above, dot, _ = text.rpartition(".")
    yield from topics.LISTS
    yield from (file.name for file in topics.experiments())
    yield from (each.name for each in catalogue.sections)
    for each in catalogue.named(above) if dot else ():
        yield from (f"{above}.{field.field}" for field in each.fields)


def _gin_files(text: str) -> Iterator[str]:
    if "/" not in text:
        yield from (file.name for file in topics.experiments())
    yield from _files(text, "*.gin")


def _files(text: str, pattern: str) -> Iterator[str]:
    """Yields the completions of a path, except names that a shell would interpret."""
    above, slash, _ = text.rpartition("/")
    folder = Path(f"{above}{slash}").expanduser()
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if _SPECIAL.search(path.name):
                continue
            if path.is_dir() and not path.name.startswith("."):
                yield f"{above}{slash}{path.name}/"
            elif path.match(pattern):
                yield f"{above}{slash}{path.name}"
