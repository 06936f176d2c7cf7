"""Connects the workers of a run, from the rendezvous to their common end."""

import contextlib
import dataclasses
import hashlib
import json
import os
import platform
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from runner.config import Experiment
from runner.configuration import printing
from runner.core import console, layout, signals, user_code
from runner.devices import meeting, strategy, team
from runner.devices.cluster import Cluster
from runner.errors import ConfigError, DivergedError, RunnerError
from runner.evaluation import weight_mean
from runner.internals import tensorflow as tf_internals
from runner.run_directory import data_files, provenance
from runner.runs import build
from runner.runs.call import Call
from runner.storage import display_names

_OWN = ("runtime.worker_hosts", "runtime.task_index", "run.workers_timeout")  # may differ
_TAKEN_SECONDS, _TAKEN_LOOKS = 2.0, 3  # TensorFlow polls every second, or later on a busy machine
_ENDS = {2: ConfigError, 3: DivergedError}  # by exit code


class GoneError(RunnerError):
    """Other workers of the run, by name, have gone."""

    def __init__(self, names: Sequence[str]) -> None:
        who = " and ".join(names) or "a worker"
        has = "have" if len(names) > 1 else "has"
        super().__init__(
            f"{who} {has} gone or cannot be reached; rerun the command on all workers to continue "
            "from the newest checkpoint"
        )


@contextlib.contextmanager
def joined(call: Call, *, takes_mean: bool = False) -> Iterator[Call]:
    """Connects this process with the other workers of its run, if any, within the block.

    Their worker group is then the current one, and the call has their strategy.

    Args:
        call: The call of the mode.
        takes_mean: Whether a mean of weights is evaluated.

    Raises:
        ConfigError: the workers do not belong together.
        RunnerError: a worker never joined, or has gone.
    """
    devices = call.given.strategy
    own = strategy.connected(devices) if devices else strategy.workers(call.config.runtime)
    if own is None or team.current().size > 1:
        yield call
        return
    _check_alone(call, own, takes_mean=takes_mean)
    with contextlib.ExitStack() as stack:
        with call.stop.deferred():  # a signal must reach the others at any time
            if devices is None:
                mates = _formed(call, own)
            else:
                mates = _connected(call, own, devices)
            stack.enter_context(_quiet(call.model_dir, own))
            stack.enter_context(team.formed(mates))
            stack.enter_context(_ending(mates, call.stop))
            stack.enter_context(plainly(call.stop))
        if own.is_chief:
            call.stop.check()  # the chief learns of a signal to another worker, as in training
        yield dataclasses.replace(call, given=call.given._replace(strategy=mates.strategy))


@contextlib.contextmanager
def plainly(stop: signals.Stop) -> Iterator[None]:
    """Translates an error caused by a lost worker into a clear one, within the block."""
    try:
        yield
    except (tf.errors.OpError, RunnerError) as error:
        lost = error.__cause__ if isinstance(error, RunnerError) else error  # as when saving
        if team.current().size == 1 or lost is None or not tf_internals.has_lost_worker(lost):
            raise
        if stop.number and team.current().follows:  # all got it, the chief ended first
            raise signals.Interrupted(stop.number, saved=False) from error
        raise GoneError(_names(lost)) from error


def as_chief(facts: Mapping[str, Any]) -> None:
    """Raises the error that has ended the chief. Returns if the chief has finished."""
    code = int(facts["code"])
    if code > 128:
        raise signals.Interrupted(code - 128, saved=facts["saved"])
    if code:
        raise _ENDS.get(code, RunnerError)(f"worker 0 has ended: {facts['said']}")


def _connected(call: Call, own: Cluster, devices: tf.distribute.Strategy) -> team.Team:
    """Returns the worker group of the caller's connected strategy, once the workers agree."""
    console.say(f"{own}: connected by the caller's strategy")
    mates = team.Team(own, devices, on_stop=call.stop.hear)
    with team.formed(mates), plainly(call.stop):
        _compare(mates, _facts(call.config, call.mode))
    _hear_taken_later(own, call.stop)
    return mates


def _compare(mates: team.Team, facts: meeting.Facts) -> None:
    """Compares the settings that all workers must share, over the strategy's collectives.

    Raises:
        ConfigError: a worker differs from the chief. All workers raise the same error.
    """
    chief = json.loads(mates.said_by(0, json.dumps(facts).encode()))
    own = meeting.difference(mates.cluster, mates.index, chief, facts)
    for index in range(1, mates.size):
        if said := mates.said_by(index, own.encode()):
            raise ConfigError(said.decode())


def _formed(call: Call, own: Cluster) -> team.Team:
    """Returns the worker group, once all workers are present and connected."""
    config, seconds = call.config, call.config.run.workers_timeout
    console.say(f"{own}: waiting for the other workers")
    facts, stop = _facts(config, call.mode), call.stop

    def check() -> None:
        stop.check(saved=False)

    def serve() -> None:
        stop.serve_again()  # TensorFlow handles SIGTERM itself while it connects
        check()

    with meeting.met(own, facts, seconds=seconds, check=check) as lines:
        build.prepare(config)
        devices = strategy.build_together(config.runtime, own, lines, seconds=seconds, serve=serve)
    _hear_taken_later(own, stop)
    return team.Team(own, devices, on_stop=call.stop.hear)


def _check_alone(call: Call, own: Cluster, *, takes_mean: bool) -> None:
    """Raises ConfigError if the call needs a feature that only a single process has."""
    config = call.config
    if getattr(config.task, "pruning", None):
        raise ConfigError(f"task.pruning works in only one process, but this is {own}")
    if weight_mean.is_wanted(config) or takes_mean:
        raise ConfigError(f"a mean of weights needs one process, but this is {own}")


def _hear_taken_later(own: Cluster, stop: signals.Stop) -> None:
    """Starts a thread in the chief that detects a SIGTERM which TensorFlow has taken."""
    if own.is_chief:
        threading.Thread(target=_hear_taken, args=[stop], daemon=True).start()


def _hear_taken(stop: signals.Stop) -> None:
    """Handles a SIGTERM to any worker that TensorFlow took while it connected."""
    for _ in range(_TAKEN_LOOKS):
        time.sleep(_TAKEN_SECONDS)
        if tf_internals.has_taken_sigterm():
            stop.hear(signal.SIGTERM)
            return


@contextlib.contextmanager
def _ending(mates: team.Team, stop: signals.Stop) -> Iterator[None]:
    """Ends the other workers when the chief's block ends."""
    if mates.follows:
        yield
        return
    try:
        yield
    except GoneError:
        raise  # no worker listens
    except BaseException as error:
        saved = getattr(error, "saved", False)
        facts = {
            "code": getattr(error, "exit_code", RunnerError.exit_code),
            "said": user_code.summary(error),
            "saved": saved,
            "step": stop.step,
        }
        mates.end(facts, orderly=saved)
        raise
    mates.end({"code": 0, "said": "done"}, orderly=True)


def _facts(config: Experiment, mode: str) -> meeting.Facts:
    """Returns the settings that all workers must share. Values are digests, as some are secret."""
    values = printing.plain(config)
    return {
        "flags": {"--mode": mode},
        "versions": {"python": platform.python_version(), **provenance.versions()},
        "code": {**provenance.sources(), "git commit": provenance.commit(Path.cwd())},
        "configuration": dict(_digests(values)),
        "data": {name: str(facts) for name, facts in data_files.fingerprints(values).items()},
    }


def _digests(values: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields a digest of each single value, by its path."""
    if isinstance(values, Mapping):
        for name, value in values.items():
            yield from _digests(value, f"{path}.{name}" if path else str(name))
    elif path not in _OWN:
        yield path, hashlib.sha256(repr(values).encode()).hexdigest()[:16]


@contextlib.contextmanager
def _quiet(model_dir: Path, own: Cluster) -> Iterator[None]:
    """Redirects the output of a worker other than the chief to a file within the block."""
    if own.is_chief:
        yield
        return
    path = model_dir / layout.WORKERS / f"{own.index}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    console.say(f"{own}: logging to {display_names.of(path)}")
    kept = [(number, os.dup(number)) for number in (1, 2)]
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        _redirect({number: file for number, _ in kept})
        yield
    finally:
        _redirect(dict(kept))
        for descriptor in (file, *(copy for _, copy in kept)):
            os.close(descriptor)


def _redirect(targets: Mapping[int, int]) -> None:
    console.flush()
    for number, target in targets.items():
        os.dup2(target, number)


def _names(lost: tf.errors.OpError) -> list[str]:
    """Returns the workers that a TensorFlow error names, other than this one."""
    own = team.current().cluster
    others = tf_internals.lost_workers(lost) - {own.index}
    return [own.name(number) for number in sorted(others) if number < own.size]
