"""Makes the `tasks` package of the runner importable alongside a user's own.

The runner's package has no `__init__.py`, so Python merges it with every other `tasks/` directory
that has none. A `tasks/__init__.py` or a `tasks.py` would hide it, because Python stops searching
there. A finder in front of Python's own therefore lets them find the user's package, and adds the
runner's directory to its `__path__`. The same applies to submodules: a user's `tasks/images.py` or
`tasks/images/` alongside the runner's `tasks/images/`.

If both have a module of the same name, the user's is imported, and `hidden` explains what it lacks.
"""

import sys
from collections.abc import Sequence
from importlib import machinery
from pathlib import Path
from types import ModuleType

_NAME = "tasks"
_ROOT = Path(__file__).parents[2]


class _Finder:
    """Finds what other finders find, with the runner's directory added."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> machinery.ModuleSpec | None:
        folder = _folder(name)
        if not folder:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None:
            spec = machinery.ModuleSpec(name, None, is_package=True)
        if spec.submodule_search_locations is None:
            _make_package_of(spec)
        elif folder not in spec.submodule_search_locations:
            spec.submodule_search_locations = [*spec.submodule_search_locations, folder]
        return spec


class _ModuleLoader(machinery.SourceFileLoader):
    """Loads `tasks.py` with a `__path__`, like a package, but keeps its `__package__`."""

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = [_folder(module.__name__)]
        super().exec_module(module)


def install() -> None:
    """Adds the finder once, and the runner's directories to already imported packages."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for name, module in list(sys.modules.items()):
        if folder := _folder(name):  # no attribute of other modules, which may be anything
            path = list(getattr(module, "__path__", []))
            module.__path__ = path if folder in path else [*path, folder]


def hidden(name: str) -> str:
    """Describes how another module hides the runner's of the same name, or returns ""."""
    ours = _ROOT.joinpath(*name.split(".")).with_suffix(".py")
    imported = Path(getattr(sys.modules.get(name), "__file__", None) or ours)
    if not name.startswith(f"{_NAME}.") or not ours.is_file() or imported.samefile(ours):
        return ""
    return f"; {name} is {imported}, which hides the runner's own: rename yours to use both"


def _folder(name: str) -> str:
    """Returns the runner's directory for a package, or "" if there is none."""
    folder = _ROOT.joinpath(*name.split("."))
    return str(folder) if name.partition(".")[0] == _NAME and folder.is_dir() else ""


def _make_package_of(spec: machinery.ModuleSpec) -> None:
    """Makes the runner's modules importable below a plain module, unless that is compiled."""
    if spec.origin and type(spec.loader) is machinery.SourceFileLoader:
        spec.loader = _ModuleLoader(spec.name, spec.origin)
