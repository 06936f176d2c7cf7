"""Compares the runner with minimal code that does the same, and with what it replaces.

    python scripts/benchmark.py [--only=loop,start] [--models=mlp,cnn,bert] [--loops=1,10,100]
        [--repeats=9] [--seconds=0.3] [--json=FILE]

- loop: training as users start it, against a bare `tf.function`, Model Garden and Keras' `fit`, all
  with the same kind of Adam. Few rounds contain a commit; the section `checkpoints` measures those.
- fit: `runner.fit`, for the first of the models, against a task written for it and Keras 2.
- graph: only the loop, against the bare loop in the same process: no rows, no checkpoints, and no
  differences between processes.
- start: from the start of the command to the row of its first step, for the first of the models;
  against a bare script.
- checkpoints: how long a commit blocks training (stall), and the time that training loses until
  everything is written (in all), against a synchronous save.
- evaluation: against a `tf.function` over the same batches.
- predict: a file of predictions, against `model(x)` for each batch.
- inputs: placed by step, against a shuffle buffer.
- memory: its growth over 2,000 loops and 500 evaluations, against bare loops, and both with a
  single malloc arena. It starts after the input waits have been timed, which needs another graph.
- growth: opening a history of 10,000 evaluations, and adding one to it.
- studies: eight seeds beside one run; a study's own time; opening 1,000 trials
  (`benchmark_studies.py`).
- workers: two workers on loopback, against a bare loop of the same step under the same strategy;
  and one worker under it, against none (`benchmark_workers.py`).
- runs: the table of 1,000 and of 10,000 runs, first and again (`benchmark_runs.py`).
- restarts: a worker killed -9, SIGTERM to all (`benchmark_restarts.py`).
- mirror: training that is copied to a bucket, against training that is not.

Contenders take turns, and ratios are computed within a round, so that drifts in the machine's speed
cancel out; shown are medians, with quartiles in brackets. Such drifts last seconds, so rounds of
training and evaluation are short. Processes of the same program differ, too, so each is started
three times, with `--repeats` rounds each. Ratios that miss their goal are **bold**. It takes about
half an hour on two cores that do nothing else.
"""

import argparse
import datetime
import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import benchmark_figures as figures
import benchmark_sections as sections
from runner.core import files
from runner.run_folder import provenance

_MODELS = ("mlp", "cnn", "bert")


def main() -> None:
    """Prints a table for each section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(sections.SECTIONS))
    parser.add_argument("--models", default=",".join(_MODELS))
    parser.add_argument("--loops", default="1,10,100")
    parser.add_argument("--repeats", type=int, default=9, help="rounds per set of processes")
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds of training per round")
    parser.add_argument("--evaluations", type=int, default=500, help="for the section memory")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    flags = parser.parse_args()
    options = sections.Options(
        models=chosen(parser, flags.models, _MODELS),
        loops=[int(each) for each in chosen(parser, flags.loops, ("1", "10", "100"))],
        repeats=flags.repeats,
        seconds=flags.seconds,
        evaluations=flags.evaluations,
    )
    where = machine()
    print(described(where), flush=True)
    found: dict[str, list[dict[str, Any]]] = {}
    for name in chosen(parser, flags.only, sections.SECTIONS):
        comparisons = []
        for comparison in sections.SECTIONS[name](options):
            print(f"{name}: {line(comparison)}", file=sys.stderr, flush=True)
            comparisons.append(comparison)
        print(f"\n{figures.markdown(comparisons)}", flush=True)
        found[name] = [comparison.as_dict() for comparison in comparisons]
        if flags.json:
            files.write_json(flags.json, {"machine": where, "sections": found})


def chosen(parser: argparse.ArgumentParser, text: str, known: Iterable[str]) -> list[str]:
    """The names in `text`; exits with an error if one is unknown."""
    known, names = list(known), text.split(",")
    for name in names:
        if name not in known:
            parser.error(f"unknown name {name!r}; expected some of {', '.join(known)}")
    return names


def machine() -> dict[str, Any]:
    """The machine and the date."""
    cpus = Path("/proc/cpuinfo").read_text().splitlines()
    code = provenance.code(Path(__file__).parent)
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


def described(where: dict[str, Any]) -> str:
    """The machine in one line."""
    return (
        f"{where['cpu']}, {where['cores']} cores, TensorFlow {where['versions']['tensorflow']}, "
        f"{where['date'][:10]}"
    )


def line(comparison: figures.Comparison) -> str:
    """A comparison in one line."""
    what, *others = comparison.cells().items()
    return "  ".join([what[1], *(f"{name} {cell}" for name, cell in others)])


if __name__ == "__main__":
    main()
