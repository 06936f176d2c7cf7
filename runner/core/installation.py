"""Which packages carry the runner, and whether they are the right ones. No TensorFlow."""

import importlib.metadata
import importlib.util
import platform
from pathlib import Path

from runner.errors import RunnerError

_PACKAGES = {
    "runner": "experiment-runner",
    "TensorFlow": "tensorflow",
    "tf_keras": "tf-keras",
    "tf-models-official": "tf-models-official",
    "gin": "gin-config",
}


def versions() -> str:
    """A line for each package that a result may depend on, and for Python."""
    lines = [f"{name} {_version(package)}" for name, package in _PACKAGES.items()]
    return "\n".join([*lines, f"Python {platform.python_version()}"])


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def check() -> None:
    """Raises RunnerError if official or Orbit is missing, or `orbit` is another package.

    Orbit comes with tf-models-official; the `orbit` on PyPI computes satellite orbits.
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
