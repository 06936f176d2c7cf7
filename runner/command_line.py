"""The flags of the command: their names, their values and what `--help` says about each."""

import argparse
import difflib
import re
from collections.abc import Sequence
from typing import NoReturn

from runner import modes
from runner.core import installation
from runner.core.spelling import did_you_mean
from runner.errors import ConfigError
from runner.help import facts, other_tools
from runner.internals import standard_library
from runner.launch import launchers
from runner.projects import create

_EPILOG = """\
more help: --help=modes, --help=experiments, --help=digits.gin (one of them), --help=RunConfig (or
another section of the configuration), --help=RunConfig.seed (a field), --help=learning_rate (a
search). With --gin_file and the like, fields are shown with the values that these set.

The same command again resumes. The last line on stdout is the result as JSON; the rest is stderr,
but for the tables of runs and compare.
Configuration counts in this order, the later over the earlier: the defaults or --experiment, gin
files, gin params, YAML files, --params_override, single flags.
exit codes: 0 finished, 1 unexpected failure, 2 a mistake in flags or configuration, 3 diverged,
4 an export was rejected, 5 the compared runs differ, 6 a job was given up, 130 stopped by
SIGINT and 143 preempted by SIGTERM, all saved: start it again.
"""
_SWITCHES = ("enable_async_checkpointing", "alsologtostderr")  # as Model Garden's command has them


class _Parser(argparse.ArgumentParser):
    """A parser that raises ConfigError."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


class _Version(argparse.Action):
    """Prints the versions and exits."""

    def __call__(self, *_: object) -> NoReturn:
        print(installation.versions())
        raise SystemExit(0)


def parser() -> argparse.ArgumentParser:
    """Of all flags; what it cannot parse raises ConfigError."""
    made = _Parser(
        prog="runner",
        usage="runner --mode=MODE --gin_file=FILE --model_dir=FOLDER [...]",
        description="An experiment runner for TensorFlow.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    _add_running(made)
    _add_configuration(made)
    _add_looking(made)
    return made


def parser_of_configuration() -> argparse.ArgumentParser:
    """Of the flags alone that make the configuration."""
    made = _Parser(allow_abbrev=False, add_help=False)
    _add_configuration(made)
    return made


def _add_running(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "run",
        "runner --mode=train_and_eval --gin_file=digits.gin --model_dir=runs/digits",
    )
    group.add_argument("--mode", help=", ".join(modes.MODES))
    group.add_argument("--model_dir", metavar="FOLDER", help="the run's folder")
    group.add_argument(
        "--runs_dir",
        metavar="FOLDER",
        help="instead of --model_dir: the folder below which the run has one of its name, "
        "RunConfig.name",
    )
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
        help="also show the logs of Model Garden and TensorFlow",
    )
    group.add_argument(
        "--workers",
        metavar="N",
        help="for train, train_and_eval, train_and_post_eval and eval: number of workers on this "
        "machine, or on those in --worker_hosts. They are restarted on failure. A range such as "
        "2..4 sets the minimum and maximum. Sets runtime.distribution_strategy",
    )
    group.add_argument(
        "--launch",
        metavar="WHERE",
        help=f"run the command elsewhere: {', '.join(launchers.LAUNCHERS)}; LaunchConfig says with "
        "what. With --dry_run, print what would be submitted",
    )
    _add_study(parser)
    _add_seeing(parser)
    _add_log(parser)
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
        "1000:5000, the mean of their weights as in mean:1000,2000, or the path of a checkpoint or "
        "a folder, also of another run; for predict and "
        "export: one of them, by default the latest, and for export the best if there is one; for "
        "ensemble: one of each run, by default the best",
    )
    group.add_argument(
        "--data",
        metavar="NAME",
        help="for predict and ensemble: validation (the default), train, test, or the name of an "
        "evaluation set; for eval: test, which tests the best weights",
    )
    group.add_argument(
        "--output",
        metavar="FILE",
        help="for predict: a file ending in .jsonl, .npz or .parquet; else, JSON lines in the "
        "run's folder, in predictions/; for find_rate and find_batch: the results, .json, or for "
        "find_rate a picture (.png, .svg, .pdf) with the numbers beside it; for runs: the table, "
        ".csv, .json, .jsonl or .parquet; for compare: the differences, .json; for replay: a "
        "folder, by default in the run's, in replay/; for report: the page, .html, by default "
        "report.html in the run's folder",
    )
    group.add_argument(
        "--steps",
        metavar="FIRST:LAST",
        help="for replay: the steps to train again; it stops before the last, and saves its batch",
    )
    group.add_argument(
        "--overwrite",
        nargs="?",
        const=True,
        default=False,
        metavar="NAME",
        help="for predict and replay, without a name: replace the file, complete or not; for "
        "train, train_and_eval and train_and_post_eval, with the name of the run's folder: remove "
        "the run in it, and begin anew",
    )
    group = parser.add_argument_group(
        "look at runs",
        "runner --mode=runs --model_dir=runs --where='accuracy > 0.9' --sort=-accuracy\n"
        "runner --mode=compare runs/a runs/b",
    )
    group.add_argument(
        "--where",
        metavar="CONDITION",
        help="for runs: the runs to show, by their columns: and, or, not, in, comparisons",
    )
    group.add_argument(
        "--sort",
        metavar="COLUMNS",
        help="for runs: what to sort by, separated by commas; a - before one: the highest first",
    )
    group.add_argument(
        "--columns",
        metavar="NAMES",
        help="for runs: what to show, separated by commas: state, best.accuracy, "
        "trainer.train_steps, learning_rate, or patterns as in 'last.*'",
    )
    group = parser.add_argument_group(
        "average runs",
        "runner --mode=ensemble --runs=runs/a,runs/b,runs/c --model_dir=runs/together",
    )
    group.add_argument(
        "--runs",
        metavar="FOLDERS",
        help="for ensemble: its members, separated by commas; by default the trials of the study "
        "in --model_dir. For compare: the runs, which may also be given without a flag. For "
        "report: several runs on one page, in --model_dir",
    )
    group.add_argument(
        "--select",
        metavar="N",
        type=int,
        help="for ensemble: also choose N members on the validation data, one after the other and "
        "with replacement, and score their mean",
    )
    group.add_argument(
        "--metric",
        metavar="NAME[:higher|:lower]",
        help="for ensemble: what --select chooses by; by default what best checkpoints are chosen "
        "by",
    )


def _add_seeing(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "look at a run",
        "runner --mode=status --watch --model_dir=runs\n"
        "runner --mode=report --watch --model_dir=runs/digits",
    )
    group.add_argument(
        "--watch",
        nargs="?",
        const="10",
        metavar="SECONDS",
        help="for status: show it again every so many seconds, 10 by default, until all runs have "
        "ended; for report: write the page again likewise",
    )


def _add_log(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "log elsewhere", "runner --mode=log --to=mlflow --model_dir=runs/digits"
    )
    group.add_argument(
        "--to",
        metavar="LOGGERS",
        help="for log: mlflow, wandb, csv, separated by commas; what they have already is not "
        "logged again",
    )


def _add_study(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "study",
        "runner --mode=study --seeds=5 --gin_file=digits.gin --model_dir=studies/rate\n"
        '  --vary="CosineLrConfig.initial_learning_rate=0.001,0.005"',
    )
    group.add_argument(
        "--seeds",
        metavar="N",
        help="for study: each configuration with the seeds from 0 to N-1, or with those of a list, "
        "as in 3,7",
    )
    group.add_argument("--folds", metavar="N", help="for study: each on N folds")
    group.add_argument(
        "--vary",
        action="append",
        metavar="NAME=VALUES",
        help="for study: values for a name as --gin takes it: a list, uniform(a, b), log(a, b) or "
        "int(a, b); repeatable",
    )
    group.add_argument("--trials", metavar="N", help="for study: how many configurations")
    group.add_argument(
        "--jobs", metavar="N", help="for study: how many runs side by side; auto, the default"
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
        "that come with the runner. Without it, the run in --model_dir keeps its configuration "
        "(config.gin)",
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
    add(
        "--worker_hosts",
        metavar="HOST:PORT,...",
        help="sets runtime.worker_hosts: all workers of a run, for the strategy "
        "'multi_worker_mirrored'; each is started by the same command",
    )
    add("--task_index", metavar="N", help="sets runtime.task_index: which of them this one is")
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
        choices=("all", "changed", "reads"),
        help="print every value and where it was set, then exit; =changed: without the defaults; "
        "with --mode, it is also checked for that; =reads: how often the run in --model_dir has "
        "read each",
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


def arguments(given: argparse.Namespace) -> list[str]:
    """The flags again, each as `--name=value`; those at their defaults are left out."""
    found = []
    for name, action in standard_library.options(parser()).items():
        value = getattr(given, action.dest, action.default)
        if not name.startswith("--") or value == action.default:
            continue
        if action.nargs == 0:
            found.append(name)
        else:
            values = value if isinstance(value, list) else [value]
            found += [f"{name}={each}" for each in values]
    return found


def long_form(argument: str) -> str:
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


def unknown(rest: Sequence[str]) -> str:
    """The message about the first of the arguments that no flag takes."""
    argument, following = rest[0], [*rest[1:2], ""][0]
    if not argument.startswith("-"):
        return f"{argument!r} is not a flag{_flag_for(argument)}"
    name, equals, value = argument.partition("=")
    if not equals and not following.startswith("-"):
        value = following
    if instead := other_tools.instead(name, value):
        return f"unknown flag {name}; {instead}"
    field = name.lstrip("-").replace("-", "_")
    if any(row.field == field for section in facts.table() for row in section.fields):
        return f"unknown flag {name}; {field} is in the configuration: see --help={field}"
    known = standard_library.options(parser())
    return f"unknown flag {name}{did_you_mean(name, known)}"


def _flag_for(word: str) -> str:
    """The flag that a word without one probably belongs to, as the end of a message."""
    if word.endswith(".gin"):
        return f"; did you mean --gin_file={word}?"
    if re.fullmatch(r"[\w./]+\.\w+=.*", word):
        flag = "--gin." if word.lstrip("_")[0].isupper() else "--params_override="
        return f"; did you mean {flag}{word}?"
    names = difflib.get_close_matches(word.lower(), modes.MODES, n=1, cutoff=0.75)
    return f"; did you mean --mode={names[0]}?" if names else " (flags start with --)"
