"""Whether a server of gRPC is at the other end of a connection. Standard library only."""

import contextlib
import socket

_SETTINGS = b"\4"  # the kind of a frame, which follows its length of three bytes
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + _SETTINGS + bytes(5)


def is_spoken(connection: socket.socket) -> bool:
    """Whether the other end answers a greeting of HTTP/2 with its settings, as gRPC does.

    Waits as long as the connection's timeout.
    """
    with contextlib.suppress(OSError):
        connection.sendall(_GREETING)
        with connection.makefile("rb") as stream:
            return stream.read(4)[3:] == _SETTINGS
    return False
