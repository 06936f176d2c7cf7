"""Functions and classes that a configuration names: `RunConfig.writers = (@my_writers.Csv(),)`.

Model Garden's configurations hold only numbers, strings and nested configs. A function is therefore
also a config: its name, and the parameters that gin binds (`my_writers.Csv.path = 'rows.csv'`).
Like any other config, it is written to params.yaml and config.gin, read back, and compared on
resume. For a class, an instance is called instead: `@my.Class` and `@my.Class()` mean the same.
"""

import dataclasses
import functools
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

from official.modeling.hyperparams import base_config

from runner.configuration.settings import setting
from runner.core import user_code
from runner.errors import ConfigError


@dataclasses.dataclass
class FunctionConfig(base_config.Config):
    """A function, or a class of objects that can be called, with some of its arguments."""

    name: str = setting("", "`module.function`. The module is imported when the function is used.")
    arguments: base_config.Config = setting(
        base_config.Config, "Arguments by the names of parameters."
    )


def named_in(kind: type) -> tuple[str, ...] | None:
    """Returns the path of the function in a config of this class: () for itself, None if absent."""
    if kind is FunctionConfig:
        return ()
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return next(((field.name,) for field in fields if field.type is FunctionConfig), None)


def build(config: FunctionConfig) -> Callable[..., Any]:
    """Returns the function that a configuration names, or an object of the class.

    Raises:
        ConfigError: as `load` does.
    """
    named = load(config)
    return named() if inspect.isclass(named.func) else named


def load(config: FunctionConfig) -> functools.partial[Any]:
    """Returns the function with the arguments from the configuration.

    Raises:
        ConfigError: if there is no such function, or it takes other arguments. The message
            describes the mistake but not its location.
    """
    try:
        found = pkgutil.resolve_name(config.name)
    except Exception as error:  # a user's module may raise any exception
        raise ConfigError(f"must name 'module.function': {user_code.summary(error)}") from error
    if not callable(found):
        raise ConfigError("must name a function, or a class")
    arguments = config.arguments.as_dict()
    try:
        inspect.signature(found).bind_partial(**arguments)
    except TypeError as error:
        raise ConfigError(f"does not take these arguments: {error}") from error
    except ValueError:  # a built-in function has no signature
        pass
    return functools.partial(found, **arguments)


def mistake(config: FunctionConfig, *given: Any) -> str:
    """Describes why a function cannot be called with `given`, or returns "" if it can."""
    try:
        named = load(config)
        if not inspect.isclass(named.func):
            inspect.signature(named).bind(*given)
        elif not any("__call__" in vars(kind) for kind in named.func.__mro__):
            return "makes objects that cannot be called"
        else:
            inspect.signature(named).bind()
            inspect.signature(named.func.__call__).bind(None, *given)
    except ConfigError as error:
        return str(error)
    except TypeError as error:
        return f"cannot be called as it will be: {error}"
    except ValueError:  # a built-in function has no signature
        pass
    return ""
