"""Rules for when a supervisor waits, restarts and gives up. No TensorFlow."""

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from runner.core import text
from runner.errors import RunnerError
from runner.run_directory.run import Run

_HOUR = 3600.0


START_SECONDS = 120.0  # for imports and setup before workers connect


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules of a run: the fields of `RunConfig.workers`, documented there.

    Attributes:
        timeout: `RunConfig.workers_timeout`, the seconds that workers wait for each other.
        mirror_timeout: `RunConfig.mirror_timeout`, the seconds that the last copy may take.
    """

    rest_seconds: float = 60.0
    restarts_an_hour: int = 10
    idle_starts: int = 2
    timeout: float = 600.0
    mirror_timeout: float = 600.0

    @property
    def to_form(self) -> float:
        """The seconds that workers have to find each other, from their start."""
        return self.timeout + START_SECONDS

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Reads the rules that the chief of the run in `folder` has written, or the defaults."""
        try:
            run = Run(folder).params["run"]
            given: Mapping[str, Any] = run.get("workers") or {}
            found = {name: given[name] for name in _FIELDS if name in given}
            return cls(
                **found,
                timeout=float(run.get("workers_timeout", cls.timeout)),
                mirror_timeout=float(run.get("mirror_timeout", cls.mirror_timeout)),
            )
        except (OSError, RunnerError, KeyError, TypeError, ValueError, AttributeError):
            return cls()


_FIELDS = ("rest_seconds", "restarts_an_hour", "idle_starts")


class Patience:
    """Counts failures, and decides when there were too many.

    Args:
        clock: Seconds, for tests to inject.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: deque[float] = deque()
        self._idle = 0

    def count(self, *, progressed: bool) -> None:
        """Records a failed attempt, and whether it trained a step."""
        self._failures.append(self._clock())
        self._idle = 0 if progressed else self._idle + 1

    def ends(self, rules: Rules, *, progressed: bool) -> str:
        """Returns why a failed attempt is the last one, or an empty text if it may be retried."""
        since = self._clock() - _HOUR
        if not progressed and self._idle + 1 >= rules.idle_starts:
            starts = text.counted(rules.idle_starts, "attempt")
            return f"because {starts} in a row ended without a step (WorkersConfig.idle_starts)"
        if sum(time > since for time in self._failures) >= rules.restarts_an_hour:
            restarts = text.counted(rules.restarts_an_hour, "restart")
            return f"after {restarts} in an hour (WorkersConfig.restarts_an_hour)"
        return ""
