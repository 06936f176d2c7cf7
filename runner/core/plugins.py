"""Modules that are found by listing the files of their package."""

import importlib
from pathlib import Path
from types import ModuleType


def names(package: str, prefix: str = "") -> list[str]:
    """The sorted names of a package's modules that start with `prefix`, without the prefix.

    The modules are not imported, only the package is.
    """
    folders = importlib.import_module(package).__path__
    found = (path.stem for folder in folders for path in Path(folder).glob(f"{prefix}[a-z]*.py"))
    return sorted(name.removeprefix(prefix) for name in found)


def load(package: str, name: str) -> ModuleType:
    """The module `name` of a package."""
    return importlib.import_module(f"{package}.{name}")
