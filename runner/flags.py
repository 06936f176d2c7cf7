"""The command's flags, checked as far as that needs no TensorFlow, and its help."""

import argparse
import re
import shutil
from collections.abc import Sequence
from typing import Any, NoReturn

from runner import modes
from runner.core import installation
from runner.core.spelling import did_you_mean
from runner.errors import ConfigError
from runner.help import completion, topics
from runner.internals import standard_library
from runner.projects import create

_EPILOG = """\
more help: --help=modes, --help=experiments, --help=digits.gin (one of them), --help=RunConfig (or
another section of the configuration), --help=RunConfig.seed (a field), --help=learning_rate (a
search). With --gin_file and the like, fields are shown with the values that these set.

The same command again resumes. The last line on stdout is the result as JSON; the rest is stderr.
Configuration counts in this order, the later over the earlier: the defaults or --experiment, gin
files, gin params, YAML files, --params_override, single flags.
exit codes: 0 finished, 1 unexpected failure, 2 a mistake in flags or configuration, 3 diverged,
4 an export was rejected, 130 stopped by SIGINT and 143 preempted by SIGTERM, all saved: start it
again.
"""
_SWITCHES = ("enable_async_checkpointing", "alsologtostderr")  # as Model Garden's command has them
_NOTHING = """\
no flags given. Try:
    runner --mode=train_and_eval --gin_file=digits.gin --model_dir=runs/digits
    runner --mode=init --like=images my_project
    runner --help                 the flags
    runner --help=modes           what can be done
    runner --help=experiments     what there is to run
    runner --help=learning_rate   where something is set"""
_WITHOUT = {
    "checkpoint": "the default",
    "data": "the validation data",
    "output": "a file in the run's folder",
}


class _Parser(argparse.ArgumentParser):
    """A parser that raises ConfigError."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


class _Version(argparse.Action):
    """Prints the versions and exits."""

    def __call__(self, *_: object) -> NoReturn:
        print(installation.versions())
        raise SystemExit(0)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The flags, checked.

    Raises:
        ConfigError: an unknown flag, mode or topic of help, or a flag that is missing or for
            another mode.
        SystemExit: help was asked for and printed.
    """
    if not arguments:
        raise ConfigError(_NOTHING)
    if arguments[0] == "help":
        arguments = [f"--help={topic}" for topic in arguments[1:2]] or ["--help"]
    _help_on_topic(arguments)
    parser = _parser()
    flags, rest = parser.parse_known_args([_long_form(argument) for argument in arguments])
    if flags.mode == "init":
        return _for_init(flags, rest)
    if flags.like:
        raise ConfigError("--like is for --mode=init")
    if rest:
        raise ConfigError(_unknown(rest[0], parser))
    if flags.mode is None and not flags.print_config:
        raise ConfigError(f"--mode is missing: {', '.join(modes.MODES)}")
    if flags.mode is not None and flags.mode not in modes.MODES:
        raise ConfigError(modes.unknown(flags.mode, f"--mode={flags.mode}"))
    _check_own(flags)
    if (steps := profile_steps(flags)) and flags.mode:
        modes.check_profile(flags.mode, steps)
    if not flags.gin_file and not flags.experiment:
        raise ConfigError("nothing to run: give --gin_file or --experiment")
    _check_folder(flags)
    return flags


def _for_init(flags: argparse.Namespace, rest: Sequence[str]) -> argparse.Namespace:
    """The flags of `init`: its kind of project, and the folder, with or without `--model_dir`."""
    unknown = [each for each in rest if each.startswith("-")]
    if unknown:
        raise ConfigError(_unknown(unknown[0], _parser()))
    known = {"mode", "like", "model_dir"}
    idle = [name for name, value in vars(flags).items() if value and name not in known]
    if idle:
        raise ConfigError(f"--{idle[0]} has no effect with --mode=init")
    folders = [*rest, *([flags.model_dir] if flags.model_dir else [])]
    if len(folders) != 1 or not folders[0]:
        raise ConfigError("init needs one folder: runner --mode=init --like=images my_project")
    flags.model_dir, flags.like = folders[0], flags.like or ""
    return flags


def _check_own(flags: argparse.Namespace) -> None:
    """Raises ConfigError for a flag that is for other modes, or is empty."""
    for name in modes.OWN_FLAGS:
        value = getattr(flags, name)
        if flags.mode:
            modes.check_taken(flags.mode, name, value is not None and value is not False)
        if value == "":
            raise ConfigError(f"--{name}= names nothing; leave it out for {_WITHOUT[name]}")


def _check_folder(given: argparse.Namespace) -> None:
    """Raises ConfigError if the run's folder is missing, or given to a mode that has none."""
    if given.print_config:
        return
    has_folder = modes.MODES[given.mode].has_folder
    if has_folder and not given.model_dir:
        raise ConfigError("--model_dir is missing: the run's folder")
    if given.model_dir and not has_folder:
        raise ConfigError(
            f"--mode={given.mode} leaves nothing in a run's folder: leave --model_dir out "
            "(--output=FILE keeps the results)"
        )


def values(given: argparse.Namespace) -> dict[str, tuple[str, Any]]:
    """The single values that flags stand for, by path, each with its flag."""
    found: dict[str, tuple[str, Any]] = {}
    if given.enable_async_checkpointing is not None:
        value = given.enable_async_checkpointing
        found["run.async_checkpoints"] = (f"--enable_async_checkpointing={value}", value)
    if given.tpu is not None:
        found["runtime.tpu"] = (f"--tpu={given.tpu}", given.tpu)
    if given.tf_data_service is not None:
        for data in ("train_data", "validation_data"):
            path = f"task.{data}.tf_data_service_address"
            found[path] = (f"--tf_data_service={given.tf_data_service}", given.tf_data_service)
    return found


def profile_steps(given: argparse.Namespace) -> tuple[int, int] | None:
    """The first and the last step of `--profile_steps`, None where it is not given.

    Raises:
        ConfigError: it is not a range.
    """
    if given.profile_steps is None:
        return None
    if not re.fullmatch(r"\d+:\d+", given.profile_steps):
        raise ConfigError(
            f"--profile_steps={given.profile_steps}: expected FIRST:LAST, as in 100:102"
        )
    first, _, last = given.profile_steps.partition(":")
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


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="runner",
        usage="runner --mode=MODE --gin_file=FILE --model_dir=FOLDER [...]",
        description="An experiment runner for TensorFlow.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    _add_running(parser)
    _add_configuration(parser)
    _add_looking(parser)
    return parser


def _add_running(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "run",
        "runner --mode=train_and_eval --gin_file=digits.gin --model_dir=runs/digits",
    )
    group.add_argument("--mode", help=", ".join(modes.MODES))
    group.add_argument("--model_dir", metavar="FOLDER", help="the run's folder")
    group.add_argument(
        "--allow_config_change",
        action="store_true",
        help="go on with a run although its configuration has changed",
    )
    group.add_argument(
        "--allow_lost_history",
        action="store_true",
        help="go on with a run although rows of its history.jsonl are gone",
    )
    group.add_argument(
        "--profile_steps",
        metavar="FIRST:LAST",
        help="for train and train_and_eval: a profile of these steps, both included, for "
        "TensorBoard's profile plugin",
    )
    group.add_argument(
        "--enable_async_checkpointing",
        nargs="?",
        const=True,
        type=_truth,
        help="sets run.async_checkpoints, which is on; =false: training waits for checkpoints",
    )
    group.add_argument(
        "--alsologtostderr",
        nargs="?",
        const=True,
        default=False,
        type=_truth,
        help="also show the logs of official's code and of TensorFlow",
    )
    group = parser.add_argument_group("begin", "runner --mode=init --like=images my_project")
    group.add_argument(
        "--like",
        metavar="KIND",
        help=f"for init: the kind of project to write in a new folder: {', '.join(create.LIKE)}",
    )
    group = parser.add_argument_group(
        "evaluate and predict",
        "runner --mode=eval --checkpoint=all --gin_file=digits.gin --model_dir=runs/digits\n"
        "runner --mode=predict --output=digits.jsonl --gin_file=digits.gin --model_dir=runs/digits",
    )
    group.add_argument(
        "--checkpoint",
        metavar="WHICH",
        help="for eval: latest (the default), best, all, steps and ranges as in 1000,2000 and "
        "1000:5000, or the path of a checkpoint or a folder, also of another run; for predict and "
        "export: one of them, by default the latest, and for export the best if there is one",
    )
    group.add_argument(
        "--data",
        metavar="NAME",
        help="for predict: validation (the default), train, test, or the name of an evaluation set",
    )
    group.add_argument(
        "--output",
        metavar="FILE",
        help="for predict: a file ending in .jsonl, .npz or .parquet; else, JSON lines in the "
        "run's folder, in predictions/; for find_rate and find_batch: the results, .json, or for "
        "find_rate a picture (.png, .svg, .pdf) with the numbers beside it",
    )
    group.add_argument(
        "--overwrite",
        action="store_true",
        help="for predict: replace the file, also what was begun of it",
    )


def _add_configuration(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "configure",
        "runner --mode=train --gin_file=digits.gin --gin.TrainerConfig.train_steps=500 ...\n"
        "runner --mode=train --experiment=resnet_imagenet --config_file=mine.yaml ...",
    )
    add = group.add_argument
    add(
        "--experiment",
        metavar="NAME",
        help="an experiment registered with Model Garden, or by a module that a gin file imports",
    )
    add(
        "--gin_file",
        action="append",
        default=[],
        metavar="FILE",
        help="repeatable, in order. Looked for in the working folder, then among the experiments "
        "that come with the runner",
    )
    add(
        "--gin_params",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a binding, after the files; repeatable, in order. --gin.NAME=VALUE is short for it",
    )
    add(
        "--config_file",
        action="append",
        default=[],
        metavar="FILE",
        help="YAML or JSON that overrides single values; repeatable, in order",
    )
    add(
        "--params_override",
        action="append",
        default=[],
        metavar="VALUES",
        help="the same as text: 'trainer.train_steps=500,task.init_checkpoint=a' or YAML",
    )
    add("--tpu", metavar="ADDRESS", help="sets runtime.tpu, which the strategy 'tpu' uses")
    add(
        "--tf_data_service",
        metavar="ADDRESS",
        help="sets tf_data_service_address of the training and the validation data",
    )


def _add_looking(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "look before you run",
        "runner --mode=train --gin_file=digits.gin --print_config=changed",
    )
    group.add_argument(
        "--print_config",
        nargs="?",
        const="all",
        choices=("all", "changed"),
        help="print every value and where it was set, then exit; =changed: without the defaults; "
        "with --mode, it is also checked for that",
    )
    group.add_argument(
        "--dry_run",
        action="store_true",
        help="one step, one batch, a checkpoint and back, in a scratch folder; then end",
    )
    group.add_argument(
        "--completion",
        metavar="SHELL",
        help="prints a script that completes flags, names and values with Tab, for bash or zsh",
    )
    group.add_argument(
        "--version",
        action=_Version,
        nargs=0,
        help="the versions of the runner, Python, TensorFlow, Keras and Model Garden",
    )
    group.add_argument(
        "--help",
        "-h",
        action="help",
        help="this; =TOPIC: a section, a field, a gin file, modes, experiments, or a word to find",
    )


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
        "--print_config": ["all", "changed"],
        "--checkpoint": ["latest", "best", "all"],
        "--completion": list(completion.SCRIPTS),
        "--like": create.LIKE,
    }
    needs = {name: each.nargs is None for name, each in _flags().items()}
    print("\n".join(completion.candidates(line, needs, choices)))


def _flags() -> dict[str, argparse.Action]:
    """The flags that are shown, and what each does."""
    flags = standard_library.options(_parser()).items()
    return {name: each for name, each in flags if name.startswith("--")}


def _asked(arguments: Sequence[str]) -> topics.Asked:
    """What help needs to know."""
    parser = _Parser(allow_abbrev=False, add_help=False)
    _add_configuration(parser)
    given, _ = parser.parse_known_args([_long_form(each) for each in arguments])
    return topics.Asked(
        given.gin_file,
        given.gin_params,
        given.config_file,
        given.params_override,
        flags={name: each.help or "" for name, each in _flags().items()},
        modes={name: mode.summary for name, mode in modes.MODES.items()},
        width=shutil.get_terminal_size((100, 24)).columns,
    )


def _long_form(argument: str) -> str:
    """`--gin.NAME=VALUE` as `--gin_params=NAME=VALUE`; absl's `--noNAME` as `--NAME=false`."""
    if argument.startswith("--gin."):
        return f"--gin_params={argument.removeprefix('--gin.')}"
    switch = argument.removeprefix("--no")
    return f"--{switch}=false" if argument == f"--no{switch}" and switch in _SWITCHES else argument


def _truth(text: str) -> bool:
    """What absl takes for a truth value."""
    if text.lower() not in ("true", "t", "1", "false", "f", "0"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text.lower() in ("true", "t", "1")


def _unknown(argument: str, parser: argparse.ArgumentParser) -> str:
    if not argument.startswith("-"):
        return f"{argument!r} is not a flag (flags start with --)"
    known = standard_library.options(parser)
    name = argument.split("=")[0]
    return f"unknown flag {name}{did_you_mean(name, known)}"
