"""Options of modes: class attributes that describe themselves for parsing and help."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner.errors import ConfigError


class Option(NamedTuple):
    """The properties of an option in addition to its type.

    Attributes:
        name: Of the flag and of the argument in Python.
        default: Its value if it is left out.
        help: Its description.
        metavar: The placeholder of its value, or empty for a switch.
        parse: Parses its value from text. It gets the option's name and the text.
        choices: The values that it may have, or empty for any.
        examples: Values that Tab offers.
        bare: The value, or its text, of a flag without one, or None if it needs a value.
        repeated: Whether it may be given several times. Its value is a tuple.
        shell: Whether only the command line has it, because `runner.load` covers it in Python.
        sets: The values of the configuration that it sets, by path. None stands for its own value.
        without: The effect of leaving it out, for a message about an empty value.
        section: The heading under which it is shown.
    """

    name: str
    default: Any
    help: str
    metavar: str = ""
    parse: Callable[[str, str], Any] | None = None
    choices: Sequence[str] = ()
    examples: Sequence[str] = ()
    bare: Any = None
    repeated: bool = False
    shell: bool = False
    sets: Mapping[str, Any] = {}
    without: str = "the default"
    section: str = ""

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off."""
        return not self.metavar and not self.choices

    @property
    def is_path(self) -> bool:
        """Whether its value is the path of a file or of a directory."""
        return self.metavar in ("FILE", "DIRECTORY", "DIRECTORIES", "WHICH")

    def value(self, text: Any) -> Any:
        """Converts a value from the command line or from Python.

        Raises:
            ConfigError: the value is not valid for the option.
        """
        if self.repeated:
            return tuple(text)
        if isinstance(text, int) and self.parse and text is not self.default:
            text = str(text)
        if self.is_path and isinstance(text, list | tuple):
            return tuple(Path(each) for each in text)
        if not isinstance(text, str):
            return text
        if text == "":
            raise ConfigError(
                f"{{{self.name}}} is empty; omit it for {self.without}",
                **{self.name: ""},
            )
        if self.choices and text not in self.choices:
            known = ", ".join(self.choices)
            raise ConfigError(f"{{{self.name}}}: choose from {known}", **{self.name: text})
        return self.parse(self.name, text) if self.parse else text


def option(default: Any, help: str, metavar: str = "", **facts: Any) -> Any:
    """Defines an option of an options class.

    Args:
        default: Its value if it is left out.
        help: Its description.
        metavar: The placeholder of its value, or empty for a switch or an option with choices.
        facts: Further attributes of `Option`.
    """
    return Option("", default, help, metavar, **facts)


def of(options: type) -> Iterator[Option]:
    """Yields the options of a class, its own first."""
    order = options.__mro__
    owners: dict[str, Any] = {
        name: kind
        for kind in reversed(order)
        for name, value in vars(kind).items()
        if isinstance(value, Option)
    }
    for name, kind in sorted(owners.items(), key=lambda item: order.index(item[1])):
        yield vars(kind)[name]._replace(name=name, section=kind.section)


# Parsers of values. Each gets the option's name and the text.


def truth(name: str, text: str) -> bool:
    """Parses a truth value as absl does."""
    if text.lower() not in ("true", "t", "1", "false", "f", "0"):
        raise ConfigError(f"{{{name}}}: {text!r} is not true or false", **{name: text})
    return text.lower() in ("true", "t", "1")


def number(name: str, text: str) -> int:
    """Parses a whole number."""
    if not re.fullmatch(r"\d{1,9}", text):
        raise ConfigError(f"{{{name}}}: expected a number", **{name: text})
    return int(text)


def jobs(name: str, text: str) -> int:
    """Parses a number of jobs, or auto, which is 0."""
    if text == "auto":
        return 0
    if not re.fullmatch(r"\d{1,9}", text):
        raise ConfigError(f"{{{name}}}: expected a number or auto", **{name: text})
    return int(text)


def steps(name: str, text: str) -> tuple[int, int]:
    """Parses the first and the last of a range of steps."""
    if not re.fullmatch(r"\d+:\d+", text):
        raise ConfigError(f"{{{name}}}: expected FIRST:LAST, as in 100:102", **{name: text})
    first, _, last = text.partition(":")
    return int(first), int(last)


def check_steps(name: str, steps: tuple[int, int]) -> None:
    """Raises ConfigError if the range of steps is not valid."""
    first, last = steps
    if not 1 <= first <= last:
        raise ConfigError(
            f"{{{name}}}: expected FIRST:LAST, both included, from 1", **{name: f"{first}:{last}"}
        )


def seconds(name: str, text: str) -> float:
    """Parses a time in seconds."""
    if not re.fullmatch(r"\d{1,6}", text) or not int(text):
        raise ConfigError(f"{{{name}}}: expected seconds, a whole number from 1", **{name: text})
    return float(text)


def path(_: str, text: str) -> Path:
    """Parses a path, or a URL in place of one."""
    return Path(text)


def names(_: str, text: str) -> tuple[str, ...]:
    """Parses names separated by commas."""
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def directories(_: str, text: str) -> tuple[Path, ...]:
    """Parses directories separated by commas. Names may have commas, as those of trials do."""
    paths: list[Path] = []
    parts = [part for part in text.split(",") if part]
    while parts:
        ends = range(len(parts), 0, -1)
        length = next((end for end in ends if Path(",".join(parts[:end])).is_dir()), 1)
        paths.append(Path(",".join(parts[:length])))
        parts = parts[length:]
    return tuple(paths)
