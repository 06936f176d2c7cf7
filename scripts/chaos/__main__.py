"""Interrupts runs, studies and workers, and compares their results with undisturbed ones.

    python -m scripts.chaos all --faults=1000  # faults of all kinds, hours on two cores
    python -m scripts.chaos attacks            # the attacks up to `long`, an hour on two cores
    python -m scripts.chaos run --kills=50 --terms=5 --stops=5 --gin_file=digits_cnn.gin

`run`, `study`, `workers` and `bucket` pass other flags on to the runner. The exit code is 0 if all
attacks were withstood: no bit differs, and nothing is lost.
"""

import argparse
import importlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from scripts import processes

ALL = "attacks"


class Part(NamedTuple):
    """A subcommand. It calls the function of the same name in a module of this package.

    Attributes:
        module: The module, which is imported only if it is needed.
        help: A one-line description.
        flags: Names in `FLAGS`.
        passes_on: Whether other flags are passed on to the runner.
    """

    module: str
    help: str
    flags: tuple[str, ...] = ()
    passes_on: bool = False


ATTACKS = {
    "lost": Part("attacks", "after each kill, a file of the run is lost", ("kills", "seed")),
    "params": Part("attacks", "a run without params.yaml is restarted with another seed"),
    "moved": Part("attacks", "a run's directory is moved five times while it trains"),
    "nan": Part("attacks", "a run with NaNs in its data gets 5 SIGKILLs and 5 SIGTERMs"),
    "clocks": Part("attacks", "the clocks of evaluators are an hour off (needs faketime)"),
    "hosts": Part("attacks", "another host takes over a suspended run (needs unshare, as root)"),
    "streams": Part("attacks", "stdin, stdout or stderr is closed, unread or full"),
    "ports": Part("attacks", "a worker's port is in use, or a worker ends during the connection"),
    "failure_handler": Part(
        "attacks", "TensorFlow's scenarios for its failure handler, with four workers", ("seed",)
    ),
    "hostile": Part("hostile", "names in a bucket lead out of the local copy (needs moto)"),
    "keras": Part(
        "keras_models",
        "40 kinds of Keras models are killed, resumed, loaded back, exported",
        ("names",),
    ),
    "keras_scripts": Part(
        "keras_scripts",
        "scripts and a notebook with runner.fit, killed, loaded back, exported",
        ("kills", "seed", "names", "train"),
    ),
    "long": Part("attacks", "75 to 100 interruptions of several kinds of runs", ("cifar",)),
}
OTHERS = {
    "run": Part(
        "run",
        "one run, interrupted at random moments",
        ("kills", "terms", "stops", "mode", "seed"),
        passes_on=True,
    ),
    "garden": Part(
        "garden",
        "three experiments of Model Garden that read by index, killed",
        ("kills", "terms", "stops", "names", "seed"),
    ),
    "study": Part(
        "study", "a study and its trials, killed at random moments", ("kills", "seed"), True
    ),
    "workers": Part(
        "workers",
        "workers and supervisors, interrupted at random moments",
        ("faults", "workers", "start_seconds", "mode", "seed"),
        passes_on=True,
    ),
    "bucket": Part(
        "bucket",
        "a run in a bucket, on two machines in turn (needs moto)",
        ("faults", "gin_file", "seed"),
        passes_on=True,
    ),
    "power": Part(
        "power",
        "the power is cut at any moment, on three file systems (needs root, mfusepy)",
        ("cuts", "names", "file_systems", "disks", "seed"),
    ),
    "storage": Part(
        "storage",
        "single file operations fail: full disk, I/O errors (needs root, mfusepy)",
        ("points", "errors", "seed"),
    ),
    "memory": Part(
        "memory",
        "a run gets no more memory while it trains, saves or evaluates (needs root)",
        ("points", "seed"),
    ),
    "flips": Part(
        "flips",
        "single bits are flipped in training steps, which RunConfig.recheck_every repeats",
        ("points", "seed"),
    ),
    "all": Part(
        "faults",
        "faults of all kinds, drawn with a seed; the same command goes on after a stop",
        ("faults", "jobs", "seed"),
    ),
    "slurm": Part("slurm", "jobs of a real Slurm cluster, preempted and killed", ("only",)),
    "interleavings": Part(
        "interleavings",
        "the orders of file operations of processes that share a directory",
        ("seconds", "exhaustive", "names", "seed"),
    ),
    "ray": Part("ray", "nodes of a Ray cluster, killed", ("nodes", "trials", "cpus", "seed")),
}
FLAGS: dict[str, dict[str, Any]] = {
    "kills": {"type": int, "default": 50, "help": "the number of SIGKILLs"},
    "terms": {"type": int, "default": 0, "help": "the number of SIGTERMs"},
    "stops": {"type": int, "default": 0, "help": "the number of SIGSTOPs with takeovers"},
    "faults": {"type": int, "default": 20, "help": "the number of faults"},
    "mode": {"default": "train_and_eval", "help": "train or train_and_eval"},
    "gin_file": {"default": "digits_cnn.gin", "help": "the experiment to train"},
    "workers": {"default": "2", "help": "the runner's flag --workers"},
    "start_seconds": {"type": float, "default": 15.0, "help": "the duration of a start"},
    "only": {"default": "run,nodes,study,evaluator,time", "help": "the parts to run"},
    "names": {"help": "a selection, separated by commas; default: all that the attack names"},
    "train": {"type": Path, "help": "MNIST as mnist.npz, for its script"},
    "nodes": {"type": int, "default": 1, "help": "the number of nodes to kill"},
    "trials": {"type": int, "default": 200, "help": "the number of trials, a second each"},
    "cpus": {"type": int, "default": 4, "help": "the CPUs of each node"},
    "cifar": {"type": Path, "help": "the directory with train_10k.npz and test_2k.npz"},
    "seconds": {"type": float, "default": 60.0, "help": "the duration"},
    "exhaustive": {"action": "store_true", "help": "depth first, instead of at random"},
    "points": {"type": int, "default": 100, "help": "the number of places to disturb"},
    "errors": {"default": "ENOSPC,EDQUOT,EROFS,EIO,short", "help": "separated by commas"},
    "jobs": {"type": int, "default": 1, "help": "how many to run in parallel"},
    "cuts": {"type": int, "default": 120, "help": "the number of power cuts"},
    "file_systems": {"default": "ext4,xfs,btrfs", "help": "separated by commas"},
    "disks": {"type": Path, "help": "the directory for the disks, such as /dev/shm"},
    "seed": {"type": int, "default": 0, "help": "the seed of the random interruptions"},
}


def main() -> int:
    """Runs the command and returns its exit code."""
    parser = _parser()
    flags, more = parser.parse_known_args()
    parts = ATTACKS if flags.part == ALL else {flags.part: {**ATTACKS, **OTHERS}[flags.part]}
    if more and not parts.get(flags.part, Part("", "")).passes_on:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    processes.use_this_checkout()
    sys.path.append(str(processes.ROOT / "tests" / "helpers"))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # silences TensorFlow's startup messages
    withstood = [_withstands(name, part, flags, more) for name, part in parts.items()]
    return 0 if all(withstood) else 1


def _withstands(name: str, part: Part, flags: argparse.Namespace, more: list[str]) -> bool:
    """Runs a part and prints its problems. Removes a temporary directory if there are none."""
    module = importlib.import_module(f"scripts.chaos.{part.module}")
    attack = module.everything if name == "all" else getattr(module, name)
    folder = (
        flags.folder / name if flags.folder else Path(tempfile.mkdtemp(prefix=f"chaos-{name}-"))
    )
    folder.mkdir(parents=True, exist_ok=True)
    wrong = attack(argparse.Namespace(**{**vars(flags), "folder": folder}), more)
    print(*wrong, sep="\n")
    print(f"{name}: {f'NOT withstood, see {folder}' if wrong else 'withstood'}", flush=True)
    if not wrong and not flags.folder:
        shutil.rmtree(folder)
    return not wrong


def _parser() -> argparse.ArgumentParser:
    parser = processes.parser("chaos", __doc__)
    commands = parser.add_subparsers(dest="part", required=True, metavar="SUBCOMMAND")
    everything = Part("", f"all attacks below, up to {list(ATTACKS)[-1]}; an hour", ("cifar",))
    for name, part in {ALL: everything, **ATTACKS, **OTHERS}.items():
        usage = (
            f"{parser.prog} {name} [FLAG ...] [FLAG OF THE RUNNER ...]" if part.passes_on else None
        )
        command = commands.add_parser(name, help=part.help, usage=usage, allow_abbrev=False)
        for flag in part.flags:
            command.add_argument(f"--{flag}", **FLAGS[flag])
        command.add_argument("--folder", type=Path, help="default: a temporary directory")
    return parser


if __name__ == "__main__":
    sys.exit(main())
