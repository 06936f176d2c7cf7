"""Builds an object from gin files, after checking their whole content.

gin itself stops at the first mistake, accepts any type, suggests no similar names and ignores a
binding of a class that is never instantiated. The statements of all files are therefore first
converted to bindings with classes, checked values and locations. The effective bindings are then
passed to gin as one text, in which every name is a full path and every macro is replaced by its
value.
"""

import contextlib
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import gin
from official.modeling.hyperparams import base_config

from runner.configuration import gin_bindings, gin_names, gin_parser, gin_tree, sections
from runner.core import spelling, user_code
from runner.errors import ConfigError
from runner.internals import gin as gin_internals

T = TypeVar("T")

_GIN = threading.RLock()  # gin keeps all its state in module globals.


class Made(NamedTuple):
    """The result of a build.

    Attributes:
        origins: Where each value was set, by path (`trainer.train_steps`).
        problems: Why bindings were left out, one line each.
    """

    origins: dict[str, str]
    problems: list[str]


def build(root: type[T], files: Iterable[str], params: Iterable[str]) -> tuple[T, Made]:
    """Builds a `root` with gin from files and `Name.param=value` strings, applied in that order.

    The working directory and the directories of the files become importable and stay so. Any
    previous gin configuration, from an earlier call or other code, is cleared.

    Raises:
        ConfigError: if it cannot be built. The message has one line for each mistake.
    """
    with _cleared():
        statements = list(gin_parser.read(files, params))
        unset = f"nothing sets {root.__name__}; a file needs: include 'base.gin'"
        if not any(_sets(each, root) for each in statements):
            raise ConfigError(unset)
        make_importable(statements)
        bound, problems = gin_bindings.resolve(statements)
        if not any(each.named.target is root for each in bound):
            raise ConfigError("\n".join([*problems, unset]))
        tree = gin_tree.Tree(bound)
        tree.grow(root)
        _hand_over(tree, statements, problems)
        try:
            made = gin.get_configurable(root)()
            _give_arguments(made, tree)
            return made, Made(tree.origins, problems)
        except Exception as error:  # A user's constructor may raise any exception.
            raise ConfigError("\n".join([*problems, _refusal(error, tree)])) from error


def override(base: base_config.Config, files: Iterable[str], params: Iterable[str]) -> Made:
    """Applies the bindings of files and parameters to an existing object, config by config.

    A binding applies to every config of its class. gin builds the configs that bindings reference
    (`@...()`), and they replace the existing ones. Their classes need no import in the files.

    Args:
        base: Not locked.
        files: As for `build`.
        params: As for `build`.

    Raises:
        ConfigError: as `build` does.
    """
    with _cleared():
        statements = list(gin_parser.read(files, params))
        make_importable(statements)
        kinds = list(dict.fromkeys(type(each) for _, each in sections.walk(base)))
        bound, problems = gin_bindings.resolve(statements, known=kinds)
        tree = gin_tree.Tree(bound)
        tree.adopt(base)
        _hand_over(tree, statements, problems)
        try:
            _set(base, tree)
            _give_arguments(base, tree)
        except Exception as error:  # A user's constructor may raise any exception.
            raise ConfigError("\n".join([*problems, _refusal(error, tree)])) from error
        return Made(tree.origins, problems)


def import_modules(files: Iterable[str], params: Iterable[str]) -> None:
    """Imports the files' modules, because one may register an experiment.

    Raises:
        ConfigError: if a file or a module is missing or broken.
    """
    statements = list(gin_parser.read(files, params))
    make_importable(statements)
    gin_names.Names(statements)


def make_importable(statements: Iterable[gin_parser.Statement]) -> None:
    """Puts the working directory and the directories of the files on Python's path."""
    ours = (gin_parser.PACKAGE, gin_parser.EXPERIMENTS)
    folders = [each.source.folder for each in statements if each.source.folder not in ours]
    for folder in reversed(dict.fromkeys([Path.cwd(), *folders])):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


@contextlib.contextmanager
def _cleared() -> Iterator[None]:
    unlocked, changing = gin.unlock_config(), gin.config.interactive_mode()
    with _GIN, gin_internals.use_unrecorded(), unlocked, changing:
        gin.clear_config()
        yield


def _hand_over(
    tree: gin_tree.Tree, statements: Sequence[gin_parser.Statement], known: Sequence[str]
) -> None:
    """Passes the effective bindings to gin, unless the tree has problems.

    If some bindings are invalid (`known`), others may have no effect only for that reason.
    """
    problems = list(tree.problems)
    if not known:
        problems += tree.unused()
        for place, macro, meant in gin_bindings.unused_macros(statements):
            use = f"; to set a parameter: {tree.owner(macro)}.{macro} = ..."
            hint = meant or spelling.elsewhere(macro) or use
            problems.append(f"{place}: nothing uses {macro}{hint}")
    if problems:
        raise ConfigError("\n".join([*known, *problems]))
    _parse(tree.bindings)


def _set(section: base_config.Config, tree: gin_tree.Tree) -> None:
    """Sets the bound values in a config and in its existing nested configs."""
    bound = {each.parameter: each.value for each in tree.of("", type(section))}
    for name, value in vars(section).items():
        below = value if isinstance(value, (list, tuple)) else [value]
        for each in below if name not in bound else ():
            if isinstance(each, base_config.Config):
                _set(each, tree)
    for name, value in bound.items():
        vars(section)[name] = None  # otherwise Model Garden inserts a list into the existing one
        setattr(section, name, _built(value))


def _give_arguments(root: Any, tree: gin_tree.Tree) -> None:
    """Stores the bound parameters of functions in the configs that name them."""
    there = dict(sections.walk(root)) if tree.functions else {}
    for path, arguments in tree.functions.items():
        there[path].arguments = base_config.Config(arguments)


def _built(value: Any) -> Any:
    """Returns a value with its references built by gin."""
    if isinstance(value, gin_bindings.Link) and value.by_name is not None:
        return value.section()
    if isinstance(value, gin_bindings.Link):
        with gin.config_scope(value.scope or None):
            made = gin.get_configurable(value.named.target)
            return made() if value.called else made
    if isinstance(value, dict):
        return {key: _built(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_built(item) for item in value)
    return value


def _sets(statement: gin_parser.Statement, root: type) -> bool:
    """Returns whether a statement binds a parameter of `root`, judging by its name only."""
    return (
        isinstance(statement, gin_parser.Binding)
        and statement.target.rpartition(".")[2] == root.__name__
    )


def _parse(bindings: Sequence[gin_bindings.Bound]) -> None:
    """Passes bindings to gin."""
    values = [part for each in bindings for part in gin_parser.parts(each.value)]
    links = [part for part in values if isinstance(part, gin_bindings.Link)]
    named = [each.named for each in bindings] + [link.named for link in links]
    modules = {each.module for each in named}
    header = ["from __gin__ import dynamic_registration"]
    header += [f"import {module}" for module in sorted(modules)]
    try:
        gin.parse_config([*header, *map(str, bindings)])
    except Exception as error:  # gin rejects a binding that the signature allows
        what, line = gin_internals.split_line(error)
        raise ConfigError(f"{bindings[line - len(header) - 1].place}: {what}") from error


def _refusal(error: Exception, tree: gin_tree.Tree) -> str:
    """Describes why a constructor rejects its values, without gin's call trace."""
    what, name = gin_internals.split_call(error)
    if isinstance(error, ValueError):
        what = f"{name}: {what}"
    elif what.startswith("Unknown type"):
        what = f"{name} has values other than numbers, strings, lists and configs: {what}"
    else:
        what = f"{name} cannot be built: {type(error).__name__}: {what} ({user_code.blame(error)})"
    references = [place for (_, each), place in tree.built.items() if each.__name__ == name]
    values = [
        each.place
        for each in tree.bindings
        if each.named.name == name and re.search(rf"\b{each.parameter}\b", what)
    ]
    return ": ".join([*[*values, *references][:1], what])
