"""Notifies a webhook or a command when a run ends or improves.

A separate process sends each message, and gives up after some seconds. Training does not wait for
it, and a run that ends waits at most that long. The process outlives a run that is killed, so that
the message still arrives. Failures are recorded in notify.log.
"""

import contextlib
import json
import os
import re
import socket
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Self

from runner.core import layout
from runner.core.child import Child, Tie
from runner.errors import ConfigError
from runner.history import best_evaluation, history, records
from runner.reporting import progress
from runner.run_directory import status
from runner.storage import display_names

SECONDS = 10.0
"""The time limit of a message, in seconds."""

_SENDER = "runner.runs.sender"
_NAME = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


class Notifier:
    """Notifies a webhook or a command about a run.

        with Notifier("https://...", ("failed", "best"), folder) as told:
            ...
            told.tell("done", "1,000 steps", step=1000)

    An error that ends the block is reported with the state that it causes.

    Args:
        target: A URL, `$NAME` for one in the environment, or a shell command. If it is empty, no
            message is sent.
        events: The events to notify about.
        folder: The run's directory.
        seconds: The time limit of a message.

    Raises:
        ConfigError: `target` names a variable that the environment does not have.
    """

    def __init__(
        self, target: str, events: Collection[str], folder: Path, *, seconds: float = SECONDS
    ) -> None:
        self._target = _resolved(target)
        self._events = events if target else ()
        self._folder = folder
        self._seconds = seconds
        self._senders: list[Child] = []
        self._best = 0  # the step of the best evaluation reported so far

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self.tell(status.after(error), str(error))
        for sender in self._senders:
            sender.end(self._seconds + 1)  # it should end by itself before

    def tell(self, event: str, said: str, **facts: Any) -> None:
        """Sends a message without waiting.

        Args:
            event: `best`, or the state in which the run ended.
            said: A short description of the event.
            facts: Additional facts for the message's JSON.
        """
        if event not in self._events:
            return
        first = said.strip().partition("\n")[0]
        message = {
            "text": f"{display_names.of(self._folder)}: {event}" + (f", {first}" if first else ""),
            "event": event,
            "run": display_names.of(self._folder.absolute()),
            "host": socket.gethostname(),
            **facts,
        }
        log = self._folder / layout.NOTIFY_LOG if self._folder.is_dir() else None
        job = {"target": self._target, "message": message, "log": log and str(log)}
        with contextlib.suppress(OSError):  # the run does not depend on the message
            self._send(json.dumps(job))

    def _send(self, job: str) -> None:
        command = [sys.executable, "-m", _SENDER, str(self._seconds)]
        sender = Child(command, tie=Tie.DETACHED, message=job.encode())
        self._senders = [*(other for other in self._senders if other.code is None), sender]

    def ended(self, results: Mapping[str, Any]) -> None:
        """Sends the results of a run that has ended as its own message."""
        said = results.get("reason") or f"{results['step']:,} steps"
        if metrics := results["metrics"]:
            said += f": {progress.values(metrics)}"
        self.tell(results["status"], said, **results)

    def when_best(
        self, rule: best_evaluation.BestRule | None, rows: Callable[[], history.History]
    ) -> Callable[[Mapping[str, Any]], None]:
        """Returns an action for evaluations that reports one that is better than all before it."""

        def action(_: Mapping[str, Any]) -> None:
            newest = rows().evaluations[-1]
            if rule is None or newest.step == self._best or rule.best(rows().evaluations) != newest:
                return
            self._best = newest.step
            values = {each: newest.metrics[each] for each in rule.names if each in newest.metrics}
            said = f"step {newest.step:,}: {progress.values(values)}"
            self.tell("best", said, step=newest.step, metrics=records.plain(newest.metrics))

        return action


def _resolved(target: str) -> str:
    """Returns the target, with a variable replaced by its value.

    Raises:
        ConfigError: the environment has no variable of that name.
    """
    named = _NAME.fullmatch(target.strip())
    if not named:
        return target
    name = named[1] or named[2]
    if not os.environ.get(name):
        raise ConfigError(f"RunConfig.notify = {target!r}: the environment has no {name}")
    return os.environ[name]
