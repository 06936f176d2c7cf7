"""A folder that changes like a run's, a server of S3, and a way to it that can be cut or slow."""

import contextlib
import http.server
import json
import socket
import threading
import time
import uuid

import boto3
from moto.server import ThreadedMotoServer

from runner.checkpoints import checkpoint_files

KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


def commit(folder, step, *, keep=2, size=100, word="d"):
    """What a run writes at a boundary: a checkpoint, a row, the list; then it prunes."""
    path = folder / f"ckpt-{step}"
    for end, text in ((".data-00000-of-00001", word * size), (".index", f"index {step} {word}")):
        part = folder / f".{path.name}{end}.1.tmp"
        part.write_text(text)
        part.replace(folder / f"{path.name}{end}")
    steps = [int(name[5:]) for name in checkpoint_files.names(folder)]
    kept = sorted(steps)[-keep:]
    checkpoint_files.list_committed(folder, [f"ckpt-{each}" for each in kept])
    with (folder / "history.jsonl").open("a") as file:
        file.write(json.dumps({"step": step}) + "\n")
    for each in set(steps) - set(kept):
        checkpoint_files.remove(folder / f"ckpt-{each}")


def contents(folder):
    """Every file of a run's folder, without what is private to copying."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".mirror" not in path.parts and path.name != "claim.json"
    }


def wait_for(what, seconds=300):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextlib.contextmanager
def refusing(code, message=""):
    """A server that has the same answer for everybody: its address, and what it was asked for."""
    asked = []

    class Refuses(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps({"error": {"message": message}}).encode())

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


class Server:
    """S3 on this machine, behind a proxy.

    Attributes:
        way: The proxy.
    """

    def __init__(self):
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        self.host, self.port = self._server.get_host_and_port()
        self.way = Way(self.port)
        self.environment = {
            **KEYS,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.way.port}",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def client(self):
        return boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            region_name="us-east-1",
        )

    def bucket(self):
        """The name of a new bucket."""
        name = f"b{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=name)
        return name

    def stop(self):
        self.way.close()
        self._server.stop()


class Way:
    """A proxy: `cut` breaks every connection and refuses new ones until `mend`; `pause` is slept
    before each part of what is sent on; `after` cuts once so many bytes have been sent; `when`
    calls a function once, before the first part with certain bytes is sent on."""

    def __init__(self, port):
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.is_cut, self.pause, self.after, self._awaited = False, 0.0, None, {}
        self._open = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        self.is_cut = True
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def when(self, sent, call):
        self._awaited[sent] = call

    def mend(self):
        self.is_cut, self.after, self.pause = False, None, 0.0

    def close(self):
        self.cut()
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                if self.is_cut:
                    one.close()
                    continue
                other = socket.create_connection(("127.0.0.1", self._to))
                self._open |= {one, other}
                for pair in ((one, other, True), (other, one, False)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source, target, counts):
        with contextlib.suppress(OSError):
            while part := source.recv(1 << 16):
                for sent in [each for each in self._awaited if counts and each in part]:
                    self._awaited.pop(sent)()
                if counts and self.pause:
                    time.sleep(self.pause)
                if counts and self.after is not None:
                    self.after -= len(part)
                    if self.after < 0:
                        self.cut()
                        break
                target.sendall(part)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
