"""Imports what the trials of a study need, in the process that they are forked from.

Whatever fails here fails again in a trial, which says so.
"""

import contextlib
import json
import os
import sys

from runner.core import garbage
from runner.studies.warm import ARGUMENTS


def _load() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109, as for a command
    with garbage.uncollected():
        from runner import config
        from runner.configuration import printing
        from runner.runs import compiled_model, train

        del compiled_model, train
        made = config.load(**json.loads(os.environ[ARGUMENTS]))  # for what it imports
        printing.changed(made)  # for the defaults of its sections, which are kept
    garbage.freeze()


if ARGUMENTS in os.environ:
    with contextlib.suppress(Exception):
        _load()
