"""How much memory a process holds, and has held."""

import resource
import sys
from pathlib import Path

import tensorflow as tf


def peak() -> int:
    """The most memory that this process has held at once, in bytes; without that of GPUs.

    The system's own count (`ru_maxrss`) includes the parent's before the process was started.
    """
    if (held := _status("VmHWM")) is not None:
        return held
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def peak_of_gpus() -> int | None:
    """The most that this process has held on one of its GPUs, in bytes; None without a GPU."""
    names = [each.name.partition("device:")[2] for each in tf.config.list_logical_devices("GPU")]
    return max(
        (tf.config.experimental.get_memory_info(name)["peak"] for name in names), default=None
    )


def held(process: int | str = "self") -> int:
    """How much memory a process holds now, in bytes; 0 where the system does not tell."""
    return _status("VmRSS", process) or 0


def _status(name: str, process: int | str = "self") -> int | None:
    """A size that Linux knows of a process, in bytes."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return None
    return next(
        (int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None
    )
