"""What a run takes of its machine: processors, memory, disk, network, GPUs, sampled by a thread."""

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from runner.core import files, heartbeat, layout
from runner.reporting import tensorboard

_RAPL = Path("/sys/class/powercap")


@contextlib.contextmanager
def sampled(
    folder: Path, step: Callable[[], int | None], *, seconds: float, draws: bool
) -> Iterator[None]:
    """Within the block, a thread adds a row to system.jsonl every so often.

    Args:
        folder: The run's.
        step: The step reached; it must not wait.
        seconds: Time between two rows; 0: none are written.
        draws: Whether TensorBoard gets them, too.
    """
    if not seconds:
        yield
        return
    machine = Machine()
    with contextlib.ExitStack() as stack:
        boards: list[tensorboard.TensorBoard] = []  # made in the thread, if a run lasts that long

        def beat() -> None:
            at, values = step() or 0, machine.sample()
            if draws and not boards:
                boards.append(tensorboard.TensorBoard(folder / layout.SYSTEM))
                stack.callback(boards[0].close)
            row = {"step": at, "time": round(time.time(), 1), **values}
            files.append_json_line(folder / layout.SYSTEM_ROWS, row)
            for board in boards:
                board.write(at, {f"system/{name}": value for name, value in values.items()})
                board.flush()

        with heartbeat.beating(beat, seconds=seconds, what="row of system.jsonl"):
            yield


class Machine:
    """Measures this process and its machine; rates are means since the sample before.

    Args:
        rapl: Where Linux keeps the energy counters of processors.
    """

    def __init__(self, rapl: Path = _RAPL) -> None:
        self._process = psutil.Process()
        self._gpus = _Gpus()
        self._rapl = _Rapl(rapl)
        self._cores = len(self._process.cpu_affinity() or ()) or psutil.cpu_count() or 1
        self._before = self._counters()
        psutil.cpu_percent()  # begins to count

    def sample(self) -> dict[str, float]:
        """The values, by name.

        Returns:
            `cpu` (this process's share of the cores that it may use) and `cpu_machine` (of all, by
            anyone); `memory` (this process, resident) and `memory_free` (for anyone), in bytes;
            `disk_read` and `disk_write` (this process), `network_in` and `network_out` (the
            machine), in bytes a second; `cpu_watts`, the power of the processors, if their counters
            may be read (on many machines only root may); of GPU n `gpu<n>`, the share of time in
            which it was busy, `gpu<n>_memory` in bytes and `gpu<n>_watts`.
        """
        now = self._counters()
        before, self._before = self._before, now
        seconds = max(now["clock"] - before["clock"], 1e-9)
        rates = {name: (now[name] - before[name]) / seconds for name in now.keys() & before.keys()}
        found = {
            "cpu": round(rates["cpu"] / self._cores, 4),
            "cpu_machine": round(psutil.cpu_percent() / 100, 4),
            "memory": self._process.memory_info().rss,
            "memory_free": psutil.virtual_memory().available,
        }
        flows = ("disk_read", "disk_write", "network_in", "network_out")
        return {
            **found,
            **{name: round(rates[name]) for name in flows if name in rates},
            **({"cpu_watts": round(rates["joules"], 2)} if "joules" in rates else {}),
            **self._gpus.sample(),
        }

    def _counters(self) -> dict[str, float]:
        """What is counted since the process or the machine started."""
        times = self._process.cpu_times()
        found = {"clock": time.monotonic(), "cpu": times.user + times.system}
        with contextlib.suppress(AttributeError, psutil.Error):  # not on every system
            disk = self._process.io_counters()
            found |= {"disk_read": disk.read_bytes, "disk_write": disk.write_bytes}
        if (joules := self._rapl.joules()) is not None:
            found["joules"] = joules
        if network := psutil.net_io_counters():
            found |= {"network_in": network.bytes_recv, "network_out": network.bytes_sent}
        return found


class _Rapl:
    """Intel's and AMD's energy counters, of whole processors."""

    def __init__(self, folder: Path) -> None:
        paths = sorted(folder.glob("intel-rapl:[0-9]*/energy_uj"))
        paths = [path for path in paths if path.parent.name.count(":") == 1]  # parts have more
        self._last = {path: count for path in paths if (count := _number(path)) is not None}
        self._microjoules = 0.0

    def joules(self) -> float | None:
        """What was used since the first call; None if no counter can be read."""
        for path, before in self._last.items():
            now = _number(path)
            if now is None:
                continue
            begun_again = now < before
            most = _number(path.parent / "max_energy_range_uj") or before if begun_again else 0
            self._microjoules += now - before + most
            self._last[path] = now
        return self._microjoules / 1e6 if self._last else None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


class _Gpus:
    """NVIDIA's GPUs, where nvidia-ml-py is installed (the extra `gpu`) and finds some."""

    def __init__(self) -> None:
        self._library: Any = None
        self._handles: list[Any] = []
        with contextlib.suppress(Exception):  # not installed, no driver, no GPU
            library: Any = importlib.import_module("pynvml")
            library.nvmlInit()
            count = library.nvmlDeviceGetCount()
            self._handles = [library.nvmlDeviceGetHandleByIndex(n) for n in range(count)]
            self._library = library

    def sample(self) -> Mapping[str, float]:
        """Of each GPU how busy it is, its memory in use, and its power."""
        found: dict[str, float] = {}
        for number, handle in enumerate(self._handles):
            with contextlib.suppress(self._library.NVMLError):  # that one is not told
                rates = self._library.nvmlDeviceGetUtilizationRates(handle)
                found[f"gpu{number}"] = rates.gpu / 100
                found[f"gpu{number}_memory"] = self._library.nvmlDeviceGetMemoryInfo(handle).used
                milliwatts = self._library.nvmlDeviceGetPowerUsage(handle)
                found[f"gpu{number}_watts"] = milliwatts / 1000
        return found
