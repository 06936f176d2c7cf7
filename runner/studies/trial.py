"""A trial of a study: one run, as described by its directory. No TensorFlow.

`trial.json` identifies the trial and is written before the trial starts. The rest is derived from
the files that every run has.
"""

import contextlib
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner.core import files, layout
from runner.errors import RunnerError
from runner.history import best_evaluation, records
from runner.run_directory import status
from runner.run_directory.run import Run
from runner.run_directory.state import State
from runner.studies import goals, space

MOST_KILLS = 10
"""A trial is given up after this many kills without progress."""


class Objective(NamedTuple):
    """The metric by which the trials of a study are compared.

    Attributes:
        metric: Its name, or empty if no metric decides.
        higher: Whether higher is better.
    """

    metric: str = ""
    higher: bool = True

    def worse(self, value: float) -> float:
        """Returns `value` with its sign flipped if needed, so that lower is better."""
        return -value if self.higher else value


class Lineage(NamedTuple):
    """The checkpoint that a member of a population continued from. See `population`.

    Attributes:
        member: The number of the trial that the member started as.
        generation: The generation at whose end it was copied, from 0.
        parent: The number of the trial that was copied.
        step: The step of its checkpoint.
    """

    member: int
    generation: int
    parent: int
    step: int


@dataclasses.dataclass(frozen=True)
class Trial:
    """One run of a study.

    Attributes:
        number: Its number in the study, from 0.
        folder: Its run's directory.
        parameters: The varying parameters: names as for `--gin`, and values. A reference is its
            text.
        seed: `RunConfig.seed`.
        fold: The fold that is held out, or None without folds.
        state: Its state. A `paused` trial waits to be promoted. A `failed` trial ended with exit
            code 1, a `refused` one with exit code 2.
        step: The last completed training step.
        best: Metrics at the best evaluation, and the measures of exported models (`goals`).
            Empty if there is none.
        last: Metrics at the last evaluation.
        reason: Why it ended that way, in a few words.
        evaluations: All of them: step and metrics, oldest first.
        test: Metrics of the newest test of the best weights, else of the last weights, or empty
            without a test.
        tests: How many such tests there were.
        objective: The metric that determines `best`.
        failures: How often it has ended with exit code 1.
        kills: How often it was killed before it made progress.
        lineage: The trial that it is a copy of, up to a step, or None if it started from scratch.
        data: A digest of each data file or directory that it was last trained with, by its name in
            the configuration.
        more: The other contents of trial.json.
    """

    number: int
    folder: Path
    parameters: Mapping[str, Any]
    seed: int
    fold: int | None
    state: State
    step: int = 0
    best: Mapping[str, float] = dataclasses.field(default_factory=dict)
    last: Mapping[str, float] = dataclasses.field(default_factory=dict)
    reason: str = ""
    evaluations: Sequence[tuple[int, Mapping[str, float]]] = ()
    test: Mapping[str, float] = dataclasses.field(default_factory=dict)
    tests: int = 0
    objective: Objective = Objective()  # noqa: RUF009, immutable
    failures: int = 0
    kills: int = 0
    lineage: Lineage | None = None
    data: Mapping[str, str] = dataclasses.field(default_factory=dict)
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def key(self) -> str:
        """The identity of the trial: trials with equal keys are the same."""
        return key(self.parameters, self.seed, self.fold, self.lineage)

    @property
    def described(self) -> str:
        """The varying values in a few words."""
        return described(self.parameters, self.seed, self.fold)

    @property
    def configuration(self) -> str:
        """Identifies the trials that differ only by seed and fold."""
        return configuration(self.parameters, self.lineage)


def configuration(parameters: Mapping[str, Any], lineage: Sequence[int] | None = None) -> str:
    """Returns the identity of a configuration with these parameters."""
    return json.dumps([parameters, lineage] if lineage else parameters, sort_keys=True)


def key(
    parameters: Mapping[str, Any],
    seed: int,
    fold: int | None,
    lineage: Sequence[int] | None = None,
) -> str:
    """Returns the key of the trial with these values."""
    return json.dumps([parameters, seed, fold, *(lineage or ())], sort_keys=True)


def described(parameters: Mapping[str, Any], seed: int, fold: int | None) -> str:
    """Returns a short text such as `initial_learning_rate=0.01,seed=0`."""
    held_out = f"fold={fold}" if fold is not None else ""
    return ",".join(filter(None, [space.described(parameters), f"seed={seed}", held_out]))


def has_failed(one: Trial) -> bool:
    """Returns whether a trial ended with an error, so that its results do not count."""
    return one.state in (State.FAILED, State.REJECTED)


def worth(one: Trial) -> float | None:
    """Returns a trial's best value, where lower is better, or None if unknown.

    A diverged trial and a NaN are infinite, the worst value. That of a failed trial is unknown,
    even if it was evaluated before.
    """
    if has_failed(one):
        return None
    if one.state == State.DIVERGED:
        return math.inf
    name = one.objective.metric
    value = one.best.get(name, one.last.get(name))
    if value is None:
        return None
    return math.inf if math.isnan(value) else one.objective.worse(value)


def write(folder: Path, facts: Mapping[str, Any]) -> None:
    """Writes trial.json unless it exists."""
    if not (folder / layout.TRIAL).exists():
        files.write_json(folder / layout.TRIAL, facts)


def note(folder: Path, code: int, reason: str, host: str) -> None:
    """Records that the trial's process ended with an exit code that is a failure."""
    row = {"exit_code": code, "reason": reason, "host": host}
    files.append_json_line(folder / layout.ATTEMPTS, row)


def read(folder: Path) -> Trial:
    """Reads the trial in a directory.

    Raises:
        RunnerError: its files are damaged, or it is not a trial.
    """
    run = Run(folder)
    run.status = status.before(folder, lambda _: None)  # training rewrites a damaged one
    facts: Any = run.trial
    try:
        number, parameters, seed = facts["number"], facts["parameters"], facts["seed"]
        fold, objective = facts.get("fold"), Objective(*facts.get("objective") or ())
        lineage = Lineage(*facts["lineage"]) if facts.get("lineage") else None
        if not isinstance(parameters, dict) or {type(number), type(seed)} != {int}:
            raise TypeError("a number or the parameters have the wrong type")
        if not isinstance(fold, int | None):
            raise TypeError("the fold is not a number")
    except (AttributeError, KeyError, TypeError) as error:
        raise RunnerError(
            f"{folder / layout.TRIAL} does not describe a trial; delete it"
        ) from error
    own, tests = run.evaluations, _tests(run)
    rule = best_evaluation.BestRule(*objective) if objective.metric else None
    best = rule.best(own) if rule else None
    return Trial(
        number=number,
        folder=folder,
        parameters=parameters,
        seed=seed,
        fold=fold,
        state=run.state,
        step=run.step,
        best={**best.metrics, **goals.measures(folder)} if best else {},
        last=run.last.metrics if run.last else {},
        reason=run.reason,
        evaluations=tuple((row.step, row.metrics) for row in own),
        test=tests[-1].metrics if tests else {},
        tests=len(tests),
        objective=objective,
        failures=sum(row["exit_code"] == RunnerError.exit_code for row in run.failures),
        kills=sum(row["exit_code"] < 0 for row in run.failures),
        lineage=lineage,
        data=_data(run),
        more={name: facts[name] for name in facts.keys() - _FACTS},
    )


def _data(run: Run) -> dict[str, str]:
    with contextlib.suppress(OSError, RunnerError, AttributeError, KeyError, TypeError):  # damaged
        if run.attempts:
            known = run.attempts[-1].get("data") or {}
            return {name: facts["digest"] for name, facts in known.items()}
    return {}


_FACTS = {"number", "parameters", "seed", "fold", "objective", "lineage"}


def all_of(study: Path) -> list[Trial]:
    """Returns the trials of a study, by number.

    Raises:
        RunnerError: files of a trial are damaged.
    """
    found = [read(each) for each in layout.trials(study) if (each / layout.TRIAL).exists()]
    return sorted(found, key=lambda each: each.number)


def _tests(run: Run) -> list[records.Test]:
    """Returns the tests by the run itself and by its evaluators. See `Trial.test`."""
    rows = (row for rows in (run.history, *run.evaluators.values()) for row in rows)
    tests = [row for row in rows if isinstance(row, records.Test)]
    return [row for row in tests if row.weights == "best"] or tests
