"""The nested configs of a configuration, at any depth."""

import copy
from collections.abc import Iterator
from typing import TypeVar

from official.modeling.hyperparams import base_config

from runner.internals import official as official_internals

C = TypeVar("C", bound=base_config.Config)


def walk(config: base_config.Config, path: str = "") -> Iterator[tuple[str, base_config.Config]]:
    """Yields a config and all nested ones, with their paths (`trainer.optimizer_config`)."""
    yield path, config
    for name, value in vars(config).items():
        below = f"{path}.{name}".removeprefix(".")
        many = isinstance(value, (list, tuple))
        for index, item in enumerate(value if many else [value]):
            if isinstance(item, base_config.Config):
                yield from walk(item, f"{below}[{index}]" if many else below)


def unlocked(config: C) -> C:
    """Returns a copy that can be changed at any depth."""
    made = copy.deepcopy(config)
    for _, section in walk(made):
        official_internals.unlock(section)
    return made
