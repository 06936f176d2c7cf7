"""RunConfig.notify: a webhook or a command hears how a run ends, and of the best evaluation."""

import http.server
import json
import signal
import subprocess
import threading
import time

import pytest
import toy
from wording import says

import runner
from runner.core import signals
from runner.errors import ConfigError
from runner.runs import notifications


@pytest.fixture
def webhook():
    """A real server's address, and what it was sent."""
    heard = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if self.path == "/slow":
                time.sleep(20)
            self.send_response(500 if self.path == "/broken" else 204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()
    thread.join()


def test_hears_of_the_best_and_of_the_end(webhook, tmp_path, monkeypatch):
    url, heard = webhook
    monkeypatch.setenv("MY_HOOK", url)
    run = {"notify": "$MY_HOOK", "notify_on": ("best", "done")}
    results = runner.run(toy.experiment({"run": run}), tmp_path, "train_and_eval")
    ended = [each for each in heard if each["event"] == "done"]
    assert [each["metrics"] for each in ended] == [results["metrics"]]
    assert ended[0]["text"].startswith(f"{tmp_path}: done, 40 steps: accuracy 0.")
    assert ended[0]["run"] == str(tmp_path)
    improved = sorted((each for each in heard if each not in ended), key=lambda each: each["step"])
    assert {each["event"] for each in improved} == {"best"}
    assert improved[-1]["step"] == results["best"]["step"]
    assert improved[-1]["metrics"] == results["best"]["metrics"]
    assert url not in (tmp_path / "params.yaml").read_text()
    assert not (tmp_path / "notify.log").exists()


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (RuntimeError("out of paper\nat line 3"), "failed"),
        (signals.Interrupted(signal.SIGTERM), "preempted"),
    ],
)
def test_hears_how_an_error_ends_a_run(webhook, tmp_path, error, event):
    url, heard = webhook
    with pytest.raises(type(error)), notifications.Notifier(url, (event,), tmp_path):
        raise error
    first = str(error).partition("\n")[0]
    assert [each["text"] for each in heard] == [f"{tmp_path}: {event}, {first}"]


def test_hears_nothing_else(webhook, tmp_path):
    url, heard = webhook
    with notifications.Notifier(url, ("failed",), tmp_path) as told:
        told.tell("done", "")
    assert not heard


def test_a_webhook_that_never_answers_is_not_waited_for(webhook, tmp_path):
    url, heard = webhook
    began = time.monotonic()
    with notifications.Notifier(f"{url}/slow", ("done",), tmp_path, seconds=1.5) as told:
        told.tell("done", "at last")
        assert time.monotonic() - began < 1
    assert len(heard) == 1
    said = (tmp_path / "notify.log").read_text()
    says(said, f"sent within 1.5 {tmp_path}")


def test_what_is_not_sent_is_noted(webhook, tmp_path):
    with notifications.Notifier(f"{webhook[0]}/broken", ("done",), tmp_path) as told:
        told.tell("done", "")
    says((tmp_path / "notify.log").read_text(), "sent HTTP Error 500")
    with notifications.Notifier("http://127.0.0.1:1/", ("done",), tmp_path) as told:
        told.tell("done", "")
    assert "refused" in (tmp_path / "notify.log").read_text().splitlines()[-1]


def test_a_command_gets_the_text_and_the_json(tmp_path):
    command = f'echo "$RUNNER_EVENT: $RUNNER_TEXT" > {tmp_path}/text; cat > {tmp_path}/json'
    with notifications.Notifier(command, ("done",), tmp_path) as told:
        told.tell("done", "40 steps", step=40)
    assert (tmp_path / "text").read_text() == f"done: {tmp_path}: done, 40 steps\n"
    assert json.loads((tmp_path / "json").read_text())["step"] == 40


def test_a_command_that_fails_is_noted(tmp_path):
    with notifications.Notifier("echo no paper >&2; exit 3", ("done",), tmp_path) as told:
        told.tell("done", "")
    says((tmp_path / "notify.log").read_text(), "exit 3 paper")


def test_a_machine_that_starts_no_more_processes_stops_no_run(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with notifications.Notifier("true", ("done",), tmp_path) as told:
        told.tell("done", "")


def test_a_variable_that_is_not_set_is_a_mistake(tmp_path):
    with pytest.raises(ConfigError, match=r"^RunConfig.notify = '\$NO_HOOK': the environment"):
        runner.run(toy.experiment({"run": {"notify": "$NO_HOOK"}}), tmp_path / "run", "train")
    assert not (tmp_path / "run").exists()
