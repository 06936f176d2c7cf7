"""The packages that the runner needs, and checks that they are the right ones. No TensorFlow."""

import importlib.util
import shlex
from pathlib import Path

from runner.errors import RunnerError

DISTRIBUTION = "tf-experiment-runner"
"""The name of the runner's own package for pip. It is not on PyPI."""

_SOURCE = Path(__file__).parents[2]
_PACKAGES = {
    "runner": DISTRIBUTION,
    "TensorFlow": "tensorflow",
    "tf_keras": "tf-keras",
    "tf-models-official": "tf-models-official",
    "gin": "gin-config",
}


def versions() -> str:
    """Returns a line for each package that a result may depend on, and for Python."""
    import platform  # slow to import

    lines = [f"{name} {version(package)}" for name, package in _PACKAGES.items()]
    return "\n".join([*lines, f"Python {platform.python_version()}"])


def version(package: str = DISTRIBUTION) -> str:
    """Returns the installed version of a package, by default the runner's own."""
    from importlib import metadata  # slow to import

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def command_for(extra: str) -> str:
    """Returns the command that installs an extra of the runner, such as `s3`, with its bounds.

    In a clone, it installs the clone with the extra. Otherwise, it installs the extra's packages,
    because pip cannot find the runner by its name.
    """
    if (_SOURCE / "pyproject.toml").is_file():
        return f"pip install -e {shlex.quote(f'{_SOURCE}[{extra}]')}"
    from importlib import metadata

    declared = metadata.requires(DISTRIBUTION) or []
    split = (each.partition(";") for each in declared)
    mine = [name for name, _, marker in split if f'"{extra}"' in marker.replace("'", '"')]
    return f"pip install {' '.join(shlex.quote(name.strip()) for name in mine)}"


def check() -> None:
    """Raises RunnerError if `official` or Orbit is missing, or `orbit` is another package.

    Orbit comes with tf-models-official. The `orbit` on PyPI computes satellite orbits.
    """
    if importlib.util.find_spec("official") is None:
        raise RunnerError("tf-models-official is not installed: pip install tf-models-official")
    spec = importlib.util.find_spec("orbit")
    if spec is None:
        raise RunnerError(
            "Orbit is missing; it comes with tf-models-official: "
            "pip install --force-reinstall --no-deps tf-models-official"
        )
    if spec.origin is None or "StandardTrainer" not in Path(spec.origin).read_text("utf-8"):
        raise RunnerError(
            f"{spec.origin or 'orbit'} is not TensorFlow's Orbit: pip uninstall -y orbit && "
            "pip install --force-reinstall --no-deps tf-models-official"
        )
