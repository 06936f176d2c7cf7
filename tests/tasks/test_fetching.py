import hashlib
import http.server
import io
import itertools
import random
import resource
import threading
import zipfile
from pathlib import Path

import fsspec
import pytest
import terminals
from wording import saying, says

from runner.core import console
from runner.errors import ConfigError, RunnerError
from tasks.files import fetching, receiving

CONTENT = random.Random(0).randbytes(3_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT, well or badly.

    Attributes:
        requests: the range of each GET with an answer, such as 'bytes=100-'; '' for all.
        ranges: whether ranges are served.
        sized: whether the length of the content is told.
        drops: after how many bytes each of the next responses ends; what a client has received
            but not read then, less than half a million, may be lost to it.
        statuses: of the next answers; of all others 200 or 206.
        asked: is set at the first GET.
        gate: is waited for in the middle of each response.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.drops, self.statuses = [], [], []
        self.ranges = self.sized = True
        self.asked, self.gate = threading.Event(), threading.Event()
        self.gate.set()
        self.url = f"http://127.0.0.1:{self.server_port}/data.bin"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        content = self.answer()
        if content is None:
            return
        self.server.requests.append(self.headers.get("Range", ""))
        self.server.asked.set()
        sent = content[: self.server.drops.pop(0)] if self.server.drops else content
        self.wfile.write(sent[: len(sent) // 2])
        self.server.gate.wait(30)
        self.wfile.write(sent[len(sent) // 2 :])

    def answer(self):
        """Sends the head of a response, and returns what is to follow."""
        if self.server.statuses:
            self.send_error(self.server.statuses.pop(0))
            return None
        content, asked = CONTENT, self.headers.get("Range", "")
        if asked and self.server.ranges:
            first = int(asked.removeprefix("bytes=").removesuffix("-"))
            content = CONTENT[first:]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{len(CONTENT) - 1}/{len(CONTENT)}")
        else:
            self.send_response(200)
        if self.server.sized:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return content

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def no_pause(seconds):
    pytest.fail(f"a pause of {seconds} s")


class Screen(console.Console):
    """Keeps what is said."""

    def __init__(self):
        super().__init__(io.StringIO())
        self.lines = []

    def say(self, line, *, style=""):
        self.lines.append(line)


def fetch(url, *, sleep=no_pause, screen=None, **fields):
    file = fetching.RemoteFile(path="data/x.bin", url=url, **fields)
    fetching.fetch([file], sleep=sleep, screen=screen or Screen())


def found():
    """What lies in the folder: names and content."""
    return {path.name: path.read_bytes() for path in Path("data").iterdir()}


def leave_part(content):
    Path("data").mkdir()
    Path("data/x.bin.part").write_bytes(content)


def in_memory():
    fsspec.filesystem("memory").pipe("/data.bin", CONTENT)
    return "memory://data.bin"


def in_file():
    Path("source.bin").write_bytes(CONTENT)
    return f"file://{Path('source.bin').absolute()}"


def in_archive():
    with zipfile.ZipFile("source.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inside/data.bin", CONTENT)
    return f"zip://inside/data.bin::file://{Path('source.zip').absolute()}"


@pytest.mark.parametrize("source", [in_memory, in_file, in_archive])
@pytest.mark.parametrize("check", [{}, {"size": len(CONTENT), "sha256": SHA256.upper()}])
def test_an_absent_file_is_fetched_from_any_file_system(source, check):
    fetch(source(), **check)
    assert found() == {"x.bin": CONTENT}


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("ranges", [True, False])
def test_an_absent_file_is_fetched_from_a_web_server_in_one_response(server, sized, ranges):
    server.sized, server.ranges = sized, ranges
    fetch(server.url, size=len(CONTENT), sha256=SHA256)
    assert found() == {"x.bin": CONTENT}
    assert server.requests[-1:] == [""]


def test_nothing_happens_where_the_file_is(server):
    Path("data").mkdir()
    Path("data/x.bin").write_bytes(CONTENT)
    screen = Screen()
    fetch(server.url, screen=screen)
    fetch(server.url, screen=screen, size=len(CONTENT), sha256=SHA256)
    assert not server.requests
    assert not screen.lines


def test_a_file_that_is_there_but_not_as_described_is_refused_and_stays():
    fetch(in_memory(), sha256=SHA256)
    with pytest.raises(ConfigError, match=saying("x.bin 3,000,000 bytes 7 remove")):
        fetch(in_memory(), size=7)
    Path("data/x.bin").write_bytes(b"0" + CONTENT[1:])
    with pytest.raises(ConfigError, match=rf"x.bin has the SHA-256 \w+, expected {SHA256}"):
        fetch(in_memory(), sha256=SHA256)
    assert list(found()) == ["x.bin"]


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ({"size": 7}, "download 3,000,000 bytes 7"),
        ({"sha256": "a" * 64}, f"download SHA-256 {SHA256} {'a' * 64}"),
    ],
)
def test_what_was_fetched_but_is_not_as_described_is_removed(check, message):
    with pytest.raises(ConfigError, match=saying(f"memory://data.bin {message}")):
        fetch(in_memory(), **check)
    assert found() == {}


def test_a_broken_connection_is_resumed_where_it_broke(server):
    server.drops = [1_000_000, 1_000_000]
    pauses, screen = [], Screen()
    fetch(server.url, sleep=pauses.append, screen=screen)
    assert found() == {"x.bin": CONTENT}
    whole, *rest = server.requests
    assert whole == ""
    first, second = (int(request.removeprefix("bytes=").removesuffix("-")) for request in rest)
    assert 0 < first <= 1_000_000
    assert first < second <= first + 1_000_000
    assert pauses == [1, 1]
    said = [line.endswith("retrying in 1 s") for line in screen.lines]
    assert said == [False, True, True]


def test_a_server_without_ranges_sends_everything_again(server):
    server.ranges, server.drops = False, [1_000_000]
    pauses = []
    fetch(server.url, sleep=pauses.append)
    assert found() == {"x.bin": CONTENT}
    assert pauses == [1]


def test_a_part_of_an_earlier_start_is_continued_where_a_checksum_can_tell(server):
    leave_part(CONTENT[:2_900_000])
    fetch(server.url, sha256=SHA256)
    assert found() == {"x.bin": CONTENT}
    assert server.requests == ["bytes=2900000-"]


def test_a_part_of_an_earlier_start_is_not_trusted_without_a_checksum(server):
    leave_part(b"another file's")
    fetch(server.url, size=len(CONTENT))
    assert found() == {"x.bin": CONTENT}


def test_a_part_that_is_too_long_is_begun_anew(server):
    leave_part(CONTENT + b"more")
    fetch(server.url, sha256=SHA256)
    assert found() == {"x.bin": CONTENT}


def test_a_part_that_is_complete_already_is_only_verified(server):
    leave_part(CONTENT)
    fetch(server.url, sha256=SHA256)
    assert found() == {"x.bin": CONTENT}
    assert not server.requests


def test_after_the_last_attempt_the_end_is_clear(server):
    server.drops = [0] * 100
    pauses = []
    with pytest.raises(RunnerError) as raised:
        fetch(server.url, sleep=pauses.append, attempts=4)
    assert not isinstance(raised.value, ConfigError)
    says(str(raised.value), f"{server.url} 4 attempts data/x.bin.part failed")
    assert pauses == [1, 2, 4]
    assert not Path("data/x.bin").exists()


def test_attempts_that_bring_something_new_are_not_counted(server):
    server.drops = [800_000] * 3
    pauses = []
    fetch(server.url, sleep=pauses.append, attempts=2)
    assert found() == {"x.bin": CONTENT}
    assert set(pauses) == {1}


def test_a_server_that_cannot_be_reached_is_tried_again(server):
    server.server_close()
    pauses = []
    with pytest.raises(RunnerError, match=r"3 attempts .* Client\w+:"):
        fetch(server.url, sleep=pauses.append, attempts=3)
    assert pauses == [1, 2]


def test_pauses_have_a_longest(server):
    pauses = []
    server.drops = [0] * 100
    with pytest.raises(RunnerError):
        fetch(server.url, sleep=pauses.append, attempts=10)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_what_the_server_does_not_have_or_give_is_not_tried_again(server, status):
    server.statuses = [status] * 100
    with pytest.raises(ConfigError, match=saying(f"{server.url} fetched {status}")):
        fetch(server.url)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_is_busy_is_tried_again(server, status):
    server.statuses = [status] * 4
    pauses = []
    fetch(server.url, sleep=pauses.append)
    assert found() == {"x.bin": CONTENT}
    assert pauses


def test_a_missing_source_elsewhere_is_not_tried_again():
    with pytest.raises(ConfigError, match=r"memory://nothing\.bin cannot be fetched"):
        fetch("memory://nothing.bin")


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("s3://bucket/x", "s3fs installed pip [s3]"),
        ("zip://x::gs://bucket/x.zip", "gcsfs installed"),
    ],
)
def test_a_kind_of_url_without_its_package_is_refused(monkeypatch, url, line):
    def missing(url, **options):
        raise ImportError("Install it")

    monkeypatch.setattr("fsspec.url_to_fs", missing)
    with pytest.raises(ConfigError, match=saying(line)):
        fetch(url)


def test_an_unknown_kind_of_url_is_refused():
    with pytest.raises(ConfigError, match=r"nonsense://x: .*nonsense"):
        fetch("nonsense://x")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"url": ""}, "give both"),
        ({"path": ""}, "give both"),
        ({"path": "."}, "is a directory"),
        ({"attempts": 0}, "attempts=0"),
        ({"size": -1}, "size=-1"),
        ({"sha256": "a" * 63}, "expected 64 hexadecimal digits"),
        ({"sha256": "g" * 64}, "expected 64 hexadecimal digits"),
    ],
)
def test_a_wrong_description_is_refused_before_anything_is_fetched(fields, message):
    good = fetching.RemoteFile(path="good.bin", url=in_memory())
    bad = fetching.RemoteFile(**{"path": "x.bin", "url": "memory://data.bin", **fields})
    with pytest.raises(ConfigError, match=message):
        fetching.fetch([good, bad])
    assert not Path("good.bin").exists()


class Fetcher(threading.Thread):
    """Fetches beside the test, and keeps what went wrong; `waits` is set where it has to wait."""

    def __init__(self, url, **fields):
        super().__init__()
        self.url, self.fields, self.waits, self.failure = url, fields, threading.Event(), None
        self.screen = Screen()
        self.screen.say = self.said
        self.start()

    def run(self):
        try:
            fetch(self.url, screen=self.screen, **self.fields)
        except RunnerError as error:
            self.failure = error

    def said(self, line):
        if "waiting" in line and "data/x.bin.part" in line:
            self.waits.set()


@pytest.mark.parametrize("fails", [False, True])
def test_of_two_that_fetch_the_same_file_one_waits_and_fetches_only_where_the_other_failed(
    server, fails
):
    server.gate.clear()
    server.drops = [1_000] if fails else []
    first = Fetcher(server.url, attempts=1)
    assert server.asked.wait(30)
    second = Fetcher(server.url)
    assert second.waits.wait(30)
    server.gate.set()
    first.join(30)
    second.join(30)
    assert (first.failure is not None, second.failure) == (fails, None)
    assert found() == {"x.bin": CONTENT}
    assert server.requests == ([""] * 2 if fails else [""])


def receive(name, **arguments):
    url = in_memory()
    with open(name, "ab", buffering=0) as out:  # noqa: PTH123
        receiving.receive(url, out, attempts=1, sleep=no_pause, **arguments)


@pytest.fixture
def small_disk():
    """No file grows beyond a million bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_ends_at_once(server, small_disk):
    with pytest.raises(RunnerError, match=saying("x.bin.part File large")):
        fetch(server.url)


def test_progress_is_noted_now_and_then():
    screen = Screen()
    receive("x.bin", screen=screen, clock=itertools.count(step=16).__next__)
    assert screen.lines == ["x.bin: 2.1 MB of 3 MB, 70%"]


def test_progress_is_a_live_line_on_a_terminal_and_leaves_nothing_there(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal = terminals.Terminal()
    receive("x.bin", screen=console.Console(terminal), clock=itertools.count().__next__)
    assert terminal.getvalue().index("x.bin: 1.05 MB of 3 MB, 35%") < terminal.getvalue().index(
        "x.bin: 3 MB of 3 MB, 100%"
    )
    assert terminal.lines == []
