"""The slots for workers on one machine: their addresses, their GPUs, and cooldowns."""

import time
from collections.abc import Callable, Sequence

from runner.core import text
from runner.errors import ConfigError
from runner.launch import ports

_LOOPBACK = "127.0.0.1"


class Slots:
    """The slots for workers on this machine.

    A worker that failed may fail again for the same reason. If the other workers are enough, its
    slot rests for a while.

    Args:
        count: The number of slots.
        host: The address, with an optional port, or empty if only this machine needs to reach it.
        gpus: The GPUs that they share, as CUDA_VISIBLE_DEVICES names them, or empty without GPUs.
        clock: Seconds, for tests to inject.

    Raises:
        ConfigError: there are GPUs, but not one for each slot.
    """

    def __init__(
        self,
        count: int,
        host: str = "",
        *,
        gpus: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if 0 < len(gpus) < count:
            raise ConfigError(
                f"--workers={count}: this machine has {text.counted(len(gpus), 'GPU')}, but each "
                "worker needs one. To train on CPUs, set CUDA_VISIBLE_DEVICES= in the environment"
            )
        self._host = host or _LOOPBACK
        self._gpus = list(gpus)
        self._clock = clock
        self._awake_from = [0.0] * count

    @property
    def awake(self) -> list[int]:
        """The slots that do not rest."""
        now = self._clock()
        return [slot for slot, time in enumerate(self._awake_from) if time <= now]

    def rest(self, slot: int, seconds: float) -> None:
        """Leaves a slot empty for a while."""
        self._awake_from[slot] = self._clock() + seconds

    def addresses(self, count: int) -> list[str]:
        """Returns this many addresses, with recently free ports unless a port was given."""
        if ":" in self._host:
            return [self._host] * count
        return [f"{self._host}:{port}" for port in ports.free(count)]

    def gpus(self, slot: int) -> str | None:
        """Returns the GPUs of a slot, or None if it may use all of them."""
        count = len(self._awake_from)
        return ",".join(self._gpus[slot::count]) if count > 1 and self._gpus else None
