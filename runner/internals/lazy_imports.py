"""Imports large modules of other libraries only when one of their names is first used.

TensorFlow, Keras and Model Garden import modules that most runs never use, such as the plots of
Keras and its wrappers for scikit-learn. Together these take a third of the time of
`import tensorflow`. A lazy module is in `sys.modules` and has a specification, a file and a path,
but its code has not run. PEP 562 describes the function that runs it.

    python -P lazy_imports.py PROGRAM [ARGUMENT ...]
"""

import runpy
import sys
import threading
import types
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

LAZY = frozenset(
    {
        "googleapiclient.discovery",  # TensorFlow can run on Google's clusters
        "keras.saving",  # Keras can edit files in a notebook: IPython
        "keras.src.visualization",  # Matplotlib
        "keras.visualization",
        "keras.wrappers",  # scikit-learn
        "tensorflow._api.v2.compat.v1.compat",  # TensorFlow 1 and 2 again, as parts of TensorFlow 1
        "tensorflow_datasets",
        "tf_keras.preprocessing.image",  # scipy.ndimage
        "tf_keras.src.preprocessing.image",
    }
)
"""The lazy modules, with what they are for or what they load."""


def begin() -> None:
    """Makes these modules lazy in this process, if they are not imported yet."""
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds the lazy modules as `PathFinder` does, and gives them a lazy loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the specification of a lazy module, or None for all others."""
        if fullname not in LAZY:
            _run(fullname.rpartition(".")[0])  # a package's code runs before that of its modules
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Lazy(spec.loader)
        return spec


class _Lazy(Loader):
    """Runs a module's code when one of its names is first looked up."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._lock = threading.RLock()  # other threads wait until the code has run
        self._runs = False

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        """Creates the module as the other loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        """Prepares the module, so that its code runs later."""

        def missing(name: str) -> Any:
            self.run(module)
            names = vars(module)
            if name not in names and names.get("__getattr__", missing) is missing:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            return getattr(module, name)

        vars(module)["__getattr__"] = self._missing = missing

    def run(self, module: types.ModuleType) -> None:
        """Runs the module's code, unless it has run or runs now in the same thread."""
        with self._lock:
            if self._runs or module.__loader__ is not self:
                return
            self._runs = True
            package, _, name = module.__name__.rpartition(".")
            try:
                _run(package)
                self._loader.exec_module(module)
            finally:
                self._runs = False
            vars(module)["__loader__"] = vars(module)["__spec__"].loader = self._loader
            replaced = sys.modules[module.__name__]  # TensorFlow 1 replaces its modules
            for each in {module, replaced}:
                if vars(each).get("__getattr__") is self._missing:
                    del vars(each)["__getattr__"]
            if package:
                setattr(sys.modules[package], name, replaced)

    def __getattr__(self, name: str) -> Any:
        """Looks up everything else, such as reading a package's files, in the other loader."""
        return getattr(self._loader, name)


def _run(name: str) -> None:
    """Runs the code of a module that is still lazy."""
    module = sys.modules.get(name)
    loader = getattr(module, "__loader__", None)
    if module is not None and isinstance(loader, _Lazy):
        loader.run(module)


if __name__ == "__main__":
    begin()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
