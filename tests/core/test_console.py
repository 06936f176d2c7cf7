import ast
import io
import logging
import sys
from pathlib import Path

import pytest
import terminals
import toy

import runner
from runner.core import console

ROOT = Path(__file__).parents[2]
MAY_PRINT = {
    "core/console.py",
    "core/streams.py",
    "main.py",
    "command/parser.py",
    "command/exit_messages.py",
    "launch/ray_connection.py",  # hides what Ray prints, and brings stdout back
}


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")


def on_a_pty(monkeypatch):
    """This process's stderr, from here on: pytest has put its own there by now."""
    pty = terminals.Pty(columns=100)
    monkeypatch.setattr(sys, "stderr", pty.stream)
    return pty


def test_what_is_said_stands_above_the_live_line():
    stream = terminals.Terminal()
    screen = console.Console(stream)
    screen.show("step 1")
    screen.say("noted")
    screen.show("step 2")
    assert stream.lines == ["noted", "step 2"]
    screen.say("two\nlines", style="red")
    assert stream.lines == ["noted", "two", "lines", "step 2"]


@pytest.mark.parametrize(("keep", "left"), [(True, ["step 1", "later"]), (False, ["later"])])
def test_a_live_line_that_has_ended_is_kept_or_makes_room(keep, left):
    stream = terminals.Terminal()
    screen = console.Console(stream)
    screen.show("step 1")
    screen.end(keep=keep)
    screen.say("later")
    assert stream.lines == left


def test_a_line_longer_than_the_terminal_is_wide_takes_one_row_while_it_is_live():
    stream = terminals.Terminal(100)
    screen = console.Console(stream)
    screen.show("x" * 150)
    screen.show("y" * 150)
    (line,) = stream.lines
    assert line.startswith("yyy")
    assert line.endswith("…")


@pytest.mark.parametrize("term", ["dumb", None])
def test_elsewhere_lines_are_plain(monkeypatch, term):
    stream = io.StringIO() if term is None else terminals.Terminal()
    if term:
        monkeypatch.setenv("TERM", term)
    screen = console.Console(stream)
    screen.show("step 1")
    screen.say("noted", style="bold red")
    screen.end()
    assert stream.getvalue() == "step 1\nnoted\n"
    assert screen.width == float("inf")


def test_what_is_announced_is_for_somebody_at_a_terminal():
    elsewhere, terminal = io.StringIO(), terminals.Terminal()
    console.Console(elsewhere).announce("loading ...")
    console.Console(terminal).announce("loading ...")
    assert (elsewhere.getvalue(), terminal.getvalue()) == ("", "loading ...\n")


def test_what_others_print_comes_above_the_live_line_and_goes_where_it_went_after_it(monkeypatch):
    pty = on_a_pty(monkeypatch)
    console.show("step 1")
    print("a warning of a library's", file=sys.stderr)
    console.show("step 2")
    console.end()
    assert sys.stderr is pty.stream
    print("later", file=sys.stderr)
    assert pty.close() == ["a warning of a library's", "step 2", "later"]


def test_log_messages_come_above_the_live_line(monkeypatch):
    pty = on_a_pty(monkeypatch)
    log = logging.getLogger("another library's")
    log.addHandler(logging.StreamHandler(console.Lines()))
    console.show("step 1")
    log.warning("careful")
    console.end()
    assert pty.close() == ["careful", "step 1"]


def test_the_cursor_is_never_hidden(monkeypatch):
    pty = on_a_pty(monkeypatch)
    console.show("step 1")
    console.end()
    pty.close()
    assert "\x1b[?25l" not in pty.text


def test_a_learning_rate_drop_does_not_run_into_the_live_line(monkeypatch, tmp_path):
    pty = on_a_pty(monkeypatch)
    plateau = {"higher": ("accuracy",), "tolerance": 1, "factor": 0.5, "min_delta": 10.0}
    config = toy.experiment({"run": {"plateau": plateau}})
    runner.run(config, tmp_path / "run", "train_and_eval")
    lines = pty.close()
    drops = [line for line in lines if "learning rate" in line and "now" in line]
    assert drops
    assert all(line.startswith("accuracy ") for line in drops)
    print(*lines, sep="\n")
    live = [line for line in lines if line.startswith("step ")]
    assert len(live) == 1
    assert live[0].count("step ") == 1
    assert lines[-1].startswith(("step ", "evaluated ", "stopped "))


@pytest.mark.parametrize("folder", ["runner", "tasks"])
def test_nobody_else_prints(folder):
    for path in sorted((ROOT / folder).rglob("*.py")):
        if folder == "runner" and str(path.relative_to(ROOT / folder)) in MAY_PRINT:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            where = f"{path}:{getattr(node, 'lineno', 0)}"
            assert not (isinstance(node, ast.Name) and node.id == "print"), where
            is_stream = isinstance(node, ast.Attribute) and node.attr in ("stdout", "stderr")
            assert not (is_stream and ast.unparse(node.value) in ("sys", "tf")), where
