import collections

import numpy as np
import pytest
from wording import saying

from runner import inputs
from runner.data import folds
from runner.errors import ConfigError


def data(**fields):
    return inputs.FoldedData(**{"is_training": True, "folds": 5, **fields})


@pytest.mark.parametrize("size", [5, 23, 100])
def test_every_example_validates_once_and_trains_otherwise(size):
    validated = [data(fold=fold, is_training=False).chosen(size) for fold in range(5)]
    assert sorted(np.concatenate(validated)) == list(range(size))
    for fold, own in enumerate(validated):
        rest = data(fold=fold).chosen(size)
        assert sorted([*own, *rest]) == list(range(size))
        assert folds.Fold(5, fold, 0, validates=True).count(size) == len(own)
        assert data(fold=fold, num_examples=size).size() == len(rest)


def test_classes_have_their_share_in_every_part():
    labels = np.repeat([0, 1, 2], [50, 31, 4])
    parts = folds.divide(85, 5, 0, labels=labels)
    for label, count in ((0, 50), (1, 31), (2, 4)):
        counts = np.bincount(parts[labels == label], minlength=5)
        assert set(counts) <= {count // 5, count // 5 + 1}
    assert set(np.bincount(parts)) == {17}


def test_groups_stay_together_and_classes_are_still_shared():
    generator = np.random.default_rng(0)
    groups = generator.integers(0, 80, 2000)
    labels = (generator.random(2000) < 0.1 + 0.4 * (groups % 2)).astype(int)
    parts = folds.divide(2000, 5, 0, labels=labels, groups=np.array([f"g{n}" for n in groups]))
    assert all(len(set(parts[groups == group])) == 1 for group in range(80))
    assert np.abs(np.bincount(parts) - 400).max() < 20
    assert np.abs(np.bincount(parts[labels == 1]) / labels.sum() - 0.2).max() < 0.02


def test_the_division_is_always_the_same_and_another_seed_divides_otherwise():
    assert folds.divide(12, 3, 0).tolist() == [0, 1, 1, 2, 1, 0, 1, 2, 2, 0, 0, 2]
    assert folds.divide(12, 3, 1).tolist() != folds.divide(12, 3, 0).tolist()
    groups = np.arange(12) // 2
    assert collections.Counter(folds.divide(12, 3, 7, groups=groups)) == {0: 4, 1: 4, 2: 4}


def test_once_reads_the_same_examples_in_order():
    np.testing.assert_array_equal(data(fold=2).chosen(23), data(fold=2).once().chosen(23))
    assert not data(fold=2).once().is_training
    assert data(folds=0).once().fold_part == ""


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"folds": 30}, "folds=30 23 examples divide"),
        ({"fold": 5}, "FoldedData.fold=5 folds=5 4"),
        ({"folds": 0, "fold": 2}, "FoldedData.fold=2 effect FoldedData.folds 0"),
    ],
)
def test_what_cannot_be_divided_is_refused(fields, message):
    with pytest.raises(ConfigError, match=saying(message)):
        data(**fields).chosen(23)
    with pytest.raises(ConfigError, match=saying("folds=5 2 groups")):
        data().chosen(23, groups=np.arange(23) % 2)
