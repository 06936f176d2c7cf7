"""What goes wrong in a way the user should read: one short message, and an exit code."""


class RunnerError(Exception):
    """The run cannot go on; the message says why. No traceback is shown for it."""

    exit_code = 1


class ConfigError(RunnerError):
    """A mistake in flags or configuration: what is wrong, where it was written, what was meant."""

    exit_code = 2


class DivergedError(RunnerError, RuntimeError):  # official raises a RuntimeError
    """The loss is no longer finite; the message names the last good checkpoint."""

    exit_code = 3
