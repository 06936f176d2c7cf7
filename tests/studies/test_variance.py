import dataclasses
import itertools
import pathlib

import numpy as np
import pytest

from runner.studies import findings, summary, trial, variance

OBJECTIVE = trial.Objective("accuracy", higher=True)


def trials(sizes, deviations, *, noise=0.0, seed=0):
    """Trials of all combinations of seeds, whose effects have these standard deviations."""
    draws = np.random.default_rng(seed)
    effects = [draws.normal(0, each, size) for each, size in zip(deviations, sizes, strict=True)]
    found = []
    for number, place in enumerate(itertools.product(*map(range, sizes))):
        value = sum(effect[at] for effect, at in zip(effects, place, strict=True))
        value += draws.normal(0, noise) if noise else 0
        names = variance.SEEDS[1 : len(sizes)]
        found.append(
            trial.Trial(
                number,
                pathlib.Path(str(number)),
                dict(zip(names, place[1:], strict=True)),
                place[0],
                None,
                "done",
                best={"accuracy": 0.9 + float(value)},
                last={"accuracy": 0.9 + float(value)},
                objective=OBJECTIVE,
            )
        )
    return found


def test_the_share_of_each_seed_is_found():
    deviations = (0.03, 0.01, 0.0)
    drawn = [
        variance.of(trials((6, 6, 6), deviations, noise=0.01, seed=one), "accuracy")
        for one in range(60)
    ]
    for name, wanted in zip((*variance.SEEDS, ""), (*deviations, 0.01), strict=True):
        found = np.mean([each.std**2 for several in drawn for each in several if each.seed == name])
        assert found == pytest.approx(wanted**2, rel=0.25, abs=1e-5)


def test_shares_sum_to_one():
    components = variance.of(trials((3, 4), (0.02, 0.01), noise=0.01), "accuracy")
    assert [each.values for each in components] == [3, 4, 0]
    assert sum(each.share for each in components) == pytest.approx(1)


def test_one_seed_alone_has_the_whole_variance():
    (only,) = variance.of(trials((5,), (0.02,)), "accuracy")
    assert (only.seed, only.share) == ("RunConfig.seed", 1)


def test_a_missing_combination_leaves_the_shares_unknown():
    assert variance.of(trials((3, 3), (0.02, 0.01))[:-1], "accuracy") == []


@pytest.mark.parametrize("state", ["preempted", "diverged", "failed", "paused"])
def test_a_trial_that_has_not_finished_leaves_the_shares_unknown(state):
    first, *others = trials((3, 3), (0.02, 0.01))
    assert variance.of([dataclasses.replace(first, state=state), *others], "accuracy") == []


def test_folds_are_averaged():
    whole = trials((3, 3), (0.02, 0.01), noise=0.01)
    folded = [
        dataclasses.replace(each, fold=fold, best={"accuracy": each.best["accuracy"] + shift})
        for each in whole
        for fold, shift in enumerate((-0.1, 0.1))
    ]
    found, expected = (variance.of(each, "accuracy") for each in (folded, whole))
    assert [each.share for each in found] == pytest.approx([each.share for each in expected])
    assert variance.of(folded[:-1], "accuracy") == []


def test_the_finding_names_the_largest_first():
    made = trials((4, 4), (0.001, 0.05), noise=0.001)
    (line,) = findings.comparisons(summary.of(made))
    assert line.index("data_seed") < line.index("RunConfig.seed")


def test_other_values_are_compared_as_before():
    made = trials((3, 3), (0.02, 0.01))
    made[0].parameters["MLPConfig.dropout"] = 0.1
    assert not variance.varies_seeds_only(made)
