"""Loads YAML that a run has stored, as data: executes no code and limits the size."""

from typing import Any, ClassVar

import yaml

from runner.core import sizes

_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):
    """A safe loader that also reads the tuples that Model Garden writes, as lists."""

    yaml_constructors: ClassVar = {
        **_SafeLoader.yaml_constructors,
        "tag:yaml.org,2002:python/tuple": _SafeLoader.construct_yaml_seq,
    }


def load(words: str) -> Any:
    """Returns the plain values of a text.

    Raises:
        yaml.YAMLError: it is not YAML, has an invalid value, or is too large.
    """
    try:
        sizes.check_length(words, sizes.LONGEST_STORED)
        sizes.check_brackets(words)
        value = yaml.load(words, _Loader)
        sizes.check(value, sizes.MOST_STORED)
    except yaml.YAMLError:
        raise
    # The constructors raise these for values such as `!!int x`, and Python for its limits.
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise yaml.YAMLError(str(error)) from error
    return value
