"""An exported file, loaded and run in a fresh process."""

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from runner.export import loaded

_LONGEST = 300  # characters of an error


class LoadError(Exception):
    """The exported file could not be loaded, or failed; the message is one line."""


class FreshProcess:
    """Runs an exported file; see `runner.export.loaded`. The file is loaded in the background.

    The process ends with this one, even if that is killed.

    Args:
        loader: One of `loaded.LOADERS`.
        path: The exported file or folder.
    """

    def __init__(self, loader: str, path: Path) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed in `close`
        self._ready = False
        self._process = subprocess.Popen(
            [sys.executable, "-P", loaded.__file__, loader, str(path)],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of a signature, by name.

        Raises:
            LoadError: the file could not be loaded, or failed on these inputs.
        """
        found: dict[str, np.ndarray] = self._ask("call", signature, inputs)
        return found

    def milliseconds(self, signature: str, inputs: Mapping[str, np.ndarray]) -> float:
        """The median duration of a call. Raises LoadError as `call` does."""
        return float(self._ask("time", signature, inputs))

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _ask(self, *request: Any) -> Any:
        if not self._ready:
            self._read()
            self._ready = True
        assert self._process.stdin
        try:
            pickle.dump(request, self._process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
            self._process.stdin.flush()
        except OSError as error:
            raise LoadError(self._last_words()) from error
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout
        try:
            is_well, result = pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError) as error:
            raise LoadError(self._last_words()) from error
        if not is_well:
            raise LoadError(" ".join(str(result).split())[:_LONGEST])
        return result

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"its process ended with {code}: {words[-1] if words else 'no message'}"
