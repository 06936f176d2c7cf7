"""Private names of the standard library. tests/internals reports those that a new one lacks."""

import argparse
import atexit


def options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """What every flag that a parser knows, such as `--mode`, does."""
    return {name: each for each in parser._actions for name in each.option_strings}


def run_exit_functions() -> None:
    """Runs what `atexit` has registered, now."""
    atexit._run_exitfuncs()
