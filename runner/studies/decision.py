"""`--mode=decide`: whether a candidate is better than a baseline, with as few seeds as needed.

    runner --mode=decide digits.gin wide.gin --model_dir=decisions/digits

The directory holds a series of decisions. All trials are in it, and a later decision reuses those
of its configurations. Rerun the command to continue.
"""

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner import config, run_config
from runner.configuration import printing
from runner.core import console, files, layout, spelling, text
from runner.errors import ConfigError, RunnerError, VerdictError
from runner.run_directory import begun, data_files, leftovers, session
from runner.run_directory.run import has_begun
from runner.run_directory.state import State
from runner.runs.call import Call
from runner.studies import places, plan, race, series, space, study, trial
from runner.studies.sequential import Judgement, Verdict

_SIDES = ("baseline", "candidate")


class Rules(NamedTuple):
    """How to decide.

    Attributes:
        seeds: The maximum number of seeds.
        margin: As for `race.Race`.
        level: The error budget of all decisions in the directory.
        jobs: As for `StudyConfig`.
    """

    seeds: int
    margin: float
    level: float
    jobs: int


class Side(NamedTuple):
    """One of the two configurations.

    Attributes:
        given: The argument that names it.
        name: Its name in the series, which ends in a digest of its values and data files.
        experiment: Its experiment.
        gin: Its text in gin.
    """

    given: str
    name: str
    experiment: config.Experiment
    gin: str


def decide(
    call: Call, given: Sequence[str], bindings: Sequence[str], rules: Rules, *, dry_run: bool
) -> dict[str, Any]:
    """Trains both configurations with the same seeds until their difference is decided.

    Args:
        call: The mode's arguments, without a configuration.
        given: A gin file, or the directory of a run, for the baseline and for the candidate.
        bindings: Gin bindings for both.
        rules: How to decide.
        dry_run: Whether to only check both configurations.

    Returns:
        The results for JSON, if the candidate is better.

    Raises:
        ConfigError: the configurations cannot be compared.
        VerdictError: the candidate is not better.
        signals.Interrupted: a signal arrived, and every trial has saved its state.
    """
    folder = call.model_dir
    if has_begun(folder):
        raise ConfigError(f"--model_dir={folder} is the directory of a run; choose another one")
    console.announce("loading TensorFlow ...")
    sides = [_load(each, bindings) for each in given]
    call = dataclasses.replace(call, config=sides[0].experiment, arguments=[])
    objective = _objective(sides)
    if dry_run:
        return {"status": "rehearsed", "model_dir": str(folder)}
    files.make_folder(folder / layout.TRIALS)
    leftovers.clear(folder, shared=True)
    question = series.Question(sides[0].name, sides[1].name, rules.seeds, rules.margin)
    row = series.begin(folder, question, rules.level)
    if not row["results"]:
        found = _train(call, sides, objective, rules, row["level"])
        results = _results(found, sides, objective, row)
        series.end(folder, row["number"], results)
        row = {**row, "results": results}
    results = {**row["results"], "model_dir": str(folder)}
    if results["status"] != Verdict.BETTER:
        raise VerdictError(results["in_words"], results, Verdict(results["status"]))
    console.say(results["in_words"])
    return results


def _load(given: str, bindings: Sequence[str]) -> Side:
    """Loads a configuration.

    Raises:
        ConfigError: it is not valid, or cannot be written as a gin file.
    """
    if Path(given).is_dir() and not begun.configuration(given):
        raise ConfigError(f"{given} has no {layout.GIN}: pass a gin file or the directory of a run")
    sources = begun.configuration(given) if Path(given).is_dir() else [given]
    experiment = config.load(sources, bindings, trains=True, evaluates=True)
    texts = session.Configuration.of(experiment)
    if texts.gin is None:
        raise ConfigError(f"{given} cannot be stored as a gin file: {texts.why_not}")
    stem = re.sub(r"[^\w.-]+", "_", Path(given).resolve().name.removesuffix(".gin"))
    data = data_files.fingerprints(printing.plain(experiment))
    values = [texts.params, *sorted(facts["digest"] for facts in data.values())]
    digest = hashlib.sha256("".join(values).encode()).hexdigest()[:6]
    return Side(given, f"{stem}-{digest}", experiment, texts.gin)


def _objective(sides: Sequence[Side]) -> trial.Objective:
    """Returns the metric that decides.

    Raises:
        ConfigError: there is none, or the configurations are equal or use different ones.
    """
    trainers = [each.experiment.trainer for each in sides]
    found = [
        trial.Objective(
            spelling.metric_name(each.best_checkpoint_eval_metric or ""),
            each.best_checkpoint_metric_comp == "higher",
        )
        for each in trainers
    ]
    baseline, candidate = sides
    if not all(each.metric for each in found):
        raise ConfigError("decide needs TrainerConfig.best_checkpoint_eval_metric, in both files")
    if found[0] != found[1]:
        raise ConfigError(
            f"{baseline.given} is judged by {found[0].metric} and {candidate.given} by "
            f"{found[1].metric}: set the same TrainerConfig.best_checkpoint_eval_metric and "
            "best_checkpoint_metric_comp"
        )
    if baseline.name.rpartition("-")[2] == candidate.name.rpartition("-")[2]:
        raise ConfigError(
            f"{baseline.given} and {candidate.given} configure the same experiment, so there is "
            "nothing to decide"
        )
    return found[0]


def _train(
    call: Call, sides: Sequence[Side], objective: trial.Objective, rules: Rules, level: float
) -> tuple[race.Standing, Mapping[str, list[trial.Trial]]]:
    """Trains until it is decided. Returns the comparison, and the trials of each configuration."""
    names = tuple(each.name for each in sides)
    seeds = range(rules.seeds)
    planned = plan.Plan(
        run_config.StudyConfig(seeds=tuple(seeds), jobs=rules.jobs),
        [space.Parameter(space.FILE, "list", names, None, "")],
        seeds,
        (None,),
        objective,
        race=race.Race(rules.seeds, level, rules.margin),
        configurations={each.name: each.gin for each in sides},
        is_tested=False,
    )
    there = trial.all_of(call.model_dir)
    workshop = study.Workshop(call, planned, there, call.place or places.Here())
    with files.staying(call.model_dir), call.stop.deferred():
        workshop.run()
    call.stop.check()
    trials = {
        name: [each for each in workshop.trials if each.parameters.get(space.FILE) == name]
        for name in names
    }
    own = [each for several in trials.values() for each in several]
    broken = [each for each in own if each.state in (State.FAILED, State.REJECTED)]
    for each in broken:
        console.say(f"{each.folder.name} {each.state}: {each.reason}", style="red")
    if broken or workshop.left:
        why = workshop.why_set_aside or f"{text.counted(len(broken), 'trial')} ended with an error"
        raise RunnerError(f"nothing is decided: {why}. Rerun the command to continue")
    scores = [race.scores(trials[name], seeds, planned.is_final) for name in names]
    assert planned.race
    return planned.race.standing(scores), trials


def _results(
    found: tuple[race.Standing, Mapping[str, list[trial.Trial]]],
    sides: Sequence[Side],
    objective: trial.Objective,
    row: Mapping[str, Any],
) -> dict[str, Any]:
    standing, trials = found
    judged = standing.judged.get((0, 1)) or Judgement(None, 0)
    verdict = judged.verdict or Verdict.UNDECIDED
    diverged = {
        side: count
        for side, own in zip(_SIDES, trials.values(), strict=True)
        if (count := sum(each.state == State.DIVERGED for each in own))
    }
    sign = 1 if objective.higher else -1
    low, high = sorted((sign * judged.low, sign * judged.high))
    return {
        "status": str(verdict),
        "metric": objective.metric,
        "difference": sign * judged.mean if judged.n else None,
        "interval": [low, high] if high - low < float("inf") else None,
        "seeds": judged.n,
        "limit": row["seeds"],
        "diverged": diverged,
        **{
            side: [each.folder.name for each in own]
            for side, own in zip(_SIDES, trials.values(), strict=True)
        },
        "decision": row["number"],
        "level": row["level"],
        "in_words": _in_words(verdict, judged, sides, objective, row, diverged),
    }


def _in_words(
    verdict: Verdict,
    judged: Judgement,
    sides: Sequence[Side],
    objective: trial.Objective,
    row: Mapping[str, Any],
    diverged: Mapping[str, int],
) -> str:
    baseline, candidate = (each.given for each in sides)
    metric, size = objective.metric, f"{abs(judged.mean):.2g}"
    goes = "higher" if (judged.mean > 0) == objective.higher else "lower"
    after = f"after {judged.n:,} of at most {text.counted(row['seeds'], 'seed')}"
    low, high = sorted((abs(judged.low), abs(judged.high)))
    match verdict:
        case Verdict.BETTER | Verdict.WORSE:
            said = f"is {verdict} than {baseline}: {metric} is {goes} by {size} "
            said += f"({low:.2g} to {high:.2g}), {after}"
        case Verdict.EQUIVALENT:
            said = f"is equivalent to {baseline}: {metric} differs by {size}, and by "
            said += f"{max(low, high):.2g} at most, {after}"
        case _ if diverged:
            counts = ", ".join(f"{count} of the {side}" for side, count in diverged.items())
            said = f"is not compared with {baseline}, because trials diverged ({counts})"
        case _:
            said = f"cannot be told apart from {baseline} {after}: {metric} differs by {size}"
    share = f"{100 * row['level']:.2g} % of {100 * row['series_level']:g} %"
    return f"{candidate} {said} (decision {row['number']}, error budget {share})"
