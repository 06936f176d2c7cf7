"""Imports what the trials of a study need, in the process that they are forked from.

Whatever fails here fails again in a trial, which says so.
"""

import contextlib
import json
import os
import sys

from runner.core import user_code
from runner.devices import garbage
from runner.studies.warm import ARGUMENTS

_IN_GRAPH = ("train_step", "validation_step", "inference_step", "build_losses", "process_metrics")


def _load() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109, as for a command
    with garbage.uncollected():
        from official.core import task_factory

        from runner import config
        from runner.configuration import printing, sections
        from runner.internals import autograph
        from runner.runs import compiled_model, train

        del compiled_model, train
        made = config.load(**json.loads(os.environ[ARGUMENTS]), menus=True)  # for what it imports
        for _, section in sections.walk(made):
            printing.default_of(section)  # is kept
        with contextlib.suppress(LookupError):
            task = task_factory.get_task_cls(type(made.task))
            autograph.convert(task, _IN_GRAPH, ("build_metrics",))
    autograph.keep_sources(user_code.loaded())
    garbage.freeze()


if ARGUMENTS in os.environ:
    with contextlib.suppress(Exception):
        _load()
