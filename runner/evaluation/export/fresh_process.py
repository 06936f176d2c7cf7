"""Loads and runs an exported file in a fresh process."""

import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from runner.core.child import PIPE, Child, ending
from runner.evaluation.export import loaded
from runner.internals import lazy_imports

_LONGEST = 300  # characters of an error


class LoadError(Exception):
    """The exported file could not be loaded, or failed. The message is one line."""


class FreshProcess:
    """Runs an exported file, which `runner.evaluation.export.loaded` loads in the background.

    Args:
        loader: One of `loaded.LOADERS`.
        path: The exported file or directory.
        log: A file for the output of the process.
    """

    def __init__(self, loader: str, path: Path, log: Path) -> None:
        self._ready = False
        self._child = Child(
            [sys.executable, "-P", lazy_imports.__file__, loaded.__file__, loader, str(path)],
            environment={"TF_CPP_MIN_LOG_LEVEL": "3"},
            log=log,
            answer=PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the outputs of a signature, by name.

        Raises:
            LoadError: the file could not be loaded, or failed on these inputs.
        """
        found: dict[str, np.ndarray] = self._ask("call", signature, inputs)
        return found

    def milliseconds(self, signature: str, inputs: Mapping[str, np.ndarray]) -> float:
        """Returns the median duration of a call. Raises LoadError as `call` does."""
        return float(self._ask("time", signature, inputs))

    def close(self) -> None:
        """Ends the process."""
        self._child.end()
        if self._child.stdout:
            self._child.stdout.close()

    def _ask(self, *request: Any) -> Any:
        if not self._ready:
            self._read()
            self._ready = True
        assert self._child.stdin
        try:
            pickle.dump(request, self._child.stdin, protocol=pickle.HIGHEST_PROTOCOL)
            self._child.stdin.flush()
        except OSError as error:
            raise self._failure() from error
        return self._read()

    def _read(self) -> Any:
        assert self._child.stdout
        try:
            is_well, result = pickle.load(self._child.stdout)
        except (EOFError, pickle.UnpicklingError) as error:
            raise self._failure() from error
        if not is_well:
            raise LoadError(" ".join(str(result).split())[:_LONGEST])
        return result

    def _failure(self) -> LoadError:
        code = self._child.wait() or 0
        return LoadError(f"its process {ending(code)}: {self._child.reason() or 'no message'}")
