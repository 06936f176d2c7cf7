"""Shows how often a run has read each value of its configuration. No TensorFlow."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from runner.core import layout
from runner.errors import ConfigError
from runner.run_directory.run import Run

_COLUMN = 60  # where the counts start, unless a value is longer


def render(folder: Path) -> str:
    """Returns a run's configuration as YAML, with the number of reads in a comment on each line.

    Args:
        folder: The run's directory.

    Raises:
        ConfigError: it is not the directory of a run that counted its reads.
        RunnerError: its configuration is damaged.
    """
    run = Run(folder)
    counts = run.attempts[-1].get("reads") if run.attempts else None
    if counts is None:
        raise ConfigError(
            f"--print_config=reads: {folder / layout.RUN} has no counts; training writes them from "
            "its first loop on"
        )
    return "\n".join(_lines(run.params, counts, "", ""))


def _lines(
    values: Mapping[str, Any], counts: Mapping[str, int], path: str, indent: str
) -> Iterator[str]:
    for name, value in values.items():
        below = f"{path}.{name}".removeprefix(".")
        if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
            yield from _lines(
                {f"{name}[{index}]": each for index, each in enumerate(value)}, counts, path, indent
            )
        elif isinstance(value, dict) and value:
            yield f"{indent}{name}:"
            yield from _lines(value, counts, below, f"{indent}  ")
        else:
            number = counts.get(below, 0)
            said = f"read {number:,} time{'s' * (number > 1)}" if number else "not read"
            flow = yaml.safe_dump(value, default_flow_style=True, width=10**9)
            text = f"{indent}{name}: {flow.removesuffix(chr(10)).removesuffix(f'{chr(10)}...')}"
            yield f"{text:<{_COLUMN}}  # {said}"
