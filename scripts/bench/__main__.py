"""Compares the runner with minimal code that does the same, and with what it replaces.

    python -m scripts.bench all                # about half an hour on two idle cores
    python -m scripts.bench loop --models=mlp --loops=1,10 --repeats=3 --json=FILE

Every subcommand prints a table. Contenders take turns, and ratios are computed within a round, so
that drifts in the machine's speed cancel out; shown are medians, with quartiles in brackets. Such
drifts last seconds, so rounds of training and evaluation are short. Processes of the same program
differ, too, so many contenders are started three times, with `--repeats` rounds each. Ratios that
miss their goal are **bold**.
"""

import argparse
import datetime
import importlib
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from runner.core import files
from runner.run_directory import provenance
from scripts import processes
from scripts.bench import comparison

ALL = "all"
_MODELS = ("mlp", "cnn", "bert")
_LOOPS = (1, 10, 100)
_TRAINING = ("models", "loops", "seconds")
_SQUAD = ("train", "dev", "glove", "dimension", "minutes", "readers", "gin")


class Part(NamedTuple):
    """A subcommand: the function of its name in a module of this package.

    Attributes:
        module: The module, which is imported only if it is needed.
        help: A line about it.
        flags: Names in `FLAGS`.
        repeats: The default number of rounds in each set of processes.
    """

    module: str
    help: str
    flags: tuple[str, ...] = ()
    repeats: int = 9


PARTS = {
    "loop": Part("sections", "training, against a tf.function, Model Garden and Keras", _TRAINING),
    "fit": Part("sections", "runner.fit, against a task for the model and Keras", _TRAINING),
    "graph": Part("sections", "the loop alone, against a bare one", ("models", "loops")),
    "start": Part("sections", "the first step, against a bare script's; --help", ("models",)),
    "checkpoints": Part("sections", "what a checkpoint costs, against a synchronous save"),
    "evaluation": Part("sections", "evaluation, against a tf.function", ("models",)),
    "predict": Part("sections", "predictions, against model(x) for each batch", ("models",)),
    "inputs": Part("sections", "index-based inputs, against a shuffle buffer"),
    "memory": Part("sections", "growth of memory, against bare loops", ("evaluations",)),
    "growth": Part("sections", "a history of 10,000 evaluations"),
    "studies": Part("studies", "eight seeds, against one run; a study's own time", (), 3),
    "runs": Part("runs", "tables of 1,000 and 10,000 runs; comparing two", (), 3),
    "restarts": Part("restarts", "a killed worker, and SIGTERM to all workers", (), 3),
    "mirror": Part("sections", "training with a copy in a bucket, against none", ("seconds",)),
    "workers": Part("sections", "two workers, against a bare loop", _TRAINING),
}
LONG = {
    "evaluator": Part("evaluator", "delays of an evaluator, its memory", ("checkpoints",), 3),
    "search": Part("studies", "Branin's function, by the strategies of a study", (), 20),
    "halving": Part("studies", "30 learning rates with ASHA, against all in full", (), 1),
    "cifar": Part("cifar", "training on CIFAR-10, against Keras", ("train", "test", "epochs"), 3),
    "readers": Part("readers", "readers of words on SQuAD, at equal time", _SQUAD, 1),
}


def _some_of(*known: Any) -> Callable[[str], list[Any]]:
    """A parser of names or numbers that are separated by commas."""

    def names(text: str) -> list[Any]:
        by_name = {str(value): value for value in known}
        if unknown := set(text.split(",")) - set(by_name):
            expected = f"expected some of {', '.join(by_name)}"
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}; {expected}")
        return [by_name[name] for name in text.split(",")]

    return names


FLAGS: dict[str, dict[str, Any]] = {
    "models": {"type": _some_of(*_MODELS), "default": _MODELS, "help": "of mlp, cnn and bert"},
    "loops": {"type": _some_of(*_LOOPS), "default": _LOOPS, "help": "steps per loop: 1,10,100"},
    "seconds": {"type": float, "default": 0.3, "help": "seconds of training per round"},
    "evaluations": {"type": int, "default": 500, "help": "how many to run"},
    "checkpoints": {"type": int, "default": 400, "help": "how many a slow evaluator evaluates"},
    "train": {"required": True, "help": "the training data: .npz, or SQuAD's JSON for readers"},
    "test": {"required": True, "help": ".npz of test images and labels"},
    "epochs": {"type": int, "default": 10, "help": "how long to train"},
    "dev": {"required": True, "help": "SQuAD's JSON of the questions to score"},
    "glove": {"required": True, "help": "word vectors in GloVe's format"},
    "dimension": {"type": int, "required": True, "help": "of the word vectors"},
    "minutes": {"type": float, "default": 10, "help": "CPU time of training, for each"},
    "readers": {"help": "some of them, such as bidaf,qanet; default: all"},
    "gin": {"action": "append", "default": [], "help": "a further binding; repeatable"},
}


def main() -> None:
    """Prints a table for each part."""
    flags = _parser().parse_args()
    processes.use_this_checkout()
    machine = _machine()
    print(_described(machine), flush=True)
    tables: dict[str, list[dict[str, Any]]] = {}
    parts = PARTS if flags.part == ALL else {flags.part: {**PARTS, **LONG}[flags.part]}
    repeats = flags.repeats
    for name, part in parts.items():
        flags.repeats = repeats or part.repeats
        compare = getattr(importlib.import_module(f"scripts.bench.{part.module}"), name)
        comparisons = []
        for result in compare(flags):
            print(f"{name}: {_line(result)}", file=sys.stderr, flush=True)
            comparisons.append(result)
        print(f"\n{comparison.markdown(comparisons)}", flush=True)
        tables[name] = [result.as_dict() for result in comparisons]
        if flags.json:
            files.write_json(flags.json, {"machine": machine, "sections": tables})


def _parser() -> argparse.ArgumentParser:
    parser = processes.parser("bench", __doc__)
    commands = parser.add_subparsers(dest="part", required=True, metavar="SUBCOMMAND")
    flags = tuple(dict.fromkeys(flag for part in PARTS.values() for flag in part.flags))
    everything = Part("", f"all of the following up to {list(PARTS)[-1]}, in half an hour", flags)
    for name, part in {ALL: everything, **PARTS, **LONG}.items():
        command = commands.add_parser(name, help=part.help, allow_abbrev=False)
        for flag in part.flags:
            command.add_argument(f"--{flag}", **FLAGS[flag])
        repeats = part.repeats if part.module else "as for each one"
        command.add_argument("--repeats", type=int, help=f"rounds; default: {repeats}")
        command.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser


def _machine() -> dict[str, Any]:
    """The machine and the date."""
    cpus = Path("/proc/cpuinfo").read_text().splitlines()
    code = provenance.code(processes.ROOT)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": next(line.split(": ")[1] for line in cpus if line.startswith("model name")),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": provenance.versions(),
        "commit": code and code["commit"],
        "changed": bool(code and code["diff"]),
    }


def _described(machine: dict[str, Any]) -> str:
    """The machine in one line."""
    return (
        f"{machine['cpu']}, {machine['cores']} cores, "
        f"TensorFlow {machine['versions']['tensorflow']}, {machine['date'][:10]}"
    )


def _line(result: comparison.Comparison) -> str:
    """A comparison in one line."""
    what, *others = result.cells().items()
    return "  ".join([what[1], *(f"{name} {cell}" for name, cell in others)])


if __name__ == "__main__":
    main()
