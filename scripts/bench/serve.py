"""Runs a contender in its own process: `python -m scripts.bench.serve MODULE FUNCTION`."""

import contextlib
import gc
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any


class CaseOverError(Exception):
    """`pause` raises this after the last round."""


def main(module: str, function: str) -> None:
    """Runs the contender for each case that a line of stdin describes."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # silences TensorFlow's startup messages
    answers = os.fdopen(os.dup(1), "w")  # kept apart from what contenders print
    os.dup2(2, 1)

    def pause(result: Any) -> None:
        print(json.dumps(result), file=answers, flush=True)
        if sys.stdin.readline().strip() != "go":
            raise CaseOverError

    contender = getattr(importlib.import_module(f"scripts.bench.{module}"), function)
    while case := sys.stdin.readline():
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(CaseOverError):
            contender(Path(folder), pause, **json.loads(case))
        gc.collect()


if __name__ == "__main__":
    main(*sys.argv[1:])
