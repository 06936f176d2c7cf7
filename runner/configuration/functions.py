"""Functions that a configuration names: in gin `EvaluatorConfig.give_up = @my_rules.give_up`.

Official's configurations hold numbers, strings and sections only. So a function is a section, too:
its name, and what gin binds of its parameters (`my_rules.give_up.patience = 3`). That is written to
params.yaml and config.gin, read back, and compared in a resume as any other.
"""

import dataclasses
import functools
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

from official.modeling.hyperparams import base_config

from runner.core import user_code
from runner.errors import ConfigError


@dataclasses.dataclass
class FunctionConfig(base_config.Config):
    """A function, or anything else that can be called, with some of its arguments.

    Attributes:
        name: `module.function`; the module is imported where the function is used.
        arguments: Values by the names of parameters.
    """

    name: str = ""
    arguments: base_config.Config = dataclasses.field(default_factory=base_config.Config)


def load(config: FunctionConfig) -> Callable[..., Any]:
    """The function, with the arguments that the configuration gives.

    Raises:
        ConfigError: there is none of this name, or it takes no such arguments; the message says
            what is wrong, and not where.
    """
    try:
        found = pkgutil.resolve_name(config.name)
    except Exception as error:  # whatever a user's module may raise
        raise ConfigError(f"must name 'module.function': {user_code.summary(error)}") from error
    if not callable(found):
        raise ConfigError("must name a function, or a class")
    arguments = config.arguments.as_dict()
    try:
        inspect.signature(found).bind_partial(**arguments)
    except TypeError as error:
        raise ConfigError(f"takes other arguments: {error}") from error
    except ValueError:  # a built-in one has no signature
        pass
    return functools.partial(found, **arguments)


def mistake(config: FunctionConfig, *given: Any) -> str:
    """What is wrong with a function that will be called with `given`; empty where nothing is."""
    try:
        inspect.signature(load(config)).bind(*given)
    except ConfigError as error:
        return str(error)
    except TypeError as error:
        return f"cannot be called as it will be: {error}"
    except ValueError:  # a built-in one has no signature
        pass
    return ""
