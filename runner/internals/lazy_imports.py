"""Imports large modules of other libraries only when one of their names is first used.

TensorFlow, Keras and Model Garden import modules that most runs never use, such as Keras 3, pandas
and TensorFlow Datasets. Together these take almost half of the time of
`import tensorflow`. A lazy module is in `sys.modules` and has a specification, a file and a path,
but its code has not run. PEP 562 describes the function that runs it.

    python -P lazy_imports.py PROGRAM [ARGUMENT ...]
"""

import __future__

import importlib._bootstrap
import runpy
import sys
import time
import types
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import Any, cast

_ModuleLock: Any = importlib._bootstrap._ModuleLock  # type: ignore[attr-defined]
_DeadlockError: type[Exception] = importlib._bootstrap._DeadlockError  # type: ignore[attr-defined]

_TURN_SECONDS = 0.05  # in which a waiting thread takes a lock

LAZY = frozenset(
    {
        "googleapiclient.discovery",  # TensorFlow can run on Google's clusters
        "keras",  # Keras 3: models of tf_keras do not need it
        "keras._tf_keras",
        "keras._tf_keras.keras",
        "keras.saving",  # Keras can edit files in a notebook: IPython
        "keras.src",
        "keras.src.optimizers",
        "keras.src.visualization",  # Matplotlib
        "keras.visualization",
        "keras.wrappers",  # scikit-learn
        "pandas",
        "requests",
        "tensorflow._api.v2.compat.v1.compat",  # TensorFlow 1 and 2 again, as parts of TensorFlow 1
        "tensorflow.python.keras.callbacks",  # a copy of tf_keras for TensorFlow 1
        "tensorflow.python.keras.engine.training_v1",  # scipy.sparse
        "tensorflow_datasets",
        "tf_keras.preprocessing.image",  # scipy.ndimage
        "tf_keras.src.engine.training_v1",  # scipy.sparse
        "tf_keras.src.preprocessing.image",
    }
)
"""The lazy modules, with what they are for or what they load."""

UNEVALUATED = frozenset({"official.core.base_trainer"})
"""Modules with an annotation that would load Keras 3. Their annotations stay strings (PEP 563)."""


def begin() -> None:
    """Makes the listed modules lazy in this process, if they are not imported yet."""
    sys.meta_path.insert(0, _Finder())


def loaded(name: str) -> types.ModuleType | None:
    """Returns a module if it is imported and its code has run."""
    module = sys.modules.get(name)
    return None if _is_lazy(module) else module


def _is_lazy(module: types.ModuleType | None) -> bool:
    return isinstance(getattr(module, "__loader__", None), _Lazy)


class _Finder(MetaPathFinder):
    """Finds the lazy modules as `PathFinder` does, and gives them a lazy loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the specification of a listed module, or None for all others."""
        package = fullname.rpartition(".")[0]
        waits = fullname not in LAZY and _is_lazy(sys.modules.get(package))
        if not (waits or fullname in LAZY or fullname in UNEVALUATED):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            if fullname in LAZY:
                spec.loader = _Lazy(spec.loader)
            elif waits:
                spec.loader = _AfterPackage(spec.loader, package)
            elif isinstance(spec.loader, SourceFileLoader):
                spec.loader = _Unevaluated(spec.loader.name, spec.loader.path)
        return spec


class _AfterPackage(Loader):
    """Runs the code of a lazy package before that of a module in it.

    If the package imports the module itself, the module is not loaded a second time.
    """

    def __init__(self, loader: Loader, package: str) -> None:
        self._loader = loader
        self._package = package
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        """Returns the module if the package imported it, or creates it as the other loader does."""
        load(self._package)
        if (module := sys.modules.get(spec.name)) is not None:
            self._spec = module.__spec__
            return module
        spec.loader = self._loader
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        """Called only for an imported module: gives it its own specification again."""
        module.__spec__ = self._spec

    def __getattr__(self, name: str) -> Any:
        """Looks up everything else in the other loader, for callers that only inspect it."""
        return getattr(self._loader, name)


class _Unevaluated(SourceFileLoader):
    """Compiles a module as if it began with `from __future__ import annotations`."""

    def get_code(self, _: str) -> types.CodeType:
        """Returns the code of the module. Neither reads nor writes Python's cache of such code."""
        source, flag = self.get_data(self.path), __future__.annotations.compiler_flag
        return cast(types.CodeType, compile(source, self.path, "exec", flag, dont_inherit=True))


class _Lazy(Loader):
    """Runs a module's code when one of its names is first looked up."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._lock = _ModuleLock(loader)  # other threads wait until the code has run
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

        def listed() -> list[str]:
            self.run(module)
            return list(vars(module))

        self._hooks = {"__getattr__": missing, "__dir__": listed}
        vars(module).update(self._hooks)

    def run(self, module: types.ModuleType, *, again: bool = False) -> None:
        """Runs the module's code, unless it has run or runs now in the same thread."""
        try:
            self._lock.acquire()
        except _DeadlockError:  # as in Python: the other thread waits for an import of this one
            return
        try:
            self._run(module)
        except _DeadlockError:  # another thread imports a part of this package and waits for this
            if again:
                raise
        else:
            return
        finally:
            self._lock.release()
        time.sleep(_TURN_SECONDS)
        self.run(module, again=True)

    def _run(self, module: types.ModuleType) -> None:
        package, _, name = module.__name__.rpartition(".")
        if not self._runs:
            load(package)  # which may run this module, too
        if self._runs or module.__loader__ is not self:
            return
        self._runs = True
        try:
            self._loader.exec_module(module)
        finally:
            self._runs = False
        vars(module)["__loader__"] = vars(module)["__spec__"].loader = self._loader
        replaced = sys.modules[module.__name__]  # TensorFlow 1 replaces its modules
        for each in {module, replaced}:
            for hook, function in self._hooks.items():
                if vars(each).get(hook) is function:
                    del vars(each)[hook]
        if package:
            setattr(sys.modules[package], name, replaced)

    def __getattr__(self, name: str) -> Any:
        """Looks up everything else, such as reading a package's files, in the other loader."""
        return getattr(self._loader, name)


def load(name: str) -> None:
    """Runs the code of a module if it is imported and still lazy."""
    module = sys.modules.get(name)
    loader = getattr(module, "__loader__", None)
    if module is not None and isinstance(loader, _Lazy):
        loader.run(module)


if __name__ == "__main__":
    begin()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
