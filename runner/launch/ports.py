"""Finds ports for workers to listen on. Standard library only."""

import contextlib
import random
import socket
from pathlib import Path

_FIRST = 20_000
_EPHEMERAL = 32_768  # Linux's default


def free(count: int) -> list[int]:
    """Returns free TCP ports of this machine that no outgoing connection will take.

    A worker takes seconds until it listens. The system assigns outgoing connections, and sockets
    that bind to port 0, ports from the ephemeral range. These ports are below that range.
    """
    found: list[int] = []
    last = _first_ephemeral()
    candidates = range(min(_FIRST, last // 2), last)
    with contextlib.ExitStack() as held:  # so that no port is returned twice
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
