import math
import statistics

import optuna
import pytest
from wording import saying

from runner.errors import ConfigError
from runner.studies import space, suggest

PLANE = space.parse(["A.x=uniform(-5, 5)", "A.y=log(0.01, 100)"])
MIXED = space.parse(
    ["A.kind='p','q'", "A.size=int(1, 5)", "A.part=uniform(0, 1) if A.kind='q'", "A.h=(1,),(2,)"]
)
LAG = 2


def loss(chosen):
    return (chosen["A.x"] - 2) ** 2 + abs(chosen["A.y"] - 1)


def tried(strategy, count, seed=0, parameters=PLANE, value=loss):
    results = []
    for number in range(count):
        known = results[: max(number - LAG + 1, 0)]
        chosen = suggest.choose(strategy, parameters, number, known, seed=seed, lag=LAG)
        results.append(suggest.Result(chosen, value(chosen)))
    return results


@pytest.mark.parametrize("strategy", ["random", "quasi_random", "tpe", "cma_es"])
def test_a_choice_follows_from_the_seed_its_number_and_the_results(strategy):
    first = tried(strategy, 14)
    assert tried(strategy, 14) == first
    assert tried(strategy, 14, seed=1) != first
    known = first[: 13 - LAG + 1]
    alone = suggest.choose(strategy, PLANE, 13, known, seed=0, lag=LAG)
    assert alone == first[13].chosen
    assert all(-5 <= one["A.x"] <= 5 and 0.01 <= one["A.y"] <= 100 for one, *_ in first)


@pytest.mark.parametrize("strategy", ["random", "quasi_random", "tpe"])
def test_conditions_hold_in_every_choice(strategy):
    found = tried(strategy, 16, parameters=MIXED, value=lambda chosen: chosen["A.size"])
    assert all(("A.part" in chosen) == (chosen["A.kind"] == "q") for chosen, *_ in found)
    assert {chosen["A.h"] for chosen, *_ in found} == {(1,), (2,)}


def test_results_come_back_from_json_with_lists_for_tuples():
    results = tried("random", 12, parameters=MIXED, value=lambda chosen: chosen["A.size"])
    read = [suggest.Result({**one, "A.h": list(one["A.h"])}, value) for one, value, *_ in results]
    chosen = [suggest.choose("tpe", MIXED, 12, each, seed=0, lag=1) for each in (results, read)]
    assert chosen[0] == chosen[1]


def test_diverged_and_unknown_results_do_not_stop_a_search():
    for strategy in ("tpe", "cma_es"):
        values = iter([None, float("inf"), 1.0, float("inf"), 2.0, None] * 3)
        assert len(tried(strategy, 16, value=lambda _, values=values: next(values))) == 16


@pytest.mark.parametrize("seed", range(4))
def test_cma_es_gets_the_score_of_what_was_trained_when_others_diverge(seed):
    """A study that runs in one process, without replays, is the reference."""

    def diverging(chosen):
        return math.inf if chosen["A.x"] > -1 else loss(chosen)

    study = optuna.create_study(sampler=optuna.samplers.CmaEsSampler(seed=seed))
    asked, values, worst = [], [], None
    for number in range(24):
        if (known := number - LAG) >= 0:
            if math.isfinite(value := values[known]):
                worst = value if worst is None else max(worst, value)
            told = value if math.isfinite(value) else worst
            fail = {} if told is not None else {"state": optuna.trial.TrialState.FAIL}
            study.tell(asked[known], told, **fail)
        asked.append(study.ask({each.name: distribution(each) for each in PLANE}))
        values.append(diverging(asked[-1].params))
    found = tried("cma_es", 24, seed, value=diverging)
    assert [one for one, *_ in found] == [each.params for each in asked]


def distribution(parameter):
    low, high = parameter.values
    return optuna.distributions.FloatDistribution(low, high, log=parameter.kind == "log")


@pytest.mark.parametrize("strategy", ["cma_es", "nsga2"])
def test_results_of_values_that_it_would_not_choose_now_are_left_out(strategy):
    wider = space.parse(["A.x=uniform(-5, 50)", "A.y=log(0.01, 100)"])
    before = tried(strategy, 20)
    lost = [one._replace(value=None) for one in before]
    chosen = [
        suggest.choose(strategy, wider, 20, results, seed=0, lag=1) for results in (before, lost)
    ]
    assert chosen[0] == chosen[1]


def test_tpe_finds_better_values_than_chance_in_the_median_of_studies():
    best = {
        strategy: statistics.median(
            min(value for _, value, *_ in tried(strategy, 30, seed)) for seed in range(5)
        )
        for strategy in ("random", "tpe")
    }
    assert best["tpe"] < best["random"]


def test_strategies_say_what_they_cannot_do():
    with pytest.raises(ConfigError, match=saying("ranges conditions")):
        suggest.check("cma_es", MIXED)
    with pytest.raises(ConfigError, match="pass --vary"):
        suggest.check("tpe", [])
