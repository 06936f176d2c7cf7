"""Private names of the standard library. tests/internals reports names that a new version lacks."""

import argparse
import atexit


def options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Returns the action of every flag of a parser, such as `--mode`."""
    return {name: each for each in parser._actions for name in each.option_strings}


def run_exit_functions() -> None:
    """Runs the functions registered with `atexit` immediately."""
    atexit._run_exitfuncs()
