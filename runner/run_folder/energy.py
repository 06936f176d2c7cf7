"""The energy that a machine uses, where it tells: RAPL's counters, and the power of NVIDIA GPUs.

It is the whole machine's, whatever else runs on it. No TensorFlow.
"""

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_RAPL = Path("/sys/class/powercap")
_GPU = ("nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits")


class Meter:
    """Adds up what the machine has used since the first call of `read`.

    Args:
        rapl: Where the counters are; those of whole packages count, in microjoules.
        clock: Seconds, for tests to inject.
    """

    def __init__(self, rapl: Path = _RAPL, clock: Callable[[], float] = time.monotonic) -> None:
        self._zones = sorted(rapl.glob("intel-rapl:[0-9]*/energy_uj"))
        self._zones = [path for path in self._zones if path.parent.name.count(":") == 1]
        self._has_gpu = shutil.which(_GPU[0]) is not None
        self._clock = clock
        self._last: tuple[float, dict[Path, int]] | None = None
        self.joules: float | None = None

    def read(self) -> None:
        """Adds what has been used since the last call; `joules` stays None if nothing tells."""
        if not self._zones and not self._has_gpu:
            return
        now, counters = self._clock(), self._counters()
        watts = _watts() if self._has_gpu else None
        if self._last is not None and (counters or watts is not None):
            then, before = self._last
            used = sum(
                _since(path, before[path], count) for path, count in counters.items()
                if path in before
            )  # fmt: skip
            used += (watts or 0.0) * (now - then)
            self.joules = (self.joules or 0.0) + used
        self._last = now, counters

    def _counters(self) -> dict[Path, int]:
        """The counters that may be read; on many machines only root may."""
        found = {}
        for path in self._zones:
            try:
                found[path] = int(path.read_text(encoding="ascii"))
            except (OSError, ValueError):
                continue
        return found


def _since(path: Path, before: int, now: int) -> float:
    """Joules between two values of a counter, which may have begun again."""
    if now < before:
        try:
            now += int((path.parent / "max_energy_range_uj").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0.0
    return (now - before) / 1e6


def _watts() -> float | None:
    """The power of all GPUs together; None if they do not tell."""
    try:
        done = subprocess.run(_GPU, capture_output=True, text=True, timeout=4, check=True)
        return sum(float(line) for line in done.stdout.split())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
