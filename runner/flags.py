"""What the command's flags say, checked as far as that needs no TensorFlow, and its help."""

import argparse
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner import command_line, elsewhere, modes
from runner.configuration import gin_parser
from runner.core import layout, output_file
from runner.core import text as words
from runner.devices import cluster
from runner.errors import ConfigError
from runner.help import completion, topics
from runner.internals import standard_library
from runner.launch import bounds, launchers
from runner.loggers import feed, log
from runner.projects import create
from runner.run_folder import begun, overwrite
from runner.storage import urls
from runner.studies import space

_NOTHING = """\
no flags given. Try:
    runner --mode=train_and_eval --gin_file=digits.gin --model_dir=runs/digits
    runner --mode=init --like=images my_project
    runner --help                 the flags
    runner --help=modes           the modes
    runner --help=experiments     the bundled experiments
    runner --help=learning_rate   where a value is set"""
_WITHOUT = {
    "checkpoint": "the default",
    "data": "the validation data",
    "output": "a file in the run's folder",
    "runs": "the trials of the study in --model_dir",
    "metric": "what best checkpoints are chosen by",
    "where": "all runs",
    "sort": "the order of their names",
    "columns": "the most informative ones",
    "watch": "once, or --watch for every 10 seconds",
}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The flags, checked.

    Raises:
        ConfigError: an unknown flag, mode or topic of help, or a flag that is missing or for
            another mode.
        SystemExit: help was asked for and printed.
    """
    if not arguments:
        raise ConfigError(_NOTHING)
    for each in arguments:
        _check_text(each)
    if arguments[0] == "help":
        arguments = [f"--help={topic}" for topic in arguments[1:2]] or ["--help"]
    _help_on_topic(arguments)
    flags, rest = command_line.parser().parse_known_args(
        [command_line.long_form(argument) for argument in arguments]
    )
    if flags.mode == "init":
        return _for_init(flags, rest)
    if flags.like:
        raise ConfigError("--like is for --mode=init")
    if flags.mode == "compare":
        rest = _take_folders(flags, rest)
    if rest:
        raise ConfigError(command_line.unknown(rest))
    if flags.mode is None and not flags.print_config:
        raise ConfigError(f"--mode is missing: {', '.join(modes.MODES)}")
    if flags.mode is not None and flags.mode not in modes.MODES:
        raise ConfigError(modes.unknown(flags.mode, f"--mode={flags.mode}"))
    _check_own(flags)
    _check_launch(flags)
    if flags.workers is not None:
        bounds.Bounds.parse(flags.workers)
    if (steps := profile_steps(flags)) and flags.mode:
        modes.check_profile(flags.mode, steps, dry_run=flags.dry_run)
    if flags.print_config == "reads":
        return _for_reads(flags)
    if flags.mode and not modes.MODES[flags.mode].configured:
        return _without_experiment(flags)
    if not flags.gin_file and not flags.experiment:
        flags.gin_file = _of_run(flags)
    _check_folder(flags)
    _check_output(flags)
    _check_configuration(flags)
    return flags


def _of_run(flags: argparse.Namespace) -> list[str]:
    """The configuration of the run in --model_dir, for a command that names none.

    Raises:
        ConfigError: there is none, or the run is to be replaced.
    """
    if flags.mode and not modes.MODES[flags.mode].has_folder:
        raise ConfigError("nothing to run: give --gin_file or --experiment")
    if flags.overwrite and isinstance(flags.overwrite, str):
        raise ConfigError(f"--overwrite={flags.overwrite}: give --gin_file or --experiment, too")
    if found := begun.configuration(flags.model_dir):
        return found
    where = f", or --model_dir of a run that has {layout.GIN}" if not flags.model_dir else ""
    lacks = f"; {flags.model_dir} has no {layout.GIN} of a run" if flags.model_dir else ""
    raise ConfigError(f"nothing to run: give --gin_file or --experiment{where}{lacks}")


def _check_text(argument: str) -> None:
    """Raises ConfigError for an argument that no file of text could hold, such as params.yaml."""
    try:
        argument.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{words.quoted(argument)} is not UTF-8") from error


def _for_init(flags: argparse.Namespace, rest: Sequence[str]) -> argparse.Namespace:
    """The flags of `init`: its kind of project, and the folder, with or without `--model_dir`."""
    unknown = [each for each in rest if each.startswith("-")]
    if unknown:
        raise ConfigError(command_line.unknown(unknown))
    known = {"mode", "like", "model_dir"}
    idle = [name for name, value in vars(flags).items() if value and name not in known]
    if idle:
        raise ConfigError(f"--{idle[0]} has no effect with --mode=init")
    folders = [*rest, *([flags.model_dir] if flags.model_dir else [])]
    if len(folders) != 1 or not folders[0]:
        raise ConfigError("init needs one folder: runner --mode=init --like=images my_project")
    flags.model_dir, flags.like = folders[0], flags.like or ""
    return flags


def _check_launch(given: argparse.Namespace) -> None:
    """Raises ConfigError for a launcher that there is not, or that is not asked to run anything."""
    if given.launch is None:
        return
    launchers.check(given.launch)
    if given.print_config:
        raise ConfigError("--print_config and --launch: the configuration is printed here")


def for_job(given: argparse.Namespace, *, shares_files: bool) -> argparse.Namespace:
    """The flags for the command that a job runs.

    Args:
        given: The flags of this one.
        shares_files: Whether the job sees this machine's files; paths are then made absolute.
    """
    made = argparse.Namespace(**vars(given))
    made.launch, made.dry_run = None, False
    if not modes.MODES[given.mode].configured:
        made.gin_file, made.gin_params = [], []  # they were about the job
    if shares_files:
        if given.runs:
            made.runs = ",".join(str(each.absolute()) for each in runs_of(given))
        made.model_dir, made.output = _absolute(given.model_dir), _absolute(given.output)
        made.config_file = [str(Path(each).absolute()) for each in given.config_file]
        made.gin_file = [_absolute(each) if Path(each).exists() else each for each in made.gin_file]
    return made


def for_worker(given: argparse.Namespace) -> argparse.Namespace:
    """The flags for the command of a worker, which the environment tells which one it is."""
    made = argparse.Namespace(**vars(given))
    made.worker_hosts = made.task_index = None
    return made


def _absolute(path: str | None) -> str | None:
    """The path from the root; a URL as it is."""
    return str(Path(path).absolute()) if path and "://" not in path else path


def _for_reads(flags: argparse.Namespace) -> argparse.Namespace:
    """The flags of `--print_config=reads`, which looks at a run."""
    known = {"print_config", "model_dir", "mode"}
    if idle := [name for name, value in vars(flags).items() if value and name not in known]:
        raise ConfigError(f"--{idle[0]} has no effect with --print_config=reads")
    if not flags.model_dir:
        raise ConfigError(
            "--print_config=reads shows what a run has read: give its folder, --model_dir=runs/..."
        )
    return flags


def _take_folders(flags: argparse.Namespace, rest: Sequence[str]) -> list[str]:
    """Makes the folders that `compare` is given as they are part of `--runs`; returns the rest."""
    folders = [each for each in rest if not each.startswith("-")]
    if folders:
        flags.runs = ",".join(filter(None, [flags.runs, *folders]))
    return [each for each in rest if each.startswith("-")]


def _without_experiment(flags: argparse.Namespace) -> argparse.Namespace:
    """The flags of a mode that is about runs, which have their configuration."""
    known = {"mode", "model_dir", "alsologtostderr", *modes.MODES[flags.mode].takes}
    known |= {"dry_run"} if modes.MODES[flags.mode].has_dry_run else set()
    known |= {"launch", "dry_run", "gin_file", "gin_params"} if flags.launch else set()
    if idle := [name for name, value in vars(flags).items() if value and name not in known]:
        raise ConfigError(
            f"--{idle[0]} has no effect with --mode={flags.mode}: each run has its own "
            "configuration"
        )
    if "steps" in modes.MODES[flags.mode].takes:
        steps_of(flags)
    if flags.select is not None and flags.select < 1:
        raise ConfigError(f"--select={flags.select}: must be 1 or more, the members to choose")
    modes.check_choice(flags.select or 0, flags.metric or "")
    if flags.mode == "compare" and len(runs_of(flags)) < 2:
        raise ConfigError("compare needs two runs: runner --mode=compare runs/a runs/b")
    seconds_of_watch(flags)
    if flags.mode == "report" and not (flags.output or ".html").endswith((".html", ".htm")):
        raise ConfigError(f"--output={flags.output}: must end with .html")
    if flags.mode == "log":
        log.names(flags.to or "")
    _check_folder(flags)
    return flags


def seconds_of_watch(given: argparse.Namespace) -> float:
    """The value of `--watch`, 0 where it is not given.

    Raises:
        ConfigError: it is not a time.
    """
    if given.watch is None:
        return 0.0
    if re.fullmatch(r"\d{1,6}", given.watch) and int(given.watch):
        return float(given.watch)
    raise ConfigError(f"--watch={given.watch}: expected seconds, a whole number from 1")


def _check_own(flags: argparse.Namespace) -> None:
    """Raises ConfigError for a flag that is for other modes, or is empty."""
    for name in modes.OWN_FLAGS:
        value = getattr(flags, name)
        if flags.mode:
            modes.check_taken(flags.mode, name, value is not None and value is not False)
        if value == "":
            raise ConfigError(
                f"--{name}= names nothing; leave it out for {_WITHOUT.get(name, 'the default')}"
            )


def _check_folder(given: argparse.Namespace) -> None:
    """Raises ConfigError if the run's folder is missing, or given to a mode that has none."""
    if given.print_config:
        return
    has_folder = modes.MODES[given.mode].has_folder
    if given.runs_dir and given.model_dir:
        raise ConfigError("--runs_dir and --model_dir: give one of them")
    if given.runs_dir and "://" in given.runs_dir:
        raise ConfigError(f"--runs_dir={given.runs_dir}: it must be a local folder")
    if given.runs_dir and given.workers:
        raise ConfigError("--workers needs --model_dir in place of --runs_dir")
    if given.runs_dir and not has_folder:
        raise ConfigError(f"--runs_dir has no effect with --mode={given.mode}")
    _check_overwrite(given)
    modes.check_model_dir(given.mode, given.model_dir or given.runs_dir)
    if given.model_dir and urls.is_url(given.model_dir):
        writes = modes.MODES[given.mode].url == elsewhere.WRITES
        urls.check(given.model_dir, "--model_dir=", writes=writes)
    if given.model_dir and not has_folder:
        raise ConfigError(
            f"--mode={given.mode} leaves nothing in a run's folder: leave --model_dir out "
            "(--output=FILE keeps the results)"
        )


def _check_output(given: argparse.Namespace) -> None:
    """Raises ConfigError if the mode cannot write a file of this name."""
    if not given.output or urls.is_url(given.output):
        return
    output = Path(given.output)
    if given.mode in output_file.ENDS:
        output_file.check(given.mode, output)
    elif given.mode == "predict":
        from runner.prediction import writers  # it loads pyarrow

        writers.of(output)


def _check_configuration(given: argparse.Namespace) -> None:
    """Checks what can be checked of the configuration without its classes.

    Mistakes in YAML files and in values are left to `config.load`, which names all of them at once.

    Raises:
        ConfigError: a flag's value is not what it takes, a gin file is missing or no gin, or
            nothing varies in a study.
    """
    values(given)
    space.parse(given.vary or [])
    statements = list(gin_parser.read(given.gin_file, given.gin_params))
    varies = given.seeds or given.folds or given.vary
    may_vary = given.experiment or given.config_file or given.params_override
    if given.mode == "study" and not (varies or may_vary or _has_study(statements)):
        raise ConfigError(space.NOTHING_VARIES)


def _has_study(statements: Sequence[gin_parser.Statement]) -> bool:
    """Whether gin configures a study."""
    bound = [each for each in statements if isinstance(each, gin_parser.Binding)]
    return any(
        each.parameter == "study" or each.target.rpartition(".")[2] == "StudyConfig"
        for each in bound
    )


def _check_overwrite(given: argparse.Namespace) -> None:
    """Raises ConfigError if what is to be overwritten is not said, or would be again and again."""
    if not modes.MODES[given.mode].profiles:
        if isinstance(given.overwrite, str):
            raise ConfigError(f"--overwrite takes no name with --mode={given.mode}: leave it out")
    elif given.overwrite:
        if again := [name for name in ("launch", "workers") if getattr(given, name, None)]:
            raise ConfigError(
                f"--overwrite and --{again[0]}: whoever starts the run again would begin anew each "
                "time; remove the folder yourself, or choose another --model_dir"
            )
        if given.model_dir and "://" in given.model_dir:
            raise ConfigError(f"--overwrite: {given.model_dir} is not a local folder")
        if given.worker_hosts or cluster.find(os.environ):
            raise ConfigError("--overwrite is for one process, and this is one of several workers")
        if given.model_dir:
            overwrite.check(Path(given.model_dir), given.overwrite)


def values(given: argparse.Namespace) -> dict[str, tuple[str, Any]]:
    """The single values that flags stand for, by path, each with its flag."""
    found: dict[str, tuple[str, Any]] = {}
    if given.enable_async_checkpointing is not None:
        value = given.enable_async_checkpointing
        found["run.async_checkpoints"] = (f"--enable_async_checkpointing={value}", value)
    if given.workers is not None:
        flag = f"--workers={given.workers}"
        found["runtime.distribution_strategy"] = (flag, "multi_worker_mirrored")
    if given.tpu is not None:
        found["runtime.tpu"] = (f"--tpu={given.tpu}", given.tpu)
    if given.worker_hosts is not None:
        found["runtime.worker_hosts"] = ("--worker_hosts", given.worker_hosts)
    if given.task_index is not None:
        value = _number_of("task_index", given.task_index)
        found["runtime.task_index"] = (f"--task_index={value}", value)
    for name in ("seeds", "folds", "trials", "jobs"):
        if (value := getattr(given, name)) is not None:
            found[f"run.study.{name}"] = (f"--{name}={value}", _number_of(name, value))
    if given.vary:
        found["run.study.vary"] = ("--vary", list(given.vary))
    if given.tf_data_service is not None:
        for data in ("train_data", "validation_data"):
            path = f"task.{data}.tf_data_service_address"
            found[path] = (f"--tf_data_service={given.tf_data_service}", given.tf_data_service)
    return found


def _number_of(name: str, text: str) -> int | list[int]:
    """The value of `--seeds`, `--folds`, `--trials`, `--jobs` or `--task_index`.

    Raises:
        ConfigError: it is not a number, or for seeds a list of them.
    """
    if name == "jobs" and text == "auto":
        return 0
    if re.fullmatch(r"\d{1,9}", text):
        if name != "seeds":
            return int(text)
        if 1 <= int(text) <= space.MOST:
            return list(range(int(text)))
    if name == "seeds" and re.fullmatch(r"\d{1,10}(,\d{1,10})*,?", text) and "," in text:
        return [int(each) for each in text.strip(",").split(",")]
    more = {
        "seeds": f"how many, from 1 to {space.MOST:,}, or a list, as in 3,7 or 3,",
        "jobs": "a number or auto",
    }
    raise ConfigError(f"--{name}={text}: expected {more.get(name, 'a number')}")


def profile_steps(given: argparse.Namespace) -> tuple[int, int] | None:
    """The first and the last step of `--profile_steps`, None where it is not given.

    Raises:
        ConfigError: it is not a range.
    """
    if given.profile_steps is None:
        return None
    return _range("--profile_steps", given.profile_steps)


def runs_of(given: argparse.Namespace) -> list[Path]:
    """The folders of `--runs`, whose names may have commas, as those of a study's trials have."""
    found: list[Path] = []
    parts = [each for each in (given.runs or "").split(",") if each]
    while parts:
        ends = range(len(parts), 0, -1)
        length = next((n for n in ends if Path(",".join(parts[:n])).is_dir()), 1)
        found.append(Path(",".join(parts[:length])))
        parts = parts[length:]
    return found


def steps_of(given: argparse.Namespace) -> tuple[int, int]:
    """The first and the last step of `--steps`.

    Raises:
        ConfigError: there are none, or it is not a range of steps.
    """
    if given.steps is None:
        raise ConfigError("--steps is missing: the steps to train again, as in --steps=1190:1201")
    steps = _range("--steps", given.steps)
    modes.check_steps(steps)
    return steps


def _range(flag: str, text: str) -> tuple[int, int]:
    if not re.fullmatch(r"\d+:\d+", text):
        raise ConfigError(f"{flag}={text}: expected FIRST:LAST, as in 100:102")
    first, _, last = text.partition(":")
    return int(first), int(last)


def configuring(given: argparse.Namespace) -> list[str]:
    """The flags again that make the configuration, for a process that is to have the same."""
    found = [f"--experiment={given.experiment}"] if given.experiment else []
    for name in ("gin_file", "gin_params", "config_file", "params_override"):
        found += [f"--{name}={value}" for value in getattr(given, name)]
    for name in ("tpu", "tf_data_service", "enable_async_checkpointing"):
        if getattr(given, name) is not None:
            found.append(f"--{name}={getattr(given, name)}")
    return found


def _help_on_topic(arguments: Sequence[str]) -> None:
    """Prints the help on a topic, or what a shell asked for, and exits, if that is asked."""
    if arguments[0] == "--complete":
        _complete(" ".join(arguments[1:]))
        raise SystemExit(0)
    for argument in arguments:
        flag, equals, topic = argument.partition("=")
        if flag == "--completion":
            print(completion.script(topic))
            raise SystemExit(0)
        if flag == "--help" and equals:
            if not re.search(r"[^\W_]", topic):
                raise ConfigError(f"--help={topic} names nothing; try --help, or --help=modes")
            print(topics.answer(topic, _asked(arguments)))
            raise SystemExit(0)


def _complete(line: str) -> None:
    """Prints what a shell may put in place of the last word, a line each."""
    choices: dict[str, Sequence[str]] = {
        "--mode": list(modes.MODES),
        "--print_config": ["all", "changed", "reads"],
        "--checkpoint": ["latest", "best", "all"],
        "--completion": list(completion.SCRIPTS),
        "--like": create.LIKE,
        "--to": feed.NAMES,
        "--launch": list(launchers.LAUNCHERS),
    }
    needs = {name: each.nargs is None for name, each in _flags().items()}
    print("\n".join(completion.candidates(line, needs, choices)))


def _flags() -> dict[str, argparse.Action]:
    """The flags that are shown, and what each does."""
    flags = standard_library.options(command_line.parser()).items()
    return {name: each for name, each in flags if name.startswith("--")}


def _asked(arguments: Sequence[str]) -> topics.Asked:
    """What help needs to know."""
    parser = command_line.parser_of_configuration()
    given, _ = parser.parse_known_args([command_line.long_form(each) for each in arguments])
    return topics.Asked(
        given.gin_file,
        given.gin_params,
        given.config_file,
        given.params_override,
        given.experiment or "",
        flags={name: each.help or "" for name, each in _flags().items()},
        modes={name: mode.summary for name, mode in modes.MODES.items()},
        width=shutil.get_terminal_size((100, 24)).columns,
    )
