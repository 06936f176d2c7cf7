"""Translates the argument `vary` of `runner.study` to the text that `--vary` takes, and back.

A name with a dot is a setting. Any other name is an argument of the function that builds the model,
and gets the function's name as a prefix: `build_model.width`. No TensorFlow.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from runner.core import spelling
from runner.errors import ConfigError
from runner.studies import space

_EXAMPLE = "vary={'width': [32, 64], 'rate': 'log(1e-4, 0.1)'}"
_CONDITION = re.compile(r"( if )(\w+)(\s*=)")


class Names:
    """The names of what varies.

    Args:
        build: The function that builds the model.
        vary: The values by name, as given by the user.

    Attributes:
        prefix: The function's name, or `model` if it has none.
        arguments: Those names in `vary` that are arguments of the function.

    Raises:
        ConfigError: the function does not take such an argument.
    """

    def __init__(self, build: Callable[..., Any], vary: Mapping[str, Any]) -> None:
        if not isinstance(vary, Mapping):
            raise ConfigError(f"runner.study: vary is a dict, such as {_EXAMPLE}; got {vary!r}")
        name = getattr(build, "__name__", "")
        self.prefix = name if name.isidentifier() else "model"
        self.arguments = [each for each in vary if "." not in each]
        _check_arguments(build, self.prefix, self.arguments)

    def texts(self, vary: Mapping[str, Any]) -> list[str]:
        """Returns the text for `--vary` of each name.

        Raises:
            ConfigError: values are not text, a list or a tuple of plain values.
        """
        return [f"{self._full(name)}={self._values(name, each)}" for name, each in vary.items()]

    def split(self, gin_params: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
        """Splits a trial's bindings into arguments of the function and gin's bindings."""
        arguments, others = {}, []
        for binding in gin_params:
            name, _, value = binding.partition(" = ")
            if (short := self.short(name)) != name:
                arguments[short] = ast.literal_eval(value)
            else:
                others.append(binding)
        return arguments, others

    def short(self, name: str) -> str:
        """Returns a name as the user wrote it."""
        end = name.removeprefix(f"{self.prefix}.")
        return end if end in self.arguments else name

    def shortened(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a configuration's values by the names that the user wrote."""
        return {self.short(name): value for name, value in parameters.items()}

    def _full(self, name: str) -> str:
        return f"{self.prefix}.{name}" if name in self.arguments else name

    def _values(self, name: str, values: Any) -> str:
        if isinstance(values, str):
            return _CONDITION.sub(lambda found: self._condition(*found.groups()), values)
        if not isinstance(values, Iterable) or isinstance(values, Mapping):
            raise ConfigError(
                f"runner.study: vary[{name!r}] = {values!r}: expected a list of values, or text "
                f"such as 'log(1e-4, 0.1)'"
            )
        return ",".join(_text(name, each) for each in values)

    def _condition(self, word: str, name: str, equals: str) -> str:
        return f"{word}{self._full(name)}{equals}"


def _check_arguments(build: Callable[..., Any], name: str, arguments: Sequence[str]) -> None:
    """Raises ConfigError if the function cannot be called with these arguments."""
    try:
        signature = inspect.signature(build)
    except ValueError:  # a built-in function has none
        return
    kinds = inspect.Parameter
    takes_any = any(each.kind is kinds.VAR_KEYWORD for each in signature.parameters.values())
    known = [each.name for each in signature.parameters.values() if each.kind in (1, 3)]
    for each in arguments:
        if each not in known and not takes_any:
            meant = spelling.did_you_mean(each, known)
            raise ConfigError(
                f"runner.study: vary[{each!r}]: {name} has no such argument{meant}. It takes "
                f"{', '.join(known) or 'none'}; a setting has a dot, as AdamConfig.beta_1"
            )
    missing = [
        each.name
        for each in signature.parameters.values()
        if each.default is kinds.empty
        and each.kind not in (kinds.VAR_KEYWORD, kinds.VAR_POSITIONAL)
        and each.name not in arguments
    ]
    if missing:
        raise ConfigError(
            f"runner.study: {name} needs a value for {missing[0]}: add it to vary, or give it a "
            "default"
        )


def _text(name: str, value: Any) -> str:
    """Returns a value as a Python literal."""
    value = value.item() if hasattr(value, "item") else value  # NumPy's numbers
    text = value if space.is_reference(value) else repr(value)
    try:
        if text is value or ast.literal_eval(text) == value:
            return str(text)
    except (SyntaxError, ValueError):
        pass
    raise ConfigError(
        f"runner.study: vary[{name!r}]: {value!r} is not a number, text, True, False, None, or a "
        "list of them. Vary a name instead, and make the object in the function that builds the "
        "model"
    )
