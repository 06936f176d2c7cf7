"""Explores the orders of file operations of processes that share a directory.

    python -m scripts.chaos interleavings --seconds=600 --seed=0
    python -m scripts.chaos interleavings --exhaustive --names="lock,lease"

Each model runs the real code of several processes, one operation at a time, under a simulated
clock. Before each file operation, another process may continue, or a process may crash. By default,
the choices are random. With `--exhaustive`, each model is explored depth first, up to one deviation
from the fixed order and one crash, until this is complete or its share of the time is over.
"""

import argparse
import dataclasses
from typing import Any

_HEADER = "| model | processes | interleavings | most operations | complete | violations |"


def interleavings(flags: argparse.Namespace, _: list[str]) -> list[str]:
    """Explores the models and prints a table. Returns a line for each violation."""
    from interleavings import explorer, models

    names = flags.names.split(",") if flags.names else list(models.MODELS)
    share = flags.seconds / len(names)
    wrong: list[str] = []
    print(_HEADER, "|---|---|---:|---:|---|---:|", sep="\n", flush=True)
    for name in names:
        model = models.MODELS[name]
        if flags.exhaustive:
            bounded = dataclasses.replace(model, deviations=1)
            result = explorer.systematic(bounded, seconds=share)
        else:
            result = explorer.at_random(model, seed=flags.seed, seconds=share)
        print(_row(model, result), flush=True)
        wrong += [f"{name}: {what}" for what in result.violations]
    return wrong


def _row(model: Any, result: Any) -> str:
    complete = "yes" if result.is_complete else "no"
    counts = f"{result.explored:,} | {result.most:,} | {complete} | {len(result.violations)}"
    return f"| {model.name} | {model.processes} | {counts} |"
