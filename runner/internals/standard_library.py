"""Private names of the standard library. tests/internals reports those that a new one lacks."""

import argparse
import atexit


def option_strings(parser: argparse.ArgumentParser) -> list[str]:
    """Every flag that a parser knows, such as `--mode`."""
    return [option for action in parser._actions for option in action.option_strings]


def run_exit_functions() -> None:
    """Runs what `atexit` has registered, now."""
    atexit._run_exitfuncs()
