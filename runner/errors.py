"""What goes wrong in a way the user should read: one short message, and an exit code."""

import re


class RunnerError(Exception):
    """The run cannot go on; the message says why. No traceback is shown for it."""

    exit_code = 1


class ConfigError(RunnerError):
    """A mistake in flags or configuration: what is wrong, where it was written, what was meant."""

    exit_code = 2


class DivergedError(RunnerError, RuntimeError):  # official raises a RuntimeError
    """The loss is no longer finite; the message names the last good checkpoint."""

    exit_code = 3


def from_graph(error: Exception) -> ConfigError | None:
    """The ConfigError that Python inside a TensorFlow graph raised, None for any other error.

    TensorFlow tells the error's class, its message and a traceback, all as the text of its own.
    """
    found = re.search(r"\bConfigError: (.+)", str(error))
    return ConfigError(found[1]) if found else None
