"""The modes, by name: each module of `runner.command.modes` that has a `MODE` is one."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from runner.command.modes import groups, option
from runner.command.modes.mode import Mode
from runner.core import plugins
from runner.core.spelling import did_you_mean
from runner.errors import ConfigError

HEADINGS = (
    *("Create", "Train", "Evaluate and use", "Many runs", "Look at runs", "Try and verify"),
)
_PACKAGE = "runner.command.modes"
_MOST = 6  # modes that a message names


@functools.cache
def modes() -> Mapping[str, Mode]:
    """Returns all modes, in the order of their headings."""
    found = []
    for name in plugins.names(_PACKAGE):
        module = plugins.load(_PACKAGE, name)
        if mode := getattr(module, "MODE", None):
            found.append(mode._replace(name=name.removesuffix("_")))  # of import_
    return {mode.name: mode for mode in sorted(found, key=_order)}


def _order(mode: Mode) -> int:
    return HEADINGS.index(mode.heading) if mode.heading in HEADINGS else len(HEADINGS)


def named(name: str, shown: str) -> Mode:
    """Returns the mode of a name.

    Args:
        name: Its name.
        shown: The user's spelling, for the message.

    Raises:
        ConfigError: there is no such mode.
    """
    if name not in modes():
        raise ConfigError(unknown(name, shown))
    return modes()[name]


def unknown(mode: str, shown: str, known: Sequence[str] = ()) -> str:
    """Returns the message about an unknown mode, which the user wrote as `shown`."""
    known = known or tuple(modes())
    return f"{shown}: unknown mode{did_you_mean(mode, known)} (modes: {', '.join(known)})"


def options(mode: Mode) -> dict[str, option.Option]:
    """Returns the options of a mode, by name, its own first."""
    return {each.name: each for each in option.of(mode.options)}


def taking(name: str) -> list[str]:
    """Returns the names of the modes that have an option."""
    return [mode.name for mode in modes().values() if name in options(mode)]


def not_an_option(name: str, mode: Mode) -> ConfigError:
    """Returns the error about an option that only other modes have."""
    able = taking(name)
    if len(able) <= _MOST:
        where = f"only {', '.join(able)} {'has' if len(able) == 1 else 'have'} it"
    elif issubclass(mode.options, groups.OfRuns):
        where = "each run has its own configuration"
    else:
        where = f"modes that have it include {', '.join(able[:3])}"
    shown: dict[str, Any] = {name: None, "mode": mode.name or "MODE"}
    whose = "{mode}" if mode.name else "a command without {mode}"
    return ConfigError(f"{{{name}}} is not an option of {whose}: {where}", **shown)
