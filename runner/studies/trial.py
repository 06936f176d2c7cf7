"""A trial of a study: one run, and what its folder says about it. No TensorFlow.

`trial.json` says what it is, and is there before it starts. All else follows from the files that
every run has.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner.core import files, layout
from runner.errors import RunnerError
from runner.history import best_evaluation, records
from runner.run_folder import status
from runner.run_folder.run import Run
from runner.run_folder.state import State
from runner.studies import space

MOST_KILLS = 10
"""A trial that is killed this often before it comes any further is given up."""


class Objective(NamedTuple):
    """What the trials of a study are compared by.

    Attributes:
        metric: Its name; empty if nothing decides.
        higher: Whether higher is better.
    """

    metric: str = ""
    higher: bool = True

    def worse(self, value: float) -> float:
        """`value` as one of which lower is better."""
        return -value if self.higher else value


class Lineage(NamedTuple):
    """Which trial's checkpoint a member of a population went on from, see `population`.

    Attributes:
        member: The number of the trial that the member began as.
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
        folder: Its run's folder.
        parameters: What varies: names as for `--gin`, and values; of a reference, its text.
        seed: `RunConfig.seed`.
        fold: Which fold is held out; None where there are no folds.
        state: Its state. A `paused` one waits to be promoted; `failed` and `refused` ended with
            exit code 1 and 2.
        step: The last training step done.
        best: Metrics at the best evaluation; empty where there is none.
        last: Metrics at the last evaluation.
        reason: Why it ended that way, in a few words.
        evaluations: All of them: step and metrics, oldest first.
        test: Metrics of the newest test of the best weights, or where there are none of the last
            ones; empty where nothing was tested.
        tests: How many such tests there were.
        objective: What `best` follows from.
        failures: How often it has ended with exit code 1.
        kills: How often it was killed before it had come any further.
        lineage: Which trial it is a copy of, up to a step; None: it began anew.
        more: What else trial.json says.
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
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def key(self) -> str:
        """What makes it this trial: two with the same are one."""
        return key(self.parameters, self.seed, self.fold, self.lineage)

    @property
    def described(self) -> str:
        """What varies, in a few words."""
        return described(self.parameters, self.seed, self.fold)

    @property
    def configuration(self) -> str:
        """What it shares with the trials that differ only by seed and fold."""
        return configuration(self.parameters, self.lineage)


def configuration(parameters: Mapping[str, Any], lineage: Sequence[int] | None = None) -> str:
    """What trials with these parameters share."""
    return json.dumps([parameters, lineage] if lineage else parameters, sort_keys=True)


def key(
    parameters: Mapping[str, Any],
    seed: int,
    fold: int | None,
    lineage: Sequence[int] | None = None,
) -> str:
    """The key of the trial with these."""
    return json.dumps([parameters, seed, fold, *(lineage or ())], sort_keys=True)


def described(parameters: Mapping[str, Any], seed: int, fold: int | None) -> str:
    """`initial_learning_rate=0.01,seed=0`."""
    held_out = f"fold={fold}" if fold is not None else ""
    return ",".join(filter(None, [space.described(parameters), f"seed={seed}", held_out]))


def write(folder: Path, facts: Mapping[str, Any]) -> None:
    """Writes trial.json, unless it is there."""
    if not (folder / layout.TRIAL).exists():
        files.write_json(folder / layout.TRIAL, facts)


def note(folder: Path, code: int, reason: str, host: str) -> None:
    """Notes that the trial's process ended with an exit code that counts as a failure."""
    row = {"exit_code": code, "reason": reason, "host": host}
    files.append_json_line(folder / layout.ATTEMPTS, row)


def read(folder: Path) -> Trial:
    """The trial in a folder.

    Raises:
        RunnerError: its files are damaged, or it is no trial.
    """
    run = Run(folder)
    run.status = status.before(folder, lambda _: None)  # training writes a damaged one anew
    facts: Any = run.trial
    try:
        number, parameters, seed = facts["number"], facts["parameters"], facts["seed"]
        fold, objective = facts.get("fold"), Objective(*facts.get("objective") or ())
        lineage = Lineage(*facts["lineage"]) if facts.get("lineage") else None
        if not isinstance(parameters, dict) or {type(number), type(seed)} != {int}:
            raise TypeError("a number, or what varies, is of another kind")
        if not isinstance(fold, int | None):
            raise TypeError("the fold is no number")
    except (AttributeError, KeyError, TypeError) as error:
        raise RunnerError(
            f"{folder / layout.TRIAL} does not describe a trial: remove it"
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
        best=best.metrics if best else {},
        last=own[-1].metrics if own else {},
        reason=run.reason,
        evaluations=tuple((row.step, row.metrics) for row in own),
        test=tests[-1].metrics if tests else {},
        tests=len(tests),
        objective=objective,
        failures=sum(row["exit_code"] == RunnerError.exit_code for row in run.failures),
        kills=sum(row["exit_code"] < 0 for row in run.failures),
        lineage=lineage,
        more={name: facts[name] for name in facts.keys() - _FACTS},
    )


_FACTS = {"number", "parameters", "seed", "fold", "objective", "lineage"}


def all_of(study: Path) -> list[Trial]:
    """The trials of a study, by number.

    Raises:
        RunnerError: files of a trial are damaged.
    """
    found = [read(each) for each in layout.trials(study) if (each / layout.TRIAL).exists()]
    return sorted(found, key=lambda each: each.number)


def _tests(run: Run) -> list[records.Test]:
    """What the run itself has tested, and what evaluators have; see `Trial.test`."""
    rows = (row for rows in (run.history, *run.evaluators.values()) for row in rows)
    tests = [row for row in rows if isinstance(row, records.Test)]
    return [row for row in tests if row.weights == "best"] or tests
