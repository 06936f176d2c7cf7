"""Imports what the trials of a study need, in the process that they are forked from.

Whatever fails here fails again in a trial, which says so.
"""

import contextlib
import gc
import json
import os
import sys

ARGUMENTS = "RUNNER_STUDY_ARGUMENTS"
"""Set in the environment of that process: the arguments of `config.load`, as JSON."""


def _load() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109, as for a command
    from runner import config
    from runner.runs import train

    del train
    config.load(**json.loads(os.environ[ARGUMENTS]))  # for what it imports
    gc.freeze()


if ARGUMENTS in os.environ:
    with contextlib.suppress(Exception):
        _load()
