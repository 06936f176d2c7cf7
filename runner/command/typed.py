"""A parsed command: its mode and its options, checked without TensorFlow."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner.command import parser, table
from runner.command.modes import groups, option, study
from runner.command.modes.mode import WRITES, Mode
from runner.core import layout
from runner.core import text as words
from runner.errors import ConfigError
from runner.run_directory import begun
from runner.storage import urls

_NOTHING = """\
no flags given. Try:
    runner --mode=train_and_eval --gin_file=digits.gin --model_dir=runs/digits
    runner --mode=init --like=images my_project
    runner --help                 modes
    runner --mode=predict --help  options of a mode
    runner --help=experiments     bundled experiments
    runner --help=learning_rate   search names and descriptions"""


class Printed(study.Options, groups.Training):
    """Options of `--print_config` without a mode: all that set values."""


PRINTED = Mode(lambda *_: None, Printed, "", directory="of the run")  # type: ignore[arg-type]
"""The mode of such a command."""


class Command(NamedTuple):
    """A command.

    Attributes:
        mode: Its mode, or `PRINTED` for a command without one.
        flags: The given flags by name, with values as text, lists of text and truth values.
        options: The options of the mode, an instance of its class.
    """

    mode: Mode
    flags: Mapping[str, Any]
    options: Any

    @property
    def model_dir(self) -> str:
        """The run's directory or its URL, or empty if there is none."""
        return self.flags.get("model_dir") or ""

    def replace(self, **flags: Any) -> "Command":
        """Returns the command with other flags. None removes a flag."""
        known = {**self.flags, **flags}
        return made(self.mode, {name: value for name, value in known.items() if value is not None})

    def arguments(self, names: Sequence[str] = ()) -> list[str]:
        """Returns all or some of the flags, each as `--name=value`."""
        found = []
        for name in names or self.flags:
            value = self.flags.get(name)
            if value is True:
                found.append(f"--{name}")
            elif value is not None:
                values = value if isinstance(value, list) else [value]
                found += [f"--{name}={one}" for one in values]
        return found


def values(options: Any, flags: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Returns the configuration values that options set, by path, each with its flag.

    Args:
        options: The options of a mode.
        flags: The flags as given.
    """
    found = {}
    for each in option.of(type(options)):
        value = getattr(options, each.name)
        if not each.sets or value in (None, ()):
            continue
        flag = f"--{each.name}" if each.repeated else f"--{each.name}={flags[each.name]}"
        for path, fixed in each.sets.items():
            own = list(value) if each.repeated else value
            found[path] = (flag, own if fixed is None else fixed)
    return found


def made(mode: Mode, flags: Mapping[str, Any]) -> Command:
    """Creates a command from flags.

    Raises:
        ConfigError: the value of an option is not valid, or does not fit the others.
    """
    options = table.options(mode)
    values = {name: options[name].value(flags[name]) for name in flags if name in options}
    return Command(mode, flags, mode.options(**values))


def parse(arguments: Sequence[str]) -> Command:
    """Parses a command.

    Raises:
        ConfigError: a flag, a mode or a help topic is unknown, or a flag is missing or for another
            mode.
        SystemExit: the requested help was printed.
    """
    if not arguments:
        raise ConfigError(_NOTHING)
    for argument in arguments:
        _check_text(argument)
    mode, flags = parser.parse(arguments, PRINTED)
    command = made(mode, flags)
    if command.flags.get("print_config") == "reads":
        return _for_reads(command)
    if mode.is_configured:
        command = _configured(command)
    if not command.flags.get("print_config"):
        _check_directory(command)
    return command


def _check_text(argument: str) -> None:
    """Raises ConfigError for an argument that a text file such as params.yaml cannot hold."""
    try:
        argument.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{words.quoted(argument)} is not UTF-8") from error


def _configured(command: Command) -> Command:
    """Adds the configuration of the run in --model_dir to a command without a gin file.

    This function checks everything that it can check without loading the config classes. It leaves
    mistakes in YAML files and in values to `config.load`, which reports all of them at once.

    Raises:
        ConfigError: there is no configuration, or a gin file is missing or not valid gin.
    """
    options, model_dir = command.options, command.model_dir
    if not options.gin_file and not options.experiment:
        if not command.mode.directory:
            raise ConfigError("nothing to run: give --gin_file or --experiment")
        if isinstance(renamed := getattr(options, "overwrite", None), str):
            raise ConfigError(f"--overwrite={renamed} also needs --gin_file or --experiment")
        if not (own := begun.configuration(model_dir)):
            where = f", or --model_dir of a run that has {layout.GIN}"
            if urls.is_url(model_dir or ""):
                where = f", because the {layout.GIN} of a run in a bucket is not used"
            elif model_dir:
                missing = layout.no_directory(Path(model_dir)) or f"has no {layout.GIN}"
                where = f" ({model_dir} {missing})"
            raise ConfigError(f"nothing to run: give --gin_file or --experiment{where}")
        command = command.replace(gin_file=own)
    from runner.configuration import gin_parser

    list(gin_parser.read(command.options.gin_file, command.options.gin_params))
    return command


def _for_reads(command: Command) -> Command:
    """Checks the command `--print_config=reads`, which inspects a run."""
    known = ("print_config", "model_dir", "mode")
    if idle := [name for name in command.flags if name not in known]:
        raise ConfigError(f"--{idle[0]} has no effect with --print_config=reads")
    if not command.model_dir:
        raise ConfigError("--print_config=reads needs the directory of a run: --model_dir=runs/...")
    return command


def _check_directory(command: Command) -> None:
    """Raises ConfigError if the run's directory is missing, or given to a mode that has none."""
    mode, model_dir = command.mode, command.model_dir
    if model_dir and not mode.directory:
        raise ConfigError(
            f"--mode={mode.name} does not use --model_dir; pass --output=FILE to keep the results"
        )
    command.options.check(model_dir)
    check_model_dir(mode, model_dir or command.flags.get("runs_dir"))
    if urls.is_url(model_dir):
        urls.check(model_dir, "--model_dir=", writes=mode.url == WRITES)


def check_model_dir(mode: Mode, model_dir: str | Path | None) -> None:
    """Raises ConfigError if the directory that `mode` works in is missing."""
    if mode.directory and not (model_dir and str(model_dir)):
        raise ConfigError(
            f"{{model_dir}} is missing: the directory {mode.directory}", model_dir=None
        )


def for_job(command: Command, *, shares_files: bool) -> Command:
    """Returns the command that a job runs.

    Args:
        command: The command with --launch.
        shares_files: Whether the job has access to this machine's files. Paths are then made
            absolute.
    """
    flags: dict[str, Any] = {"launch": None, "dry_run": None}
    if not command.mode.is_configured:
        flags |= {"gin_file": None, "gin_params": None}  # they applied to the job
    if shares_files:
        given = command.flags
        if "runs" in given:
            flags["runs"] = ",".join(str(path.absolute()) for path in command.options.runs)
        for name in ("model_dir", "output"):
            flags[name] = _absolute(given.get(name))
        if "config_file" in given:
            flags["config_file"] = [str(Path(file).absolute()) for file in given["config_file"]]
        if "gin_file" in given and command.mode.is_configured:
            files = given["gin_file"]
            flags["gin_file"] = [_absolute(file) if Path(file).exists() else file for file in files]
    return command.replace(**flags)


def _absolute(path: str | None) -> str | None:
    """Returns the absolute path, or a URL unchanged."""
    return str(Path(path).absolute()) if path and "://" not in path else path
