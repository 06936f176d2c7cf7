"""Samples a run's use of processors, memory, disk, network and GPUs in a thread."""

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
    """Makes a thread add a row to system.jsonl regularly within the block.

    Args:
        folder: The run's directory.
        step: Returns the current step. It must not block.
        seconds: Time between two rows. 0 writes none.
        draws: Whether to write them to TensorBoard, too.
    """
    if not seconds:
        yield
        return
    machine = Machine()
    with contextlib.ExitStack() as stack:
        boards: list[tensorboard.TensorBoard] = []  # made in the thread when needed

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
    """Measures this process and its machine. Rates are means since the previous sample.

    Args:
        rapl: The directory of Linux's energy counters of processors.
    """

    def __init__(self, rapl: Path = _RAPL) -> None:
        self._process = psutil.Process()
        self._gpus = _Gpus()
        self._rapl = _Rapl(rapl)
        self._cores = len(self._process.cpu_affinity() or ()) or psutil.cpu_count() or 1
        self._before = self._counters()
        psutil.cpu_percent()  # starts the measurement

    def sample(self) -> dict[str, float]:
        """Returns the values, by name.

        Returns:
            A dict with these keys:

            - `cpu`: This process's share of the cores that it may use.
            - `cpu_machine`: The share of all cores, used by any process.
            - `memory`: This process's resident memory, in bytes.
            - `memory_free`: The memory available to any process, in bytes.
            - `disk_read`, `disk_write`: Bytes per second, of this process.
            - `network_in`, `network_out`: Bytes per second, of the machine.
            - `cpu_watts`: The power of the processors, if their counters are readable (on many
              machines only by root).
            - `gpu<n>`, `gpu<n>_memory`, `gpu<n>_watts`: For GPU n the fraction of time in which it
              was busy, its memory in use in bytes, and its power.
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
        """Returns totals since the start of the process or the machine."""
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
    """Intel's and AMD's energy counters, for whole processors."""

    def __init__(self, folder: Path) -> None:
        paths = sorted(folder.glob("intel-rapl:[0-9]*/energy_uj"))
        paths = [path for path in paths if path.parent.name.count(":") == 1]  # subdomains have more
        self._last = {path: count for path in paths if (count := _number(path)) is not None}
        self._microjoules = 0.0

    def joules(self) -> float | None:
        """Returns the energy used since construction, or None if no counter can be read."""
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
    """NVIDIA's GPUs, if nvidia-ml-py is installed (the extra `gpu`) and finds any."""

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
        """Returns the utilization of each GPU, its memory in use, and its power."""
        found: dict[str, float] = {}
        for number, handle in enumerate(self._handles):
            with contextlib.suppress(self._library.NVMLError):  # this value is unavailable
                rates = self._library.nvmlDeviceGetUtilizationRates(handle)
                found[f"gpu{number}"] = rates.gpu / 100
                found[f"gpu{number}_memory"] = self._library.nvmlDeviceGetMemoryInfo(handle).used
                milliwatts = self._library.nvmlDeviceGetPowerUsage(handle)
                found[f"gpu{number}_watts"] = milliwatts / 1000
        return found
