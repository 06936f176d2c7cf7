"""A server of S3 on this machine, moto's, in a process of its own: for benchmarks and attacks.

with s3_server.running() as (environment, bucket):
    ...  # processes with this environment find the bucket
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

_BUCKET = "bucket"


@contextlib.contextmanager
def running() -> Iterator[tuple[dict[str, str], str]]:
    """The environment of its clients, and the name of a bucket."""
    command = [sys.executable, __file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout
        yield environment(int(process.stdout.readline())), _BUCKET
        process.kill()


def environment(port: int) -> dict[str, str]:
    """What clients of a server at this port need."""
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

    os.nice(5)  # a real one runs elsewhere
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    os.environ.update(environment(port))
    boto3.client("s3").create_bucket(Bucket=_BUCKET)
    print(port, flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0))).start()


if __name__ == "__main__":
    _serve()
