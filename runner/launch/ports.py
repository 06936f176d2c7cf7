"""Ports for workers to listen on. Standard library only."""

import contextlib
import random
import socket
from pathlib import Path

_FIRST = 20_000
_EPHEMERAL = 32_768  # Linux's default


def free(count: int) -> list[int]:
    """TCP ports of this machine that nobody listens on, and that no connection will take.

    A worker needs seconds until it listens. The system gives outgoing connections ports of a range
    of its own, from which binding to port 0 draws, too; these are from below it.
    """
    found: list[int] = []
    last = _first_ephemeral()
    candidates = range(min(_FIRST, last // 2), last)
    with contextlib.ExitStack() as held:  # so that none is found twice
        for port in random.Random().sample(candidates, len(candidates)):
            if len(found) == count:
                break
            one = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            with contextlib.suppress(OSError):
                one.bind(("", port))
                found.append(port)
    return found


def _first_ephemeral() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="utf-8")
        return max(int(text.split()[0]), 2048)
    except (OSError, ValueError, IndexError):
        return _EPHEMERAL
