"""Retries bucket operations at the start of a command."""

import time
from collections.abc import Callable
from typing import TypeVar

from runner.core import console
from runner.errors import ConfigError, RunnerError
from runner.storage.bucket import BucketError

_PAUSES = (1.0, 2.0, 4.0)

T = TypeVar("T")


def several(do: Callable[[], T], where: str, note: console.Note = console.say) -> T:
    """Returns the result of `do`, after up to four attempts.

    Args:
        do: Uses a bucket.
        where: The flag or field that gave its URL.
        note: Called with a line about each attempt that failed.

    Raises:
        ConfigError: no attempt can succeed.
        RunnerError: no attempt succeeded.
    """
    for pause in (*_PAUSES, None):
        try:
            return do()
        except BucketError as error:
            if error.is_final:
                raise ConfigError(f"{where}: {error}") from error
            if pause is None:
                raise RunnerError(f"{where}: {error}") from error
            note(f"{error}; retrying in {pause:.0f} s")
            time.sleep(pause)
    raise AssertionError
