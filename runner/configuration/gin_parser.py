"""Finds gin files, and parses them and the files they include to statements with locations.

This module handles only syntax, with gin's own parser. Names stay names, which `gin_names`
resolves, so this imports no TensorFlow and no user module.
"""

import contextlib
import dataclasses
import io
import math
import re
import shlex
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gin import config_parser

from runner.core import sizes, spelling
from runner.core import text as words
from runner.errors import ConfigError
from runner.internals import gin as gin_internals

PACKAGE = Path(__file__).parents[1]
EXPERIMENTS = PACKAGE.parent / "experiments"

_MOST_STATEMENTS = 5_000
_LONGEST_LABEL = 300
_LONGEST_LINE = 1000
_SHORT = re.compile(r"[\w./]+=\S")
_BARE = re.compile(r"[^\s'\"#@%][^\s'\"#]*")
_LITERALS = {"true": "True", "false": "False", "none": "None", "null": "None"}


@dataclasses.dataclass(frozen=True)
class Reference:
    """`@scope/name` or, if it is `called`, `@scope/name()`."""

    scope: str
    name: str
    called: bool

    def __repr__(self) -> str:
        """Returns the reference as in a gin file."""
        scope = f"{self.scope}/" if self.scope else ""
        return f"@{scope}{self.name}{'()' if self.called else ''}"


@dataclasses.dataclass(frozen=True)
class Macro:
    """`%name`."""

    name: str

    def __repr__(self) -> str:
        """Returns the macro as in a gin file."""
        return f"%{self.name}"


class Bare(str):
    """A word without quotes on a command line, which is a string if only a string is possible.

    Attributes:
        refusal: The error message if a string is not possible.
    """

    refusal: str


@dataclasses.dataclass(frozen=True)
class Source:
    """A gin file, or the text of one `--gin_params`."""

    label: str
    folder: Path
    is_file: bool

    @classmethod
    def flag(cls, text: str) -> "Source":
        """Returns the source for one `--gin_params`, named by its short form if there is one."""
        shown = words.shortened(text, _LONGEST_LABEL)
        quote = "'" if '"' in text else '"'
        label = f"--gin_params {quote}{shown}{quote}"
        if _SHORT.match(text):
            flag = f"--gin.{shown}"
            label = flag if shlex.quote(flag) == flag else f"{quote}{flag}{quote}"
        return cls(label, Path.cwd(), is_file=False)

    def place(self, line: int) -> str:
        """Returns the location of a line in messages: `digits.gin:7`, or the flag."""
        return f"{self.label}:{line}" if self.is_file else self.label


@dataclasses.dataclass(frozen=True)
class Import:
    """`import module`. In its file, `name` refers to the module `stands_for`."""

    module: str
    name: str
    stands_for: str
    source: Source
    place: str


@dataclasses.dataclass(frozen=True)
class Binding:
    """`scope/target.parameter = value`. Without a parameter, `target` names a macro."""

    scope: str
    target: str
    parameter: str
    value: Any
    source: Source
    place: str


Statement = Import | Binding


def parts(value: Any) -> Iterator[Any]:
    """Yields a value and, if it is a container, all its parts."""
    yield value
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from parts(item)


def literal(value: Any) -> str:
    """Returns a value in gin's syntax, in which infinity is spelled differently than in Python.

    Raises:
        ValueError: if it is NaN, which gin cannot express.
    """
    if isinstance(value, dict):
        items = (f"{literal(key)}: {literal(item)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, tuple):
        return f"({''.join(f'{literal(item)}, ' for item in value).rstrip()})"
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("gin cannot spell NaN")
    if isinstance(value, float) and math.isinf(value):
        return "1e999" if value > 0 else "-1e999"
    return repr(value)


def find(name: str, including_folder: Path | None = None) -> Path:
    """Returns the path of the gin file called `name`.

    It searches the working directory, the directory of the including file, the project's
    experiments and the package's own files.

    Raises:
        ConfigError: if it is not found. The message lists the searched directories and a similar
            name.
    """
    path = Path(name).expanduser()
    searched = [Path.cwd(), including_folder, EXPERIMENTS, PACKAGE]
    if path.is_absolute():
        searched = [path.parent]
    folders = list(dict.fromkeys(folder for folder in searched if folder))
    near: list[Path] = []
    with contextlib.suppress(OSError, ValueError):  # a name that is too long or not a path
        for folder in folders:
            if (folder / path).is_file():
                return folder / path
        near += [file for folder in folders for file in folder.glob("*.gin")]
        near += [file for folder in folders for file in (folder / path.parent).glob("*.gin")]
    if including_folder is None:  # files that exist only to be included cannot be run
        near = [file for file in near if file.parent != PACKAGE]
    meant = spelling.did_you_mean(f"{path.stem}.gin", [file.name for file in near])
    raise ConfigError(
        f"no gin file {words.quoted(name)} in {', '.join(str(folder) for folder in folders)}{meant}"
    )


def read(gin_files: Iterable[str], gin_params: Iterable[str]) -> Iterator[Statement]:
    """Yields all statements in the order in which they apply: the files, then the parameters.

    An `include` is replaced by the file's statements. A repeated include of a file has no effect.

    Raises:
        ConfigError: if a file is missing, includes itself or is too large, or a line is not gin.
    """
    for number, statement in enumerate(_read(gin_files, gin_params), start=1):
        if number > _MOST_STATEMENTS:
            raise ConfigError(f"{statement.place}: more than {_MOST_STATEMENTS:,} lines of gin")
        yield statement


def _read(gin_files: Iterable[str], gin_params: Iterable[str]) -> Iterator[Statement]:
    included: set[Path] = set()
    for name in gin_files:
        yield from _from_file(find(str(name)), included)
    for text in gin_params:
        source = Source.flag(text)
        key, _, word = (part.strip() for part in text.partition("="))
        try:
            yield from _from_text(text, source, included)
        except ConfigError as error:
            if not _BARE.fullmatch(word) or word.lower() in _LITERALS:
                raise
            for statement in _from_text(f"{key} = {word!r}", source, included):
                value = Bare(word)
                value.refusal = str(error).removeprefix(f"{source.label}: ")
                assert isinstance(statement, Binding)
                yield dataclasses.replace(statement, value=value)


def _from_file(
    path: Path, included: set[Path], above: tuple[Path, ...] = ()
) -> Iterator[Statement]:
    """Yields the statements of a file that the files `above` include."""
    included.add(path.resolve())
    label = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    try:
        text = sizes.read(path, "utf-8-sig")
    except (OSError, UnicodeDecodeError, sizes.TooLargeError) as error:
        raise ConfigError(f"{label}: cannot be read: {error}") from error
    source = Source(str(label), path.parent, is_file=True)
    yield from _from_text(text, source, included, (*above, path))


def _from_text(
    text: str, source: Source, included: set[Path], above: tuple[Path, ...] = ()
) -> Iterator[Statement]:
    for statement in _parse(text, source):
        place = source.place(statement.location.line_num)
        match statement:
            case config_parser.BindingStatement(scope, target, parameter, value):
                yield Binding(scope, target, parameter, value, source, place)
            case config_parser.ImportStatement(module="__gin__.dynamic_registration"):
                continue  # Every file is read with dynamic registration.
            case config_parser.ImportStatement(module=module):
                name = statement.bound_name()
                whole = statement.is_from or statement.alias
                yield Import(module, name, module if whole else name, source, place)
            case config_parser.IncludeStatement(filename):
                try:
                    path = find(filename, source.folder)
                except ConfigError as error:
                    raise ConfigError(f"{place}: {error}") from None
                _check_include(path, above, place)
                if path.resolve() not in included:
                    yield from _from_file(path, included, above)


def _check_include(path: Path, above: tuple[Path, ...], place: str) -> None:
    """Checks that a file does not include itself and that includes are not nested too deeply.

    Raises:
        ConfigError: if they are.
    """
    names = [each.name for each in above]
    starts = [number for number, each in enumerate(above) if each.resolve() == path.resolve()]
    if starts:
        cycle = " -> ".join([*names[starts[0] :], path.name])
        raise ConfigError(f"{place}: a file cannot include itself: {cycle}; remove this include")
    if len(above) >= sizes.DEEPEST:
        last = " -> ".join(names[-3:])
        raise ConfigError(
            f"{place}: files include each other more than {sizes.DEEPEST} deep: ... -> {last}"
        )


class _Names(config_parser.ParserDelegate):
    """Makes gin's parser keep references and macros as names."""

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> Reference:
        scope, _, name = scoped_configurable_name.rpartition("/")
        return Reference(scope, name, evaluate)

    def macro(self, macro_name: str) -> Macro:
        return Macro(macro_name)


def _parse(text: str, source: Source) -> list[Any]:
    try:
        sizes.check_written(text)
        statements = list(config_parser.ConfigParser(text, _Names()))
        for each in statements:
            sizes.check(getattr(each, "value", None))
        return statements
    except tokenize.TokenError as error:
        place = source.place(_opened(text) or error.args[1][0])
        raise ConfigError(f"{place}: a bracket or quote is not closed") from None
    except SyntaxError as error:
        line = error.lineno or 1
        written = "".join(text.splitlines()[line - 1 : line])
        raise ConfigError(
            f"{source.place(line)}: {_meaning(written, str(error), source)}"
        ) from None
    except sizes.TooLargeError as error:
        raise ConfigError(f"{source.label}: {error}") from None
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{source.label}: has a value that cannot be: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Describes why Python could not make a value, for example from a list as a dict key."""
    if isinstance(error, RecursionError | MemoryError):
        return "brackets or signs are nested too deeply"
    return words.shortened(str(error), _LONGEST_LABEL)


def _opened(text: str) -> int:
    """Returns the line of the innermost bracket still open at the end of a text, or 0."""
    lines: list[int] = []
    with contextlib.suppress(tokenize.TokenError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.string in ("(", "[", "{"):
                lines.append(token.start[0])
            elif token.string in (")", "]", "}"):
                del lines[-1:]
    return lines[-1] if lines else 0


def _meaning(line: str, error: str, source: Source) -> str:
    """Describes the probable mistake in a line that gin's parser rejects."""
    if re.match(r"\s*include\b", line):
        return "a file's name needs quotes: include 'base.gin'"
    key, equals, value = (part.strip() for part in line.partition("#")[0].partition("="))
    token = gin_internals.REFUSED_TOKEN.search(error)
    word = value if re.fullmatch(r"[\w./:~+*-]+", value) else token and token.group(1)
    if len(line) > _LONGEST_LINE:
        return f"cannot read {words.quoted(line.strip())}; expected Name.parameter = value"
    if equals and not value:
        return f"{key} has no value"
    if word and word.lower() in _LITERALS:
        return f"write {_LITERALS[word.lower()]} for {word}, or '{word}' in quotes for a string"
    if word and not word[0].isdigit():
        quoted = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", f'"{word}"', value, count=1)
        shell = "" if source.is_file else f"; in a shell, '--gin.{key}={quoted}'"
        return f"a string needs quotes: {key} = {quoted}{shell}"
    return f"cannot read {line.strip()!r}; expected Name.parameter = value"
