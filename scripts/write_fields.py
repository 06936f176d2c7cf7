"""Writes runner/command/help/fields.json, from which `--help` works without TensorFlow.

Run it after a field of a config class has been added or changed. A test in tests/help compares the
file with the classes.
"""

import importlib
import inspect
import sys
from pathlib import Path

from official.modeling.hyperparams import base_config

from runner.command.help import facts, from_classes

ROOT = Path(__file__).parents[1]


def task_sections() -> list[type[base_config.Config]]:
    """Returns the config classes of the tasks that come with the runner."""
    for path in sorted((ROOT / "tasks").rglob("*.py")):
        importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return [
        kind
        for name, module in sorted(sys.modules.items())
        if name.startswith("tasks.")
        for kind in vars(module).values()
        if inspect.isclass(kind)
        and issubclass(kind, base_config.Config)
        and kind.__module__ == name
    ]


def render() -> str:
    """Returns the content of the file."""
    return facts.dump(from_classes.shipped(task_sections()))


if __name__ == "__main__":
    facts.TABLE.write_text(render(), encoding="utf-8")
