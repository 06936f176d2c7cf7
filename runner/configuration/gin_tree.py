"""Predicts the tree of objects that gin will build from bindings."""

import dataclasses
import inspect
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import gin
from official.modeling.hyperparams import base_config

from runner.configuration import gin_bindings, gin_names, sections, typecheck


class Tree:
    """The objects that gin builds for a root, by gin's rules.

    The last binding wins, inner scopes override outer ones, and a reference with a scope leaves the
    scope of the object that contains it.

    Attributes:
        bindings: The effective bindings.
        built: The classes and functions that are called, by scope, with the location of a
            reference.
        origins: Where each value was set, by its path in the root (`trainer.train_steps`).
        functions: The bound parameters of functions, by the path of the config that names one.
        problems: The mistakes in the tree, one line each.
    """

    def __init__(self, bound: Sequence[gin_bindings.Bound]):
        self._bound = bound
        self._roots: list[type | base_config.Config] = []
        self.bindings = list({_key(b): b for b in bound}.values())
        self._order = {_key(b): number for number, b in enumerate(bound)}
        self._won: set[tuple[str, Any, str]] = set()  # keys of the bindings that set a value
        self.built: dict[tuple[str, Any], str] = {}
        self.origins: dict[str, str] = {}
        self.functions: dict[str, dict[str, Any]] = {}
        self.problems: list[str] = []

    def grow(self, root: type) -> None:
        """Follows what gin builds for a root."""
        self._roots.append(root)
        named = gin_names.Named(root, root.__module__, root.__name__)
        self._grow(gin_bindings.Link(produces=root, called=True, scope="", named=named))

    def adopt(self, root: base_config.Config) -> None:
        """Follows what gin builds for an existing object, and sets in it."""
        self._roots.append(root)
        for path, section in sections.walk(root):
            if any(f"{path}.".startswith(f"{above}.") for above in self.origins):
                continue  # A binding replaces it.
            self.built.setdefault(("", type(section)), path)
            for each in self.of("", type(section)):
                self._won.add(_key(each))
                self._follow(each, path, "", ())

    def of(self, scope: str, target: Any) -> list[gin_bindings.Bound]:
        """Returns the bindings of a class or function in a scope."""
        return [
            each for each in self.bindings if (each.scope, each.named.target) == (scope, target)
        ]

    def unused(self) -> Iterator[str]:
        """Yields a line for each binding without effect, and suggests what would give it one.

        It leaves out a binding of a file if a later binding replaced the reference to its target:
        `RunConfig.evaluation_sets = ()` leaves a file's sets without effect.
        """
        replaced = self._replaced()
        for each in self.bindings:
            target, name = each.named.target, each.named.name
            scopes = [scope for scope, built in self.built if built is target]
            if each.scope not in scopes:
                if each.is_in_file and (each.scope, target) in replaced:
                    continue
                inner = ", ".join(scope for scope in scopes if scope)
                only = f" in the scope {each.scope}{inner and f', only in {inner}'}"
                what = f"{name}{only if scopes else self._holder(each)}"
                yield f"{each.place}: {each.name} has no effect, since nothing builds {what}"
            elif before := self._shadowing(each):
                found = " and ".join(f"{other.name} ({other.place})" for other in before)
                yield f"{each.place}: {each.name} has no effect; inner scopes override it: {found}"

    def _replaced(self) -> set[tuple[str, Any]]:
        """Returns what the references that later bindings replaced would build, by scope."""
        last = {id(each) for each in self.bindings}
        keys = {_key(each) for each in self._bound if id(each) not in last}
        if not keys:
            return set()
        before = Tree(
            [each for each in self._bound if id(each) not in last or _key(each) not in keys]
        )
        for root in self._roots:
            if isinstance(root, type):
                before.grow(root)
            else:
                before.adopt(root)
        return before.built.keys() | before._replaced()

    def _shadowing(self, each: gin_bindings.Bound) -> list[gin_bindings.Bound]:
        """Returns the earlier bindings in inner scopes that leave `each` without effect.

        If `each` came before them, they override it on purpose.
        """
        if _key(each) in self._won:
            return []
        found = [
            other
            for other in self.bindings
            if _key(other)[1:] == _key(each)[1:]
            and each.scope in _around(other.scope)
            and _key(other) in self._won
        ]
        later = all(self._order[_key(other)] < self._order[_key(each)] for other in found)
        return found if later else []

    def owner(self, parameter: str) -> str:
        """Returns the name of a built class that takes the parameter as a value, or `Name`."""
        takes = (built for _, built in self.built if _takes(built, parameter))
        return next((each.__name__ for each in takes), "Name")

    def _grow(
        self, link: gin_bindings.Link, path: str = "", place: str = "", above: Sequence[Any] = ()
    ) -> None:
        """Follows an object that is built for the field at `path`, and all its parts."""
        target, name = link.named.target, link.named.name
        if (link.scope, target) in above:
            self.problems.append(f"{place}: {name} is built from itself")
            return
        given: dict[str, gin_bindings.Bound] = {}
        for scope in _around(link.scope):
            self.built.setdefault((scope, target), place)
            given |= {each.parameter: each for each in self.of(scope, target)}
        if link.by_name is not None:
            self._name(".".join([path, *link.by_name]), given.values(), place)
            return
        for parameter, known in typecheck.parameters(target).items():
            if known.required and parameter not in given:
                self.problems.append(f"{place}: {name}.{parameter} must be given")
        for each in given.values():
            self._won.add(_key(each))
            self._follow(each, path, link.scope, [*above, (link.scope, target)])

    def _name(self, path: str, given: Iterable[gin_bindings.Bound], place: str) -> None:
        """Records the bound parameters of a function that the config at `path` names."""
        self.origins[f"{path}.name"] = place
        arguments = self.functions.setdefault(path, {})
        for each in given:
            self._won.add(_key(each))
            self.origins[f"{path}.arguments.{each.parameter}"] = each.place
            arguments[each.parameter] = each.value
            if [*_links(each.value, "")]:
                needs = "expected numbers, strings, lists or dicts, since it is called later"
                self.problems.append(f"{each.place}: {each.name}: {needs}")

    def _follow(
        self, bound: gin_bindings.Bound, path: str, scope: str, above: Sequence[Any]
    ) -> None:
        """Records what a binding sets in the object at `path`, its location, and what it builds."""
        field = f"{path}.{bound.parameter}".removeprefix(".")
        self.origins[field] = bound.place
        if bound.value is gin.REQUIRED:
            self.problems.append(f"{bound.place}: {bound.name} must be given")
        for below, item in _links(bound.value, field):
            inherits = dataclasses.replace(below, scope=below.scope or scope)
            self._grow(inherits, item, bound.place, above)

    def _holder(self, bound: gin_bindings.Bound) -> str:
        """Suggests a binding that would build a target, for the field with the narrowest type."""
        target = bound.named.target
        fields = [
            (len(around.__mro__), f"{holder.__name__}.{field}", str(typing.get_origin(hint)))
            for _, holder in self.built
            for field, hint in typecheck.type_hints(holder).items()
            for around in typecheck.classes(hint)
            if inspect.isclass(target) and issubclass(target, around)
        ]
        if not fields:
            return ""
        _, field, kind = max(fields)
        reference = f"@{bound.scope}{'/' if bound.scope else ''}{bound.named.name}()"
        if kind in (str(tuple), str(list)):
            reference = f"({reference},)" if kind == str(tuple) else f"[{reference}]"
        return f"; this would: {field} = {reference}"


def _takes(target: Any, parameter: str) -> bool:
    """Returns whether a class or function has a parameter that is not a config."""
    known = typecheck.parameters(target).get(parameter)
    kinds = typecheck.classes(known.hint) if known else [base_config.Config]
    return not any(issubclass(kind, base_config.Config) for kind in kinds)


def _key(bound: gin_bindings.Bound) -> tuple[str, Any, str]:
    """Returns a key. If several bindings have the same key, the last wins."""
    return bound.scope, bound.named.target, bound.parameter


def _around(scope: str) -> list[str]:
    """Returns a scope and the enclosing ones, the outermost first: "", "a", "a/b"."""
    parts = scope.split("/") if scope else []
    return ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]


def _links(value: Any, path: str) -> Iterator[tuple[gin_bindings.Link, str]]:
    """Yields the references within a value, each with its own path."""
    if isinstance(value, gin_bindings.Link):
        yield value, path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _links(item, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _links(item, f"{path}[{index}]")
