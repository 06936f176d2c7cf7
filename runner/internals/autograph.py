"""Controls how AutoGraph reads and converts functions of users and Model Garden for graphs."""

import contextlib
import inspect
import linecache
import types
from collections.abc import Iterable, Iterator, Sequence

from tensorflow.python.autograph.core import converter
from tensorflow.python.autograph.impl import api, conversion
from tensorflow.python.autograph.pyct import inspect_utils

_kept: set[str] = set()
_CALLED = ("call", "__call__", "update_state", "result")  # in layers, schedules and metrics


def keep_sources(files: Iterable[str]) -> None:
    """Keeps the lines of imported files as they are now, for a process that never reloads one.

    AutoGraph looks up a function's lines by number when a graph first calls it, possibly hours
    later. If the file was edited in the meantime, AutoGraph generates code that differs from the
    imported code. It also does not trust Python's `linecache`. It means to read a file again only
    if a module has another name, but it compares a name with a module.
    """
    inspect_utils._fix_linecache_record  # noqa: B018, fails if it is gone
    inspect_utils._fix_linecache_record = lambda _: None
    for file in files:
        if file.endswith(".py") and file not in _kept and (lines := linecache.getlines(file)):
            _kept.add(file)
            linecache.cache[file] = (len(lines), None, lines, file)  # None: never checked again


def convert(owner: type, in_graph: Sequence[str], before: Sequence[str]) -> list[str]:
    """Converts methods of a class, and the functions that their code names, without running them.

    A conversion takes some twenty milliseconds. Processes that are forked later reuse it.

    Args:
        owner: The class.
        in_graph: The methods that graphs call.
        before: Methods that create objects that graphs call, such as metrics.

    Returns:
        The names of the converted functions.
    """
    ahead = _Ahead(owner)
    for name in in_graph:
        for method in _methods(owner, name):
            ahead.convert(method)
    for name in before:
        for method in _methods(owner, name):
            ahead.look_through(method)
    return [function.__qualname__ for function in ahead.converted]


class _Ahead:
    """The converted functions of a class.

    Attributes:
        converted: The functions.
    """

    def __init__(self, owner: type) -> None:
        self._owner = owner
        self._transform = api._TRANSPILER.transform
        self._context = converter.ProgramContext(
            converter.ConversionOptions(recursive=True, optional_features=None)
        )
        self._seen: set[types.CodeType] = set()
        self.converted: list[types.FunctionType] = []

    def convert(self, function: types.FunctionType, *, follow: bool = True) -> None:
        """Converts a function and, with `follow`, the functions that it calls."""
        if api.is_autograph_artifact(function):  # decorated as not to be converted
            return
        if function.__code__ in self._seen or conversion.is_allowlisted(function):
            return
        self._seen.add(function.__code__)
        with contextlib.suppress(Exception):  # fails again when it is used
            self._transform(function, self._context)
            self.converted.append(function)
        if follow:
            for each in (*self._own(function), *_functions(function), *_of_classes(function)):
                self.convert(each)

    def look_through(self, function: types.FunctionType) -> None:
        """Converts what a function passes to graphs, which do not call the function itself."""
        if function.__code__ in self._seen or conversion.is_allowlisted(function):
            return
        self._seen.add(function.__code__)
        for each in _of_classes(function):
            self.convert(each)
        for each in _functions(function):
            self.convert(each, follow=False)  # most of them are not called in a graph
        for each in self._own(function):
            self.look_through(each)

    def _own(self, function: types.FunctionType) -> Iterator[types.FunctionType]:
        for name in function.__code__.co_names:
            yield from _methods(self._owner, name)


def _methods(owner: type, name: str) -> list[types.FunctionType]:
    """Returns the methods of that name in a class and its base classes."""
    found = [vars(each).get(name) for each in owner.__mro__]
    return [each for each in found if isinstance(each, types.FunctionType)]


def _named(function: types.FunctionType) -> Iterator[object]:
    """Yields the objects that its code names, also as members of a module."""
    names = function.__code__.co_names
    for name in names:
        found = function.__globals__.get(name)
        yield found
        if inspect.ismodule(found):
            yield from (vars(found).get(each) for each in names)


def _functions(function: types.FunctionType) -> Iterator[types.FunctionType]:
    yield from (each for each in _named(function) if isinstance(each, types.FunctionType))


def _of_classes(function: types.FunctionType) -> Iterator[types.FunctionType]:
    for each in _named(function):
        if isinstance(each, type):
            for name in _CALLED:
                yield from _methods(each, name)
