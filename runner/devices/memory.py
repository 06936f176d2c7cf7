"""Measures the current and the peak memory of a process."""

import resource
import sys
from pathlib import Path

import tensorflow as tf


def peak() -> int:
    """Returns the peak memory of this process in bytes, without that of GPUs.

    The system's own value (`ru_maxrss`) includes the parent's memory before the process was
    started.
    """
    if (held := _status("VmHWM")) is not None:
        return held
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def peak_of_gpus() -> int | None:
    """Returns this process's peak memory on one of its GPUs in bytes, or None without a GPU."""
    names = [each.name.partition("device:")[2] for each in tf.config.list_logical_devices("GPU")]
    return max(
        (tf.config.experimental.get_memory_info(name)["peak"] for name in names), default=None
    )


def held(process: int | str = "self") -> int:
    """Returns the current memory of a process in bytes, or 0 if the system does not report it."""
    return _status("VmRSS", process) or 0


def _status(name: str, process: int | str = "self") -> int | None:
    """Returns a size that Linux reports for a process, in bytes."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return None
    return next(
        (int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None
    )
