"""Detects whether a gRPC server is at the other end of a connection. Standard library only."""

import contextlib
import socket

_SETTINGS = b"\4"  # a frame's type, which follows its three-byte length
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + _SETTINGS + bytes(5)


def is_spoken(connection: socket.socket) -> bool:
    """Returns whether the other end answers an HTTP/2 greeting with its settings, as gRPC does.

    It waits as long as the connection's timeout.
    """
    with contextlib.suppress(OSError):
        connection.sendall(_GREETING)
        with connection.makefile("rb") as stream:
            return stream.read(4)[3:] == _SETTINGS
    return False
