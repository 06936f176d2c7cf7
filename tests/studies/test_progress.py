import json

import terminals
from wording import says

from runner.core import console, layout
from runner.studies import progress, trial


def made(folder, number, step):
    """A trial that runs, and was evaluated at its step."""
    path = folder / layout.TRIALS / f"{number:04}-x"
    facts = {"number": number, "parameters": {"A.rate": 0.01}, "seed": 3, "fold": None}
    trial.write(path, {**facts, "objective": ["accuracy", True]})
    state = {"state": "running", "step": step, "reason": "", "heartbeat": 0, "host": "", "pid": 0}
    (path / layout.STATUS).write_text(json.dumps(state))
    row = {"kind": "evaluation", "step": step, "metrics": {"accuracy": 0.5}, "seconds": 0.1}
    row |= {"time": 0.0, "checkpoint": f"ckpt-{step}"}
    (path / layout.HISTORY).write_text(json.dumps(row) + "\n")
    return trial.read(path)


def shown(folder, screen):
    now = [0.0]
    board = progress.Board(4, screen=screen, clock=lambda: now[0])
    for step in (10, 30):
        board.show([made(folder, 0, step), made(folder, 1, step)], {0: 50, 1: "test"})
        now[0] += 40
    screen.end()


def test_a_terminal_shows_a_table_of_what_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal = terminals.Terminal()
    shown(tmp_path, console.Console(terminal))
    head, first, second, whole = terminal.lines
    assert head.split() == ["trial", "step", "accuracy", "left"]
    assert first.split() == ["0", "rate=0.01,seed=3", "30", "of", "50", "0.5", "0:40"]
    assert second.split() == ["1", "rate=0.01,seed=3", "test"]
    says(whole, "0 4 trials running 1 0.5")


def test_without_a_terminal_there_is_a_line_now_and_then(tmp_path, capsys):
    shown(tmp_path, console.Console())
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" | ")[0] for line in lines] == ["0 of 4 trials"] * 2
