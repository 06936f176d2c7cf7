"""Compares the runner's speed and memory with minimal code, Model Garden and Keras.

    python -m scripts.bench quick              # the most important figures, in five minutes
    python -m scripts.bench all                # about half an hour on two idle cores
    python -m scripts.bench loop --models=mlp --loops=1,10 --repeats=3 --json=FILE

Every subcommand prints a table of medians, with quartiles in brackets. The contenders take turns,
and ratios are computed within a round, so that changes in the machine's speed cancel out. Such
changes last seconds, so rounds of training and evaluation are short. Two processes of the same
program differ in speed, too. Many contenders are therefore started three times, with `--repeats`
rounds each. Ratios that miss their goal are **bold**.
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

ALL, QUICK = "all", "quick"
_MODELS = ("mlp", "cnn", "bert")
_LOOPS = (1, 10, 100)
_TRAINING = ("models", "loops", "seconds")
_SQUAD = ("train", "dev", "glove", "dimension", "minutes", "readers", "gin")


class Part(NamedTuple):
    """A subcommand. It calls the function of the same name in a module of this package.

    Attributes:
        module: The module, which is imported only if it is needed.
        help: A one-line description.
        flags: Names in `FLAGS`.
        repeats: The default number of rounds in each set of processes.
    """

    module: str
    help: str
    flags: tuple[str, ...] = ()
    repeats: int = 9


PARTS = {
    "loop": Part("sections", "training vs. a tf.function, Model Garden and Keras", _TRAINING),
    "fit": Part("sections", "runner.fit vs. a task for the same model, and Keras", _TRAINING),
    "scores": Part("scores", "what runner.fit and Keras's fit learn from small data sets", (), 3),
    "graph": Part("sections", "the training loop alone vs. a bare loop", ("models", "loops")),
    "start": Part("sections", "time to the first step vs. a bare script", ("models",)),
    "checkpoints": Part("sections", "the cost of a checkpoint vs. a synchronous save"),
    "guards": Part(
        "sections", "repeated steps and continuous saving vs. without", ("models", "seconds"), 3
    ),
    "evaluation": Part("sections", "evaluation vs. a tf.function", ("models",)),
    "predict": Part("sections", "prediction vs. model(x) for each batch", ("models",)),
    "inputs": Part("sections", "index-based inputs vs. a shuffle buffer"),
    "memory": Part("sections", "growth of memory vs. bare loops", ("evaluations",)),
    "growth": Part("sections", "reading and extending a history of 10,000 evaluations"),
    "studies": Part("studies", "eight seeds in a study vs. one run; overhead", (), 3),
    "commands": Part("runs", "duration of short commands and of a long report", (), 5),
    "runs": Part("runs", "duration of --mode=runs and --mode=compare", (), 3),
    "idle": Part("idle", "memory of processes that wait", (), 1),
    "restarts": Part("restarts", "time to recover from SIGKILL, and to stop on SIGTERM", (), 3),
    "mirror": Part("sections", "training with vs. without a copy in a bucket", ("seconds",)),
    "workers": Part("sections", "training on two workers vs. a bare loop", _TRAINING),
}
LONG = {
    "evaluator": Part("evaluator", "delays and memory of an evaluator", ("checkpoints",), 3),
    "search": Part("studies", "search strategies of studies on Branin's function", (), 20),
    "halving": Part("studies", "30 learning rates with ASHA vs. without", (), 1),
    "curves": Part("curves", "growth with evaluations, sets and parameters", ("most", "plot"), 1),
    "cifar": Part("cifar", "training on CIFAR-10 vs. Keras", ("train", "test", "epochs"), 3),
    "readers": Part("readers", "word-based readers on SQuAD at equal CPU time", _SQUAD, 1),
}

IN_QUICK: dict[str, dict[str, Any]] = {
    "loop": {"models": ["mlp"], "loops": [10], "seconds": 0.3, "repeats": 3},
    "start": {"models": ["mlp"], "repeats": 2},
    "commands": {"repeats": 2},
    "checkpoints": {"repeats": 1},
    "growth": {"repeats": 1},
    "studies": {"repeats": 1},
    "restarts": {"repeats": 1},
}
"""The subcommands that `quick` runs, with the values of their flags."""


def _some_of(*known: Any) -> Callable[[str], list[Any]]:
    """Returns a parser of comma-separated names or numbers."""

    def names(text: str) -> list[Any]:
        by_name = {str(value): value for value in known}
        if unknown := set(text.split(",")) - set(by_name):
            expected = f"choose from {', '.join(by_name)}"
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}; {expected}")
        return [by_name[name] for name in text.split(",")]

    return names


FLAGS: dict[str, dict[str, Any]] = {
    "models": {"type": _some_of(*_MODELS), "default": _MODELS, "help": "from mlp,cnn,bert"},
    "loops": {"type": _some_of(*_LOOPS), "default": _LOOPS, "help": "steps per loop: 1,10,100"},
    "seconds": {"type": float, "default": 0.3, "help": "seconds of training per round"},
    "evaluations": {"type": int, "default": 500, "help": "the number of evaluations"},
    "checkpoints": {"type": int, "default": 400, "help": "the number that an evaluator follows"},
    "most": {"type": int, "default": 10**8, "help": "the largest number of anything"},
    "plot": {"type": Path, "help": "also draw the figures to this .svg or .png file"},
    "train": {"required": True, "help": "the training data: .npz, or SQuAD's JSON for readers"},
    "test": {"required": True, "help": ".npz of test images and labels"},
    "epochs": {"type": int, "default": 10, "help": "the number of epochs"},
    "dev": {"required": True, "help": "SQuAD's JSON with the questions to score"},
    "glove": {"required": True, "help": "word vectors in GloVe's format"},
    "dimension": {"type": int, "required": True, "help": "the dimension of the word vectors"},
    "minutes": {"type": float, "default": 10, "help": "CPU time to train each reader"},
    "readers": {"help": "a selection such as bidaf,qanet; default: all"},
    "gin": {"action": "append", "default": [], "help": "a further binding; repeatable"},
}


def main() -> None:
    """Prints a table for each part."""
    flags = _parser().parse_args()
    processes.use_this_checkout()
    machine = _machine()
    print(_described(machine), flush=True)
    tables: dict[str, list[dict[str, Any]]] = {}
    names = {ALL: [*PARTS], QUICK: [*IN_QUICK]}.get(flags.part, [flags.part])
    repeats = flags.repeats
    for name in names:
        part = {**PARTS, **LONG}[name]
        vars(flags).update(IN_QUICK[name] if flags.part == QUICK else {"repeats": part.repeats})
        flags.repeats = repeats or flags.repeats
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
    everything = Part("", f"all subcommands below, up to {list(PARTS)[-1]}; half an hour", flags)
    quick = Part("", f"few rounds of {', '.join(IN_QUICK)}; five minutes")
    for name, part in {QUICK: quick, ALL: everything, **PARTS, **LONG}.items():
        command = commands.add_parser(name, help=part.help, allow_abbrev=False)
        for flag in part.flags:
            command.add_argument(f"--{flag}", **FLAGS[flag])
        repeats = part.repeats if part.module else "the default of each subcommand"
        command.add_argument("--repeats", type=int, help=f"rounds; default: {repeats}")
        command.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser


def _machine() -> dict[str, Any]:
    """Describes the machine, the date and the code."""
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
    """Formats the description in one line."""
    return (
        f"{machine['cpu']}, {machine['cores']} cores, "
        f"TensorFlow {machine['versions']['tensorflow']}, {machine['date'][:10]}"
    )


def _line(result: comparison.Comparison) -> str:
    """Formats a comparison in one line."""
    what, *others = result.cells().items()
    return "  ".join([what[1], *(f"{name} {cell}" for name, cell in others)])


if __name__ == "__main__":
    main()
