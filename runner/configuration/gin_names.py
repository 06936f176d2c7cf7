"""Resolves the names in gin files to modules, and to the classes and functions in them."""

import contextlib
import dataclasses
import importlib
import inspect
import pkgutil
import sys
import types
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from official.modeling.hyperparams import base_config, oneof

from runner.configuration import gin_parser, optimizer_kinds, tasks_package, typecheck
from runner.core import spelling, text, user_code
from runner.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Named:
    """A class or function, and the module it is imported from."""

    target: Any
    module: str
    name: str

    @property
    def path(self) -> str:
        """The full name, valid in every file: `package.module.Class`."""
        return f"{self.module}.{self.name}"

    @classmethod
    def of(cls, target: Any, module: str, name: str) -> Self:
        """Returns a class or function that a file names, or the class that extends it."""
        if extended := optimizer_kinds.EXTENDED.get(target):
            return cls(extended, extended.__module__, extended.__name__)
        return cls(target, module, name)


class Names:
    """The names that a set of gin files may use.

    A name is looked up among its own file's imports, as gin does. Otherwise it may be the end of a
    path (`TrainerConfig`, `config.Experiment`) into any module that any of the files imports. A
    file or the command line therefore need not repeat another file's imports.

    Args:
        statements: The statements of all files.
        known: Classes whose modules are treated as imported. They win if a name is ambiguous.
    """

    def __init__(
        self, statements: Sequence[gin_parser.Statement], known: Iterable[type] = ()
    ) -> None:
        self._tables: dict[gin_parser.Source, dict[str, types.ModuleType]] = defaultdict(dict)
        self._known: dict[str, Named] = {}
        for statement in statements:
            if isinstance(statement, gin_parser.Import):
                self._import(statement)
        known = list(known)
        for module in {kind.__module__ for kind in known}:
            self._learn(sys.modules[module], {module})
        self._referenced = {*self._spelt_out(statements), *known}

    def find(self, name: str, source: gin_parser.Source) -> Named:
        """Returns the class or function called `name` in `source`.

        If several have this name, a target that a file references by its module is preferred.

        Raises:
            ConfigError: if the name is unknown or ambiguous.
        """
        head, _, rest = name.partition(".")
        if rest and head in self._tables[source]:
            return _attribute(self._tables[source][head], rest)
        ends = [each for path, each in self._known.items() if f".{path}".endswith(f".{name}")]
        found = {each.target: each for each in ends}
        if len(found) > 1:
            found = {key: found[key] for key in self._referenced & found.keys()} or found
        if len(found) == 1:
            return next(iter(found.values()))
        if found:
            paths = sorted(each.path for each in found.values())
            raise ConfigError(f"{name} may be {' or '.join(paths)}; write the module too")
        raise ConfigError(self._unknown(name))

    def _import(self, statement: gin_parser.Import) -> None:
        module = _imported(statement)
        _check_origin(statement)
        self._tables[statement.source][statement.name] = sys.modules[statement.stands_for]
        prefixes = {module.__name__}
        if statement.stands_for == statement.module:
            prefixes.add(statement.name)
        self._learn(module, prefixes)

    def _learn(self, module: types.ModuleType, prefixes: Iterable[str]) -> None:
        """Adds the public classes and functions of a module."""
        for name, target in vars(module).items():
            if not name.startswith("_") and (inspect.isclass(target) or inspect.isfunction(target)):
                for prefix in prefixes:
                    self._known[f"{prefix}.{name}"] = Named.of(target, module.__name__, name)

    def _spelt_out(self, statements: Sequence[gin_parser.Statement]) -> Iterator[Any]:
        """Yields the targets that the files reference by a module they import themselves."""
        for each in statements:
            for part in (
                gin_parser.parts(each.value) if isinstance(each, gin_parser.Binding) else ()
            ):
                if isinstance(part, gin_parser.Reference):
                    head, _, rest = part.name.partition(".")
                    if rest and head in self._tables[each.source]:
                        with contextlib.suppress(ConfigError):  # `find` reports it and its place.
                            yield self.find(part.name, each.source).target

    def holder(self, parameter: str) -> str:
        """Returns the only config class that has a parameter, or "" if none or several have it."""
        found = {
            each.name
            for each in self._known.values()
            if dataclasses.is_dataclass(each.target)
            and parameter in {field.name for field in dataclasses.fields(each.target)}
        }
        return found.pop() if len(found) == 1 else ""

    def _choices(self) -> Iterator[tuple[str, str]]:
        """Yields the class of each choice of a config, such as `AdamwConfig` for `'adamw'`."""
        for each in self._known.values():
            if inspect.isclass(each.target) and issubclass(each.target, oneof.OneOfConfig):
                for choice, hint in typecheck.type_hints(each.target).items():
                    for kind in typecheck.classes(hint):
                        if issubclass(kind, base_config.Config):
                            for ending in ("", "config"):
                                yield f"{choice.replace('_', '')}{ending}", kind.__name__

    def _unknown(self, name: str) -> str:
        head, _, rest = name.partition(".")
        shown = text.shortened(name)
        if not rest:
            known = {each.name for each in self._known.values()}
            meant = spelling.did_you_mean(name, known, dict(self._choices()))
            return f"unknown name {shown}{meant}"
        modules = {name for table in self._tables.values() for name in table}
        if head not in modules:
            missing = f"{text.shortened(head)}{spelling.did_you_mean(head, modules)}"
            return f"{shown}: no file imports {missing}"
        return f"unknown name {shown}{spelling.did_you_mean(name, self._known)}"


def _attribute(module: types.ModuleType, path: str) -> Named:
    """Returns the class or function at `path` within `module`, possibly in submodules."""
    target: Any = module
    parts = path.split(".")
    for index, part in enumerate(parts):
        if not hasattr(target, part):
            near = spelling.did_you_mean(
                part, [name for name in dir(target) if not name.startswith("_")]
            )
            hidden = tasks_package.hidden(target.__name__)
            raise ConfigError(f"{target.__name__} has no {text.shortened(part)}{near}{hidden}")
        target = getattr(target, part)
        if isinstance(target, types.ModuleType):
            module, path = target, ".".join(parts[index + 1 :])
    if not callable(target):
        raise ConfigError(f"{path or module.__name__} is not a class or function")
    return Named.of(target, module.__name__, path)


def _imported(statement: gin_parser.Import) -> types.ModuleType:
    """Imports a module, or raises a ConfigError that reports whether it is missing or broken."""
    name = statement.module
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except Exception as error:  # A user's module may raise any exception.
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{name}.".startswith(f"{missing}."):
            near = [Path.cwd(), statement.source.folder]
            raise ConfigError(f"{statement.place}: {_missing(missing, near)}") from None
        raise ConfigError(
            f"{statement.place}: {text.shortened(name)} cannot be imported: "
            f"{user_code.blame(error)}: {type(error).__name__}: "
            f"{getattr(error, 'msg', error)}{_hidden_task(error)}"
        ) from error


def _hidden_task(error: Exception) -> str:
    """Returns a hint if a user's module caused a failed import by hiding one of this runner's."""
    missed_in = getattr(error, "obj", None) if isinstance(error, AttributeError) else None
    name = getattr(missed_in, "__name__", getattr(error, "name", None))
    return tasks_package.hidden(str(name))


def _check_origin(statement: gin_parser.Import) -> None:
    """Checks that no other module with the same name hides a module next to the file.

    Raises:
        ConfigError: if one does.
    """
    name = statement.module.partition(".")[0]
    beside = statement.source.folder / name
    imported = Path(getattr(sys.modules[name], "__file__", None) or "")
    for file in (beside.with_suffix(".py"), beside / "__init__.py"):
        if file.is_file() and not (imported.is_file() and file.samefile(imported)):
            raise ConfigError(f"{statement.place}: {name} is {imported}, which hides {file}")


def _missing(name: str, near: Sequence[Path]) -> str:
    """Returns the message for a missing module, with a similar name in `near` if there is one."""
    parent, _, leaf = name.rpartition(".")
    around = sys.modules.get(parent)
    if around is not None and hasattr(around, leaf):
        return f"{name} is not a module; import {parent}, and write {parent.split('.')[-1]}.{leaf}"
    if hidden := _hidden(name, near):
        return hidden
    folders = getattr(around, "__path__", []) if parent else list(map(str, near))
    known = [module.name for module in pkgutil.iter_modules(folders)]
    known += [] if parent else ["official", "runner", "tasks"]
    where = f", neither installed nor in {' or '.join(map(str, dict.fromkeys(near)))}"
    meant = spelling.did_you_mean(leaf, known)
    return f"there is no module {text.shortened(name)}{meant or ('' if parent else where)}"


def _hidden(name: str, near: Sequence[Path]) -> str:
    """Returns the message if another package with the same name hides a module's package."""
    top, *below = name.split(".")
    package = sys.modules.get(top)
    for folder in dict.fromkeys([*near, *map(Path, sys.path)]) if below else ():
        path = folder.joinpath(top, *below)
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                first = getattr(package, "__file__", None) or top
                return (
                    f"there is no module {name}: {top} is {first}, which hides {file}; rename one"
                )
    return ""
