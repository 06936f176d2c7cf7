"""Strategies that choose a study's values: random, TPE, CMA-ES and others. No TensorFlow.

Each choice is a pure function of the study's seed, its number, and the results available to it. It
does not depend on the number of workers or on kills. Tree-structured Parzen estimators (Bergstra et
al. 2011), CMA-ES (Hansen and Ostermeier 2001) and NSGA-II (Deb et al. 2002) come from Optuna.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from runner.errors import ConfigError
from runner.studies import space, trial
from runner.studies.goals import Goals

Chosen = dict[str, Any]

_POPULATION = 16  # of NSGA-II: the first choices are random, until there are this many results


class Result(NamedTuple):
    """The result of a choice.

    Attributes:
        chosen: The values.
        value: The score, where lower is better, or None if unknown, infinite for the worst.
        others: The scores of further objectives, likewise.
        excess: By how much each limit is exceeded, negative or 0 within it. None if unknown.
    """

    chosen: Mapping[str, Any]
    value: float | None
    others: tuple[float | None, ...] = ()
    excess: tuple[float | None, ...] = ()


def check(strategy: str, parameters: Sequence[space.Parameter]) -> None:
    """Raises ConfigError if a strategy cannot choose values of these parameters."""
    if strategy == "grid":
        space.grid(parameters)
    elif not parameters:
        raise ConfigError(
            f"StudyConfig.strategy = {strategy!r} needs parameters to vary: pass --vary"
        )
    if strategy == "cma_es":
        for each in parameters:
            if each.kind == "list" or each.when:
                raise ConfigError(
                    f"--vary={each.text}: 'cma_es' needs ranges without conditions; 'tpe' also "
                    "supports lists and conditions"
                )


def choose(
    strategy: str,
    parameters: Sequence[space.Parameter],
    number: int,
    results: Sequence[Result],
    *,
    seed: int,
    lag: int,
    goals: Goals = Goals(),  # noqa: B008, immutable
) -> Chosen:
    """Makes choice `number`.

    Args:
        strategy: `random`, `quasi_random`, `tpe`, `cma_es` or `nsga2`.
        parameters: The parameters that vary.
        number: From 0.
        results: The results of choices 0 to `number - lag`, in order.
        seed: The study's seed.
        lag: How many choices the results may lag behind.
        goals: The objectives and limits that the results are about.
    """
    if strategy == "random":
        import numpy as np

        shares = np.random.default_rng([seed, number]).random(len(parameters))
        return _placed(parameters, [float(each) for each in shares])
    if strategy == "quasi_random":
        return _placed(parameters, _sobol(len(parameters), seed, number))
    if strategy == "tpe" and goals.facts:
        return _tpe_of_several(parameters, number, results, seed=seed, goals=goals)
    if strategy == "tpe":
        return _tpe(parameters, number, results, seed)
    from optuna import samplers

    if strategy == "cma_es":
        sampler: Any = samplers.CmaEsSampler(seed=seed)
    else:
        sampler = samplers.NSGAIISampler(seed=seed, population_size=_POPULATION)
    return _replayed(sampler, parameters, number, results, lag=lag, goals=goals)


def _sobol(dimensions: int, seed: int, number: int) -> list[float]:
    """Returns point `number` of a scrambled Sobol' sequence."""
    from scipy.stats import qmc

    points = qmc.Sobol(dimensions, seed=seed)
    if number:
        points.fast_forward(number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # one point is not a power of two
        return [float(each) for each in points.random(1)[0]]


def _placed(parameters: Sequence[space.Parameter], shares: Sequence[float]) -> Chosen:
    """Returns the values at these positions, each from 0 to below 1."""
    values = [at(each, share) for each, share in zip(parameters, shares, strict=True)]
    return space.only_applying(parameters, [each.name for each in parameters], values)


def at(parameter: space.Parameter, share: float) -> Any:
    """Returns the value at a position from 0 to below 1 in a parameter's list or range."""
    values = parameter.values
    if parameter.kind == "list":
        return values[int(share * len(values))]
    low, high = values
    if parameter.kind == "int":
        return low + int(share * (high - low + 1))
    if parameter.kind == "log":
        return low * (high / low) ** share
    return low + share * (high - low)


def _tpe(
    parameters: Sequence[space.Parameter], number: int, results: Sequence[Result], seed: int
) -> Chosen:
    import numpy as np
    import optuna

    own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    study = _optuna(optuna.samplers.TPESampler(seed=own, n_startup_trials=10))
    kinds = {each.name: _distribution(each) for each in parameters}
    for result, value in zip(results, _finite(results), strict=True):
        if value is None or not _fits(parameters, result.chosen):
            continue
        given = {each.name: each for each in parameters if each.name in result.chosen}
        inner = {name: _inner(each, result.chosen[name]) for name, each in given.items()}
        study.add_trial(
            optuna.trial.create_trial(
                params=inner, distributions={name: kinds[name] for name in given}, value=value
            )
        )
    return _asked(study, parameters)[1]


def _tpe_of_several(
    parameters: Sequence[space.Parameter],
    number: int,
    results: Sequence[Result],
    *,
    seed: int,
    goals: Goals,
) -> Chosen:
    """Like `_tpe`, for several objectives or with limits."""
    import numpy as np
    import optuna

    own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    sampler = optuna.samplers.TPESampler(seed=own, n_startup_trials=10)
    study = _optuna(sampler, objectives=len(goals.objectives))
    kinds = {each.name: each for each in parameters}
    for each, scores in zip(results, _scores(results), strict=True):
        if scores is None or not _fits(parameters, each.chosen):
            continue
        inner = {name: _inner(kinds[name], value) for name, value in each.chosen.items()}
        study.enqueue_trial(inner)
        _tell(study, _asked(study, parameters)[0], scores)
    return _asked(study, parameters)[1]


def _replayed(
    sampler: Any,
    parameters: Sequence[space.Parameter],
    number: int,
    results: Sequence[Result],
    *,
    lag: int,
    goals: Goals,
) -> Chosen:
    """Replays all asks and tells in the same order, which restores the sampler's state.

    A result of other values than the sampler asks for now, such as those before a change of the
    parameters, is told as a failure.
    """
    study = _optuna(sampler, objectives=max(len(goals.objectives), 1))
    asked: list[tuple[Any, Chosen]] = []
    for each in range(number + 1):
        if 0 <= (known := each - lag) < len(results):
            made, chosen = asked[known]
            same = trial.configuration(chosen) == trial.configuration(results[known].chosen)
            # scored by the results until then, as when it was told first
            _tell(study, made, _scores(results[: known + 1])[known] if same else None)
        asked.append(_asked(study, parameters))
    return asked[-1][1]


def _tell(study: Any, asked: Any, scores: "_Scores | None") -> None:
    """Tells Optuna the result of a trial, which fails if it is unknown."""
    import optuna

    if scores is None:
        study.tell(asked, state=optuna.trial.TrialState.FAIL)
        return
    for place, value in enumerate(scores.excess):
        asked.set_constraint(str(place), value)
    study.tell(asked, scores.values)


class _Scores(NamedTuple):
    """The objectives and the excesses of a result."""

    values: list[float]
    excess: list[float]


def _scores(results: Sequence[Result]) -> list[_Scores | None]:
    """Returns the scores of each result, None if one is unknown.

    If the first objective is infinite, as for a diverged trial, all are the worst finite ones, and
    all limits are exceeded.
    """
    rows = [(each.value, *each.others) for each in results]
    known = [[one for one in row if one is not None] for row in rows]
    finite = [
        row
        for row, every in zip(known, rows, strict=True)
        if len(row) == len(every) and all(map(math.isfinite, row))
    ]
    worst = [max(column) for column in zip(*finite, strict=True)]
    found: list[_Scores | None] = []
    for each, row, every in zip(results, known, rows, strict=True):
        excess = [value for value in each.excess if value is not None]
        if each.value is not None and not math.isfinite(each.value):
            found.append(_Scores(worst, [math.inf for _ in each.excess]) if worst else None)
        elif len(row) == len(every) and len(excess) == len(each.excess):
            found.append(_Scores(row, excess))
        else:
            found.append(None)
    return found


def _optuna(sampler: Any, objectives: int = 1) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(sampler=sampler, directions=["minimize"] * objectives)


def _asked(study: Any, parameters: Sequence[space.Parameter]) -> tuple[Any, Chosen]:
    """Returns Optuna's next trial, and its values."""
    asked = study.ask()
    chosen: Chosen = {}
    for each in parameters:
        if not each.applies(chosen):
            continue
        low, high = each.values[0], each.values[-1]
        if each.kind == "list":
            places = list(range(len(each.values)))
            chosen[each.name] = each.values[asked.suggest_categorical(each.name, places)]
        elif each.kind == "int":
            chosen[each.name] = asked.suggest_int(each.name, low, high)
        else:
            log = each.kind == "log"
            chosen[each.name] = asked.suggest_float(each.name, low, high, log=log)
    return asked, chosen


def _distribution(parameter: space.Parameter) -> Any:
    from optuna import distributions

    low, high = parameter.values[0], parameter.values[-1]
    kinds: dict[str, Callable[[], Any]] = {
        "list": lambda: distributions.CategoricalDistribution(list(range(len(parameter.values)))),
        "int": lambda: distributions.IntDistribution(low, high),
        "log": lambda: distributions.FloatDistribution(low, high, log=True),
        "uniform": lambda: distributions.FloatDistribution(low, high),
    }
    return kinds[parameter.kind]()


def _inner(parameter: space.Parameter, value: Any) -> Any:
    """Returns a value as Optuna represents it."""
    if parameter.kind != "list":
        return value
    return [space.plain(each) for each in parameter.values].index(space.plain(value))


def _fits(parameters: Sequence[space.Parameter], chosen: Mapping[str, Any]) -> bool:
    """Returns whether these values can still be chosen: the parameters may have changed."""
    wanted = {each.name: each for each in parameters}
    if not chosen.keys() <= wanted.keys():
        return False
    for name, value in chosen.items():
        each = wanted[name]
        if each.kind == "list":
            if space.plain(value) not in [space.plain(known) for known in each.values]:
                return False
        elif not each.values[0] <= value <= each.values[1]:
            return False
    return True


def _finite(results: Sequence[Result]) -> list[float | None]:
    """Returns the values, None if unknown, with infinite ones replaced by the worst finite one."""
    finite = [each.value for each in results if each.value is not None]
    finite = [each for each in finite if math.isfinite(each)]
    worst = max(finite, default=None)
    return [
        worst if each.value is not None and not math.isfinite(each.value) else each.value
        for each in results
    ]
