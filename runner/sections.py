"""The sections of a configuration, at any depth."""

from collections.abc import Iterator

from official.modeling.hyperparams import base_config


def walk(config: base_config.Config, path: str = "") -> Iterator[tuple[str, base_config.Config]]:
    """A config and all configs within it, each with its path (`trainer.optimizer_config`)."""
    yield path, config
    for name, value in vars(config).items():
        below = f"{path}.{name}".removeprefix(".")
        many = isinstance(value, (list, tuple))
        for index, item in enumerate(value if many else [value]):
            if isinstance(item, base_config.Config):
                yield from walk(item, f"{below}[{index}]" if many else below)
