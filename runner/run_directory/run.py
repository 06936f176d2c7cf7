"""Reads the contents of a run's directory. No TensorFlow.

    run = Run("runs/digits")
    run.state                      # State.DONE
    run.best.metrics["accuracy"]
    pandas.DataFrame(run.training)

Each part is read when it is first accessed, and then cached.
"""

import collections
import dataclasses
import functools
import itertools
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from runner.core import files, growing_file, layout, text
from runner.core.spelling import metric_name
from runner.data import windows
from runner.errors import ConfigError, RunnerError
from runner.history import best_evaluation, history, records
from runner.run_directory import claim_file, goodput, params, status, submitted, supervised
from runner.run_directory.params import Values
from runner.run_directory.state import ACTIVE, UNRESPONSIVE_SECONDS, State
from runner.run_directory.status import Status

MARKS = (layout.PARAMS, layout.RUN, layout.STATUS, layout.TRIAL)
"""A directory with any of these files belongs to a run."""

_DAMAGE = (RunnerError, OSError, ValueError, TypeError, KeyError, AttributeError)
_CHECKPOINT = re.compile(rf"{layout.CHECKPOINT_NAME}-(\d+)\.index")
_TASK = re.compile(rb"(?m)^ +task = @(?:\w+/)?([\w.]+)\(")

Part = TypeVar("Part")
Columns = dict[str, list[Any]]


def _part(empty: Any) -> Callable[[Callable[["Run"], Part]], "functools.cached_property[Part]"]:
    """Makes a method a cached part of the directory, with the value `empty` if it is damaged."""

    def made(read: Callable[["Run"], Part]) -> "functools.cached_property[Part]":
        @functools.wraps(read)
        def get(run: "Run") -> Part:
            try:
                return read(run)
            except _DAMAGE as error:
                run.note(read.__name__, error)
                left: Part = empty
                return left

        return functools.cached_property(get)

    return made


class Run:
    """A run, as stored in its directory.

    Args:
        directory: The directory, which must be that of a run.
        strict: Whether reading a damaged file raises a `RunnerError`. Otherwise, the readable parts
            are used, and `problems` lists the errors.

    Attributes:
        directory: The directory.
        name: The name of the run, by default that of its directory.
        damage: The errors found so far, by the name of a part or the path of a file.

    Raises:
        ConfigError: there is no run in the directory.
    """

    def __init__(self, directory: str | Path, *, strict: bool = True) -> None:
        self.directory = Path(directory)
        self.damage: dict[str, str] = {}
        self._strict = strict
        self.name = self.directory.name or str(self.directory)
        if not is_run(self.directory):
            raise ConfigError(f"{self.directory} {_why_not(self.directory)}")

    def __repr__(self) -> str:
        best = f", best {_shown(self.best, self.rule)}" if self.best else ""
        end = f" of {self.train_steps:,}" if self.train_steps else ""
        return f"<Run {str(self.directory)!r}: {self.state} at step {self.step:,}{end}{best}>"

    @property
    def problems(self) -> list[str]:
        """The errors found so far."""
        return list(dict.fromkeys(self.damage.values()))

    def note(self, part: str, error: Exception) -> None:
        """Adds an error in one part to `problems`.

        Raises:
            RunnerError: the run is read strictly.
        """
        if self._strict:
            if isinstance(error, RunnerError | OSError):
                raise error
            raise RunnerError(f"{self.directory} is damaged: {error}") from error
        self.damage[part] = str(error).partition("\n")[0] or type(error).__name__

    @_part(empty=None)
    def status(self) -> Status | None:
        """The last attempt's status.json, or None if there is no such file."""
        return status.read(self.directory)

    @property
    def state(self) -> State:
        """The state of the run."""
        return self._state[0]

    @property
    def reason(self) -> str:
        """Why it is in this state, in a few words. May be empty."""
        return self._state[1]

    @functools.cached_property
    def _state(self) -> tuple[State, str]:
        try:
            seen, failures = self.status, self.failures
        except RunnerError as error:
            return State.DAMAGED, str(error)
        if wrong := self.damage.get("status") or self.damage.get("failures"):
            return State.DAMAGED, wrong
        return state_of(self.directory, seen, failures)

    @functools.cached_property
    def step(self) -> int:
        """The last training step completed, even by a killed run."""
        step = status.last_step(self.directory, self.status)
        if step is None:
            return int(self.newest_rows[-1].get("step", 0)) if self.newest_rows else 0
        return step

    @_part(empty={})
    def params(self) -> Values:
        """The resolved configuration: params.yaml."""
        return params.read(self.directory)

    def param(self, path: str) -> Any:
        """Returns the value at a path such as `trainer.train_steps`, or None."""
        value: Any = self.params
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    @property
    def train_steps(self) -> int | None:
        """The step at which it is to end, or None if that is unknown."""
        steps = self.param("trainer.train_steps")
        return steps if isinstance(steps, int) else None

    @property
    def evaluation_sets(self) -> list[str]:
        """The names of its additional evaluation sets."""
        sets = _list(self.param("run.evaluation_sets"))
        return [str(section.get("name")) for section in sets if isinstance(section, Mapping)]

    @_part(empty="")
    def task(self) -> str:
        """The name of its task's config class, or empty if that is unknown."""
        path = self.directory / layout.GIN
        gin = path.read_bytes() if path.is_file() else b""
        return match[1].decode() if (match := _TASK.search(gin)) else ""

    @_part(empty=())
    def attempts(self) -> Sequence[Mapping[str, Any]]:
        """The attempts to train it, oldest first: the rows of run.json."""
        record = files.read_json(self.directory / layout.RUN)
        if record is None:
            return ()
        rows = record.get("starts") if isinstance(record, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self._no_record
        return rows

    @_part(empty=None)
    def trial(self) -> Mapping[str, Any] | None:
        """The contents of trial.json for a trial of a study, or None for other runs."""
        path = self.directory / layout.TRIAL
        facts = files.read_json(path)
        if not isinstance(facts, dict | None):
            raise RunnerError(f"{path} does not describe a trial; delete it")
        return facts

    @_part(empty=())
    def failures(self) -> Sequence[Mapping[str, Any]]:
        """The failed processes of a trial, oldest first: the rows of attempts.jsonl."""
        path = self.directory / layout.ATTEMPTS
        try:
            rows = files.read_json_lines(path)
        except ValueError as error:
            raise RunnerError(f"{path} is damaged ({error}); delete it") from error
        for row in rows:
            known = isinstance(row, dict) and isinstance(row.get("exit_code"), int)
            if not known or not isinstance(row.get("reason"), str):
                raise RunnerError(f"{path} has a row that is not an attempt; delete it")
        return rows

    @functools.cached_property
    def submission(self) -> submitted.Submission | None:
        """The last job that `--launch` submitted for it, or None if there is none."""
        return submitted.newest(self.directory)

    @functools.cached_property
    def workers(self) -> Mapping[str, Any] | None:
        """The record of its workers, or None if it had no supervisor. See `supervised.read`."""
        return supervised.read(self.directory)

    @functools.cached_property
    def history(self) -> Sequence[records.Record]:
        """Its own evaluations and decisions, oldest first: the rows of history.jsonl."""
        return self._history(self.directory)

    @functools.cached_property
    def evaluators(self) -> Mapping[str, Sequence[records.Record]]:
        """The rows of the evaluators alongside training, by their names."""
        folders = layout.evaluators(self.directory)
        return {layout.evaluator_name(folder): self._history(folder) for folder in folders}

    @functools.cached_property
    def _rows(self) -> Sequence[records.Record]:
        """Its own rows. If it has no evaluations, the rows of its evaluators too, by step."""
        if any(isinstance(row, records.Evaluation) and row.is_own for row in self.history):
            return self.history
        rows = [*self.history, *(row for rows in self.evaluators.values() for row in rows)]
        return sorted(rows, key=lambda row: row.step)

    @functools.cached_property
    def evaluations(self) -> Sequence[records.Evaluation]:
        """Its evaluations, oldest first, or those of its evaluators if it has none."""
        rows = (row for row in self._rows if isinstance(row, records.Evaluation))
        return [row for row in rows if row.is_own]

    @functools.cached_property
    def last(self) -> records.Evaluation | None:
        """Its last evaluation, or None if there is none.

        If the step was evaluated in parts, in several rows, it has the metrics of all of them.
        """
        if not (rows := self.evaluations):
            return None
        at_end = itertools.takewhile(lambda row: row.step == rows[-1].step, reversed(rows))
        metrics = dict(collections.ChainMap(*(dict(row.metrics) for row in at_end)))
        return dataclasses.replace(rows[-1], metrics=metrics)

    @functools.cached_property
    def tests(self) -> Sequence[records.Test]:
        """The final tests of its weights, oldest first."""
        return [row for row in self._rows if isinstance(row, records.Test)]

    @property
    def reading(self) -> windows.Reading:
        """What training reads from its data, after rollbacks and resumes."""
        return history.reading(self.history)

    @property
    def corruptions(self) -> Sequence[records.Corruption]:
        """The steps that gave other bits when they were repeated."""
        return [row for row in self.history if isinstance(row, records.Corruption)]

    @property
    def not_exact(self) -> str:
        """Why the run is not bit-identical to one without interruptions, or ""."""
        return history.reshuffled(self.history)

    @functools.cached_property
    def rule(self) -> best_evaluation.BestRule | None:
        """The rule that selects the best evaluation, or None if no metric is configured."""
        metric = self.param("trainer.best_checkpoint_eval_metric")
        if not metric or not isinstance(metric, str):
            return None
        start = self.param("run.retention.from_step")
        others = {
            name: tuple(map(metric_name, map(str, _list(self.param(f"run.retention.{name}")))))
            for name in ("or_higher", "or_lower")
        }
        return best_evaluation.BestRule(
            metric_name(metric),
            higher=self.param("trainer.best_checkpoint_metric_comp") == "higher",
            from_step=start if isinstance(start, int) else 0,
            **others,
        )

    @functools.cached_property
    def best(self) -> records.Evaluation | None:
        """The best of its evaluations, or None if there is none."""
        return self.rule.best(self.evaluations) if self.rule else None

    @_part(empty={})
    def best_infos(self) -> Mapping[str, Mapping[str, Any]]:
        """The contents of info.json in each directory of best checkpoints, by its name."""
        paths = {path.parent.name: path for path in self.directory.glob(f"*/{layout.INFO}")}
        own = sorted(name for name in paths if not layout.is_evaluator(name))
        return {name: files.read_json(paths[name]) or {} for name in own}

    @functools.cached_property
    def checkpoints(self) -> Mapping[str, int]:
        """The steps of its checkpoints by their names: `ckpt-<step>`, and also `best/ckpt-<step>`.

        A best checkpoint that is a link to another one is left out.
        """
        root = self.directory
        found = {}
        for path in (*root.glob("*.index"), *root.glob(f"{layout.BEST}*/*.index")):
            is_link = path.parent != root and _is_same(path, root / path.name)
            if (match := _CHECKPOINT.fullmatch(path.name)) and not is_link:
                found[path.relative_to(root).with_suffix("").as_posix()] = int(match[1])
        return found

    @functools.cached_property
    def training_rows(self) -> Sequence[Mapping[str, Any]]:
        """The rows of train.jsonl, oldest first."""
        return self._json_lines(layout.TRAINING_ROWS)

    @functools.cached_property
    def training(self) -> Columns:
        """The columns of train.jsonl, of equal length, with None where a row lacks a value.

        `pandas.DataFrame(run.training)` converts them to a table.
        """
        return _columns(self._json_lines(layout.TRAINING_ROWS))

    @functools.cached_property
    def system(self) -> Columns:
        """The columns of system.jsonl, samples of the machine's load, in the same form."""
        return _columns(self._json_lines(layout.SYSTEM_ROWS))

    @_part(empty=())
    def newest_rows(self) -> Sequence[Mapping[str, float]]:
        """The last rows of train.jsonl, at least one if there is any. Fast for long runs."""
        rows = files.last_json_lines(self.directory / layout.TRAINING_ROWS)
        return [{name: float(value) for name, value in row.items()} for row in rows]

    @_part(empty={})
    def overview(self) -> Mapping[str, Any]:
        """The parameters and FLOPs of the model: overview.json."""
        found = files.read_json(self.directory / layout.OVERVIEW)
        return found if isinstance(found, dict) else {}

    @_part(empty=goodput.Ledger((), {}))
    def time(self) -> goodput.Ledger:
        """The breakdown of its time, over all attempts."""
        powers = goodput.powers(self.directory / layout.SYSTEM_ROWS)
        try:
            return goodput.of(self.attempts, self.status, powers)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._no_record from error

    def follow(self, name: str) -> growing_file.GrowingFile:
        """Opens train.jsonl or system.jsonl to read it while it grows."""
        return growing_file.GrowingFile(self.directory / name)

    def load_model(self, checkpoint: str | int = "", *, model: Any = None) -> Any:
        """Builds the compiled model with the weights that evaluations use. Imports TensorFlow.

        Args:
            checkpoint: `best`, `latest`, a step or a path. If empty, the best checkpoint, or the
                latest if the run keeps no best.
            model: See `runner.load_model`.

        Raises:
            ConfigError: there is no such checkpoint.
        """
        from runner.checkpoints import load_model

        return load_model.load(self.directory, checkpoint, model)

    @property
    def _no_record(self) -> RunnerError:
        path = self.directory / layout.RUN
        return RunnerError(f"{path} is not the record of a run: repair it or delete it")

    def _history(self, folder: Path) -> Sequence[records.Record]:
        path = folder / layout.HISTORY
        try:
            return history.read(path)
        except _DAMAGE as error:
            self.note(str(path), error)
        parsed = (_parsed(records.parse, row) for row in _readable(path))
        return [row for row in parsed if row is not None]

    def _json_lines(self, name: str) -> Sequence[Mapping[str, Any]]:
        path = self.directory / name
        try:
            return files.read_json_lines(path)
        except ValueError as error:
            self.note(str(path), RunnerError(f"{error}: repair or delete the line"))
        except OSError as error:
            self.note(str(path), error)
        return _readable(path)


def has_begun(directory: Path) -> bool:
    """Returns whether a run has started in a directory."""
    return any(layout.has(directory, name) for name in (layout.RUN, layout.STATUS, layout.HISTORY))


def is_run(directory: Path) -> bool:
    """Returns whether a run has started in a directory, or is about to."""
    is_marked = any(layout.has(directory, name) for name in MARKS)
    return is_marked or has_begun(directory) or submitted.is_all(directory)


def _why_not(directory: Path) -> str:
    if wrong := layout.no_directory(directory):
        return wrong
    below = sorted(path for path in directory.iterdir() if path.is_dir() and is_run(path))
    trials = layout.trials(directory)
    runs = trials or below
    what = "is a study, with the trials" if trials else "has no run; the runs in it are"
    return f"{what} {text.some(list(map(str, runs)))}" if runs else "has no run"


def state_of(
    directory: Path, seen: Status | None, failures: Sequence[Mapping[str, Any]]
) -> tuple[State, str]:
    """Returns the state of a run, and the reason.

    Args:
        directory: The run's directory.
        seen: The contents of its status.json.
        failures: See `Run.failures`.
    """
    state, reason = _state_of(directory, seen, failures)
    job = None if state in ACTIVE else submitted.newest(directory)
    if job and not (seen and job.has_begun):
        reason = str(job)
    return state, reason


def _state_of(
    directory: Path, seen: Status | None, failures: Sequence[Mapping[str, Any]]
) -> tuple[State, str]:
    code, why = (failures[-1]["exit_code"], failures[-1]["reason"]) if failures else (0, "")
    if code == ConfigError.exit_code:
        return State.REJECTED, why
    if is_held(directory):
        return _of_a_process(directory)
    if seen is None:
        return (State.FAILED, why) if failures else (State.PENDING, "")
    if seen.ended:
        return seen.outcome, seen.reason
    if code == RunnerError.exit_code:
        return State.FAILED, why
    return State.PREEMPTED, "ended without recording a status"


def run_in(directory: Path) -> Run | None:
    """Returns the run in a directory, or None if there is none yet."""
    return Run(directory) if is_run(directory) else None


def reached(directory: Path) -> int:
    """Returns the last training step completed in a directory, or 0 without a run."""
    return Run(directory, strict=False).step if is_run(directory) else 0


def is_held(directory: Path) -> bool:
    """Returns whether a process writes there, as far as this machine can tell."""
    held = layout.has(directory, layout.CLAIM)
    return held and not claim_file.abandoned(directory / layout.CLAIM)


def _of_a_process(directory: Path) -> tuple[State, str]:
    """Returns whether the process responds, as far as one look at its lock can tell.

    The lock's time comes from the file server's clock. `pulse` looks twice and needs no clock.
    """
    lock = claim_file.look(directory / layout.CLAIM)
    quiet = time.time() - lock.heartbeat if lock else 0.0
    if quiet > UNRESPONSIVE_SECONDS:
        return State.UNRESPONSIVE, f"no heartbeat for {text.duration(quiet)}"
    return State.RUNNING, ""


def _shown(row: records.Evaluation, rule: best_evaluation.BestRule | None) -> str:
    names = rule.names[:1] if rule else ()
    values = [f"{name} {row.metrics[name]:.4g}" for name in names if name in row.metrics]
    return f"{', '.join(values)} at step {row.step:,}".strip()


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _parsed(parse: Callable[[Any], Part], value: Any) -> Part | None:
    """Parses a value, or returns None if that fails."""
    try:
        return parse(value)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _readable(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a damaged JSON lines file that can be read."""
    try:
        rows = (_parsed(files.loads, line) for line in path.read_bytes().splitlines())
    except OSError:
        return []
    return [row for row in rows if isinstance(row, dict)]


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except FileNotFoundError:
        return False


def _columns(rows: Iterable[Any]) -> Columns:
    rows = [row for row in rows if isinstance(row, dict) and isinstance(row.get("step"), int)]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: _numbers([row.get(name) for row in rows]) for name in names}
    return {**columns, "step": [row["step"] for row in rows]} if rows else {}


def _numbers(values: list[Any]) -> list[float | None]:
    are_numbers = {*map(type, values)} <= {float, int}
    return list(map(float if are_numbers else _number, values))


def _number(value: Any) -> float | None:
    """Returns a float, or NaN for a value that is not a number. None stays None."""
    if value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
