"""Runs moto's S3 server on this machine in a separate process, for benchmarks and attacks.

with s3_server.running() as server:
    ...  # processes that get `server.environment` find the bucket
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_BUCKET = "bucket"


class Server(NamedTuple):
    """A running server.

    Attributes:
        environment: The environment variables that clients need.
        bucket: The name of its bucket.
        pid: Its process id.
    """

    environment: dict[str, str]
    bucket: str
    pid: int

    def cpu_seconds(self) -> float:
        """Returns the CPU time that the server has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """Runs a server during the block."""
    command = [sys.executable, __file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout
        yield Server(environment(int(process.stdout.readline())), _BUCKET, process.pid)
        process.kill()


def environment(port: int) -> dict[str, str]:
    """Returns the environment variables for clients of a server at this port."""
    return {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }


def _serve() -> None:
    """Serves until stdin is closed."""
    import boto3
    from moto.server import ThreadedMotoServer

    os.nice(5)  # a real server does not share the CPU
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    os.environ.update(environment(port))
    boto3.client("s3").create_bucket(Bucket=_BUCKET)
    print(port, flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0))).start()


if __name__ == "__main__":
    _serve()
