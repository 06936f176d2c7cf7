"""Resolves the bindings of gin files to known parameters with values of the right types."""

import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import gin

from runner.configuration import gin_names, gin_parser, typecheck
from runner.core import sizes, spelling, text
from runner.errors import ConfigError

_MOST_PROBLEMS = 100  # a file with more is not a configuration


@dataclasses.dataclass(frozen=True)
class Link(typecheck.Pending):
    """A resolved reference to a class or function."""

    scope: str = dataclasses.field(kw_only=True)
    named: gin_names.Named = dataclasses.field(kw_only=True)

    def __str__(self) -> str:
        return f"@{self.named.name}{'()' if self.called else ''}"

    def __repr__(self) -> str:
        """Returns the reference in gin's syntax, or a dict if a config names the function.

        Model Garden takes a dict for that config.
        """
        if self.by_name is not None:
            return repr(self.section())
        return f"@{_scoped(self.scope, self.named.path)}{'()' if self.called else ''}"

    def section(self) -> dict[str, Any]:
        """Returns the config that names the class or function, as a dict for Model Garden."""
        section: dict[str, Any] = {"name": self.named.path}
        for field in reversed(self.by_name or ()):
            section = {field: section}
        return section


@dataclasses.dataclass(frozen=True)
class Bound:
    """A binding of an existing parameter to a value of the right type."""

    scope: str
    named: gin_names.Named
    parameter: str
    value: Any
    place: str
    is_in_file: bool

    @property
    def name(self) -> str:
        """The name in messages: `TrainerConfig.train_steps`."""
        return f"{_scoped(self.scope, self.named.name)}.{self.parameter}"

    def __str__(self) -> str:
        """Returns the binding in gin's syntax."""
        name = f"{_scoped(self.scope, self.named.path)}.{self.parameter}"
        return f"{name} = {gin_parser.literal(self.value)}"


def resolve(
    statements: Sequence[gin_parser.Statement], *, known: Iterable[type] = ()
) -> tuple[list[Bound], list[str]]:
    """Returns all bindings in order, with macros replaced by their values.

    Args:
        statements: The statements of all files.
        known: Classes that need no import.

    Returns:
        The valid bindings, and a line for each invalid one: an unknown class, parameter or macro,
        or a value of the wrong type.

    Raises:
        ConfigError: if a module cannot be imported.
    """
    resolver = _Resolver(statements, known)
    bound = []
    problems: dict[str, str] = {}
    for each in statements:
        if len(problems) > _MOST_PROBLEMS:
            break
        if isinstance(each, gin_parser.Binding) and each.parameter:
            try:
                bound.append(resolver.bound(each))
            except ConfigError as error:
                problems.setdefault(str(error), each.place)  # A block repeats its unknown class.
    return bound, [f"{place}: {what}" for what, place in problems.items()]


def unused_macros(statements: Sequence[gin_parser.Statement]) -> Iterator[tuple[str, str, str]]:
    """Yields location and name of each unused macro, and the used one that was probably meant."""
    bindings = [each for each in statements if isinstance(each, gin_parser.Binding)]
    parts = [part for each in bindings for part in gin_parser.parts(each.value)]
    used = {part.name for part in parts if isinstance(part, gin_parser.Macro)}
    for each in bindings:
        if not each.parameter and _macro(each) not in used:
            yield each.place, _macro(each), spelling.did_you_mean(_macro(each), used)


class _Resolver:
    def __init__(self, statements: Sequence[gin_parser.Statement], known: Iterable[type]):
        self._names = gin_names.Names(statements, known)
        self._macros = {
            _macro(each): each
            for each in statements
            if isinstance(each, gin_parser.Binding) and not each.parameter
        }

    def bound(self, binding: gin_parser.Binding) -> Bound:
        """Resolves a binding. A ConfigError describes the mistake but not its location."""
        named = self._names.find(binding.target, binding.source)
        known = typecheck.parameters(named.target)
        parameter = known.get(binding.parameter) or known.get("**")
        if parameter is None:
            meant = spelling.did_you_mean(binding.parameter, known)
            meant = meant or self._elsewhere(binding.parameter)
            unknown = text.quoted(binding.parameter)
            raise ConfigError(f"{named.name} has no parameter {unknown}{meant}")
        self._expanded = 0
        try:
            value = self._value(binding.value, binding.source)
            sizes.check(value)
        except (sizes.TooLargeError, RecursionError) as error:
            why = (
                "macros refer to each other too deeply"
                if isinstance(error, RecursionError)
                else error
            )
            raise ConfigError(f"{named.name}.{binding.parameter}: {why}") from None
        if isinstance(value, gin_parser.Bare):
            if typecheck.is_text(parameter.hint) or not typecheck.may_be_text(parameter.hint):
                value = str(value)
            else:
                raise ConfigError(value.refusal)
        if value is not gin.REQUIRED:
            try:
                value = typecheck.convert(value, parameter.hint)
            except typecheck.MismatchError as error:
                raise ConfigError(f"{named.name}.{binding.parameter}: {error}") from None
        is_in_file = binding.source.is_file
        return Bound(binding.scope, named, binding.parameter, value, binding.place, is_in_file)

    def _elsewhere(self, parameter: str) -> str:
        """Suggests the other config class that has a parameter, if there is only one."""
        holder = self._names.holder(parameter)
        found = f"; did you mean {holder}.{parameter}?" if holder else ""
        return spelling.elsewhere(parameter) or found

    def _value(self, value: Any, source: gin_parser.Source, within: tuple[str, ...] = ()) -> Any:
        """Returns a value with its references resolved. `within` are the enclosing macros."""
        self._expanded += 1
        sizes.check_count(self._expanded, 2 * sizes.MOST)
        match value:
            case gin_parser.Reference():
                # As in gin, a macro's value is built in a scope with the macro's name.
                scope = value.scope or "".join(within[-1:])
                return self._link(dataclasses.replace(value, scope=scope), source)
            case gin_parser.Macro(name) if name in within:
                raise ConfigError(f"%{name} refers to itself")
            case gin_parser.Macro(name) if name in self._macros:
                macro = self._macros[name]
                return self._value(macro.value, macro.source, (*within, name))
            case gin_parser.Macro(name):
                return self._constant(name)
            case dict():
                parts = self._value([*value.items()], source, within)
                return dict(parts)
            case list() | tuple():
                return type(value)(self._value(each, source, within) for each in value)
        return value

    def _link(self, reference: gin_parser.Reference, source: gin_parser.Source) -> Link:
        named = self._names.find(reference.name, source)
        produces = named.target
        if not inspect.isclass(produces):
            produces = typecheck.type_hints(produces).get("return")
        known = produces if inspect.isclass(produces) else None
        is_class = inspect.isclass(named.target)
        return Link(known, reference.called, is_class, scope=reference.scope, named=named)

    def _constant(self, name: str) -> Any:
        try:
            return gin.query_parameter(name)
        except (KeyError, ValueError):
            meant = spelling.did_you_mean(name, self._macros)
            raise ConfigError(f"nothing defines %{text.shortened(name)}{meant}") from None


def _macro(definition: gin_parser.Binding) -> str:
    return _scoped(definition.scope, definition.target)


def _scoped(scope: str, name: str) -> str:
    return f"{scope}/{name}" if scope else name
