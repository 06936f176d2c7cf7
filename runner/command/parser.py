"""Parses the command with the options of its mode, and writes the text of `--help`."""

import argparse
import difflib
import re
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from runner.command import table
from runner.command.modes.mode import Mode
from runner.command.modes.option import Option, truth
from runner.core import installation
from runner.core.spelling import did_you_mean
from runner.errors import ConfigError

_USAGE = "runner --mode=MODE --gin_file=FILE --model_dir=DIRECTORY [...]"
_EPILOG = """\
More help:
  runner --mode=predict --help      options of a mode
  runner --help=experiments         bundled experiments
  runner --help=digits.gin          an experiment
  runner --help=RunConfig           a config class (or RunConfig.seed, one of its fields)
  runner --help=learning_rate       search names and descriptions
  runner --gin_file=digits.gin --print_config[=changed]
                                    every value and where it was set
  runner --version                  versions
  eval "$(runner --completion=bash)"
                                    shell completion (bash or zsh)

Resuming: rerun the command to continue from the newest checkpoint.

Output: the last line on stdout is the result as JSON. Logs and tables go to stderr, except the
tables of runs and compare, which go to stdout.

Precedence, lowest first: defaults or --experiment, gin files, gin params, YAML files,
--params_override, flags that set a single value.

Exit codes:
  0    finished
  1    unexpected failure
  2    invalid flags or configuration
  3    training diverged
  4    an export was rejected
  5    the compared runs differ
  6    a job gave up after several attempts without a step
  7-9  the candidate is worse, equivalent or undecided (decide)
  130  stopped by SIGINT; everything is saved, rerun the command to continue
  143  preempted by SIGTERM; everything is saved, rerun the command to continue
"""
_COMMON = ("--mode", "--model_dir", "--help", "--version", "--completion")


class _Parser(argparse.ArgumentParser):
    """A parser that raises ConfigError."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


class _Version(argparse.Action):
    """Prints the versions and exits."""

    def __call__(self, *_: object) -> NoReturn:
        print(installation.versions())
        raise SystemExit(0)


def parse(arguments: Sequence[str], otherwise: Mode) -> tuple[Mode, dict[str, Any]]:
    """Returns the mode, and the given flags by name, including `mode` and `model_dir`.

    Args:
        arguments: The arguments of the command.
        otherwise: The mode of a command that only prints its configuration.

    Raises:
        ConfigError: an unknown flag or mode, or a flag that the mode does not have.
        SystemExit: the requested text was printed.
    """
    if arguments[0] == "help":
        arguments = [f"--help={topic}" for topic in arguments[1:2]] or ["--help"]
    _answer(arguments)
    name = _mode(arguments)
    mode = table.named(name, f"--mode={name}") if name else otherwise
    if not {"--help", "-h"}.isdisjoint(arguments):
        print(help_of(mode) if name else overview())
        raise SystemExit(0)
    options = table.options(mode)
    arguments = [long_form(argument, options) for argument in arguments]
    known, rest = parser(mode).parse_known_args(arguments)
    flags = {name: value for name, value in vars(known).items() if value is not None}
    _take(rest, mode, flags)
    if not name and "print_config" not in flags:
        raise ConfigError(f"--mode is missing: {', '.join(table.modes())}")
    for flag in flags.keys() & options:
        if options[flag].parse is truth:
            flags[flag] = options[flag].value(flags[flag])
    return mode, flags


def _mode(arguments: Sequence[str]) -> str:
    """Returns the mode in the arguments, or an empty text if there is none."""
    name = ""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        flag, equals, value = argument.partition("=")
        if flag == "--mode":
            name = value if equals else following
    return name


def long_form(argument: str, options: Mapping[str, Option]) -> str:
    """Expands `--gin.NAME=VALUE` to `--gin_params=NAME=VALUE`, and absl's `--noNAME`.

    Absl's `--noNAME` becomes `--NAME=false`.

    Raises:
        ConfigError: a switch has a value.
    """
    if argument.startswith("--gin."):
        return f"--gin_params={argument.removeprefix('--gin.')}"
    name, equals, value = argument.removeprefix("--").partition("=")
    option, opposite = options.get(name), options.get(name.removeprefix("no"))
    if option and option.is_switch and option.parse is None and equals:
        raise ConfigError(f"--{name}={value}: --{name} takes no value")
    if option is None and opposite and opposite.parse is truth and not equals:
        return f"--{opposite.name}=false"
    return argument


def _take(rest: Sequence[str], mode: Mode, flags: dict[str, Any]) -> None:
    """Adds arguments without a flag to the option that takes them.

    Raises:
        ConfigError: no option takes an argument, or an option is for other modes.
    """
    if unknown := [argument for argument in rest if argument.startswith("-")] or (
        not mode.positional and rest
    ):
        first = rest.index(unknown[0])
        name = unknown[0].partition("=")[0].removeprefix("--")
        if table.taking(name):
            raise table.not_an_option(name, mode)
        raise ConfigError(_unknown(rest[first:], mode))
    if not rest:
        return
    name = mode.positional
    known = [flags[name]] if flags.get(name) else []
    if name == "model_dir" and len([*known, *rest]) > 1:
        raise ConfigError(f"--mode={mode.name} takes one directory, got {len([*known, *rest])}")
    flags[name] = ",".join([*known, *rest])


def parser(mode: Mode) -> argparse.ArgumentParser:
    """Returns the parser of a mode's flags. It raises ConfigError for arguments it cannot parse."""
    made = _Parser(
        prog="runner",
        usage=f"runner --mode={mode.name} [...]",
        description=mode.summary if mode.name else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    made.add_argument("--mode", help=argparse.SUPPRESS)
    made.add_argument("--version", action=_Version, nargs=0, help=argparse.SUPPRESS)
    title = f"Options of {mode.name}"
    groups = {title: made.add_argument_group(title)}
    shown = f"the directory {mode.directory}" if mode.directory else argparse.SUPPRESS
    groups[title].add_argument("--model_dir", metavar="DIRECTORY", help=shown)
    for each in table.options(mode).values():
        if each.section not in groups:
            groups[each.section] = made.add_argument_group(each.section)
        groups[each.section].add_argument(f"--{each.name}", **_as_argparse(each))
    return made


def _as_argparse(option: Option) -> dict[str, Any]:
    """Converts an option to arguments for argparse. Values are checked later, in the options."""
    said: dict[str, Any] = {"help": option.help.replace("%", "%%")}
    if option.metavar:
        said["metavar"] = option.metavar
    elif option.choices:
        said["metavar"] = "|".join(option.choices)
    if option.repeated:
        return {**said, "action": "append"}
    if option.is_switch and option.parse is None:
        return {"help": said["help"], "action": "store_const", "const": True}
    if option.bare is not None:
        return {**said, "nargs": "?", "const": option.bare}
    return said


def help_of(mode: Mode) -> str:
    """Returns the options of a mode."""
    return parser(mode).format_help().rstrip()


def overview() -> str:
    """Returns the modes, grouped, each with its description."""
    width = shutil.get_terminal_size((100, 24)).columns
    lines = [
        f"usage: {_USAGE}",
        "",
        "Train, evaluate and export TensorFlow models from gin configurations.",
    ]
    heading = ""
    for mode in table.modes().values():
        if mode.heading != heading:
            heading = mode.heading
            lines += ["", f"{heading}:"]
        lines += textwrap.wrap(
            mode.summary,
            width,
            initial_indent=f"  {mode.name:<19} ",
            subsequent_indent=" " * 22,
            break_on_hyphens=False,
        )
    return "\n".join([*lines, "", _EPILOG.rstrip()])


def _unknown(rest: Sequence[str], mode: Mode) -> str:
    """Returns the message about the first of the arguments that no flag takes."""
    argument, following = rest[0], [*rest[1:2], ""][0]
    if not argument.startswith("-"):
        return f"{argument!r} is not a flag{_flag_for(argument)}"
    name, equals, value = argument.partition("=")
    if not equals and not following.startswith("-"):
        value = following
    from runner.command.help import facts, other_tools

    if instead := other_tools.instead(name, value):
        return f"unknown flag {name}; {instead}"
    field = name.lstrip("-").replace("-", "_")
    if any(row.field == field for section in facts.table() for row in section.fields):
        return f"unknown flag {name}; {field} is a configuration field, see --help={field}"
    own = [*_COMMON, *(f"--{option}" for option in table.options(mode))]
    return f"unknown flag {name}{did_you_mean(name, own) or did_you_mean(name, all_flags())}"


def _flag_for(word: str) -> str:
    """Returns the flag that a word without one probably belongs to, as the end of a message."""
    if word.endswith(".gin"):
        return f"; did you mean --gin_file={word}?"
    if re.fullmatch(r"[\w./]+\.\w+=.*", word):
        flag = "--gin." if word.lstrip("_")[0].isupper() else "--params_override="
        return f"; did you mean {flag}{word}?"
    names = difflib.get_close_matches(word.lower(), table.modes(), n=1, cutoff=0.75)
    return f"; did you mean --mode={names[0]}?" if names else " (flags start with --)"


def all_flags() -> dict[str, str]:
    """Returns the flags of all modes with their descriptions, from the first mode that has each."""
    flags = {f"--{name}": "" for name in ("mode", "model_dir")}
    for mode in table.modes().values():
        flags |= {
            f"--{option.name}": option.help
            for option in table.options(mode).values()
            if f"--{option.name}" not in flags
        }
    return flags | {name: "" for name in _COMMON if name not in flags}


def unknown_argument(name: str, mode: Mode) -> ConfigError:
    """Returns the error about a Python argument that the mode does not have."""
    if table.taking(name):
        return table.not_an_option(name, mode)
    known = [option.name for option in table.options(mode).values() if not option.shell]
    return ConfigError(f"runner.run has no argument {name}{did_you_mean(name, known)}")


def _answer(arguments: Sequence[str]) -> None:
    """Prints a help topic, or a shell completion, and exits, if the arguments request it."""
    if arguments[0] == "--complete":
        print("\n".join(_candidates(" ".join(arguments[1:]))))
        raise SystemExit(0)
    for argument in arguments:
        flag, equals, topic = argument.partition("=")
        if flag == "--completion":
            from runner.command.help import completion

            print(completion.script(topic))
            raise SystemExit(0)
        if flag == "--help" and equals:
            if not re.search(r"[^\W_]", topic):
                raise ConfigError(f"--help={topic} is not a topic; try --help or --help=modes")
            from runner.command.help import topics

            print(topics.answer(topic, _asked(arguments)))
            raise SystemExit(0)


def _candidates(line: str) -> list[str]:
    """Returns completions of the last word of a line: flags of its mode, and values."""
    from runner.command.help import completion

    mode = table.modes().get(_mode(line.split()))
    modes = [mode] if mode else table.modes().values()
    flags = {
        "--mode": completion.Flag(values=list(table.modes())),
        "--model_dir": completion.Flag(is_path=True),
        "--help": completion.Flag(needs_value=False),
        "--version": completion.Flag(needs_value=False),
        "--completion": completion.Flag(values=list(completion.SCRIPTS)),
    }
    for option in (option for each in modes for option in table.options(each).values()):
        needs = option.bare is None and not option.is_switch
        values = [*option.choices, *option.examples]
        flags[f"--{option.name}"] = completion.Flag(needs, values, option.is_path)
    return completion.candidates(line, flags, takes_folders=bool(mode and mode.positional))


def _asked(arguments: Sequence[str]) -> Any:
    """Returns the input of a help topic: the configuration flags, and all flags and modes."""
    from runner.command.help import topics

    configuring = _Parser(allow_abbrev=False, add_help=False)
    names = ("gin_file", "gin_params", "config_file", "params_override")
    for name in names:
        configuring.add_argument(f"--{name}", action="append", default=[])
    configuring.add_argument("--experiment", default="")
    given, _ = configuring.parse_known_args([long_form(each, {}) for each in arguments])
    return topics.Asked(
        given.gin_file,
        given.gin_params,
        given.config_file,
        given.params_override,
        given.experiment,
        flags=all_flags(),
        modes={name: mode.summary for name, mode in table.modes().items()},
        width=shutil.get_terminal_size((100, 24)).columns,
    )
