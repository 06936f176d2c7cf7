"""Imports the modules that a study's trials need, in the process that they are forked from.

Failures are ignored here, because the trial fails the same way and reports the error.
"""

import contextlib
import inspect
import json
import os
import sys

from runner.core import user_code
from runner.devices import garbage
from runner.internals import lazy_imports
from runner.studies.warm import ARGUMENTS

_MODEL = "tf_keras.src.engine.training_v1"  # used by every model of tf_keras
_IN_GRAPH = ("train_step", "validation_step", "inference_step", "build_losses", "process_metrics")


def _load() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109, as for a command
    lazy_imports.begin()
    with garbage.uncollected():
        from official.core import task_factory

        from runner import config
        from runner.configuration import printing, sections
        from runner.internals import autograph
        from runner.runs import compiled_model, train

        del compiled_model, train
        made = config.load(**json.loads(os.environ[ARGUMENTS]), menus=True)  # for its imports
        for _, section in sections.walk(made):
            printing.default_of(section)  # is cached
        with contextlib.suppress(LookupError):
            task = task_factory.get_task_cls(type(made.task))
            autograph.convert(task, _IN_GRAPH, ("build_metrics",))
            if hasattr(task, "pictures"):
                import matplotlib.figure  # noqa: F401, which most tasks use for pictures
        users = [vars(sys.modules[name]) for name in user_code.modules()]
        used = [each for names in users for each in names.values() if inspect.ismodule(each)]
        for name in (_MODEL, *(module.__name__ for module in used)):
            lazy_imports.load(name)
        autograph.keep_sources(user_code.loaded())
        garbage.freeze()


if ARGUMENTS in os.environ:
    with contextlib.suppress(Exception):
        _load()
