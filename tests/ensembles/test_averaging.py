import numpy as np
import pytest
from scipy import stats
from wording import saying

from runner.studies.ensembles import averaging


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)


@pytest.fixture
def members():
    """Three members' probabilities of 200 examples of 4 classes, in two batches; and labels."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 4, 200)
    logits = 2 * np.eye(4)[labels] + generator.normal(size=(3, 200, 4))
    return [np.split(softmax(each), [120]) for each in logits], np.split(labels, [120])


def test_the_mean_is_over_members_and_one_counts_as_often_as_it_is_named(members):
    (a, b, _), _ = members
    np.testing.assert_allclose(averaging.mean([a, b, b])[1], (a[1] + 2 * b[1]) / 3, rtol=1e-6)
    assert averaging.are_probabilities(averaging.mean([a, b]))
    assert not averaging.are_probabilities([np.array([[1.5], [-2.0]])])


def test_diversity_is_that_of_scipy(members):
    (a, b, _), _ = members
    found = averaging.diversity([a, b])
    one, other = np.concatenate(a), np.concatenate(b)
    assert found.kl[0, 1] == pytest.approx(stats.entropy(one, other, axis=-1).mean())
    assert found.disagreement[0, 1] == (one.argmax(-1) != other.argmax(-1)).mean()
    assert found.means["kl"] == pytest.approx((found.kl[0, 1] + found.kl[1, 0]) / 2)
    alike = averaging.diversity([a, a])
    assert alike.means == {"disagreement": 0, "kl": 0}


def test_selection_takes_what_helps_most_and_may_take_it_twice():
    values = [1.0, 4.0, 9.0]

    def distance(chosen):
        return abs(np.mean([values[member] for member in chosen]) - 5.0)

    rounds = averaging.select(distance, 3, 5, higher=False)
    assert [one.member for one in rounds] == [1, 1, 2, 1, 1]
    assert rounds[4].score == 0
    assert [one.member for one in averaging.select(lambda c: -distance(c), 3, 5, higher=True)] == [
        one.member for one in rounds
    ]
    scores = {0: float("nan"), 1: 0.5}
    assert averaging.select(lambda chosen: scores[chosen[-1]], 2, 1, higher=True)[0].member == 1
    with pytest.raises(ValueError, match=saying("score number")):
        averaging.select(lambda _: float("nan"), 2, 1, higher=True)


def test_the_temperature_undoes_what_made_probabilities_too_sure(members):
    (a, *_), labels = members
    true = averaging.temperature(a, labels)
    assert averaging.temperature(averaging.tempered(a, 1 / 3), labels) == pytest.approx(
        3 * true, rel=1e-2
    )
    at = averaging.likelihood(averaging.tempered(a, true), labels)
    assert at <= min(
        averaging.likelihood(averaging.tempered(a, true * factor), labels) for factor in (0.9, 1.1)
    )
    unknown = [np.append(labels[0], -1), labels[1]]
    longer = [np.append(a[0], [[1, 0, 0, 0]], axis=0), a[1]]
    assert averaging.likelihood(longer, unknown) == averaging.likelihood(a, labels)


def test_a_temperature_that_nothing_determines_is_at_an_end(members):
    (a, *_), _ = members
    right = [each.argmax(-1) for each in a]
    assert averaging.is_at_an_end(averaging.temperature(a, right))
    assert not averaging.is_at_an_end(1.5)


def test_what_is_impossible_stays_so_at_any_temperature():
    masked = [np.array([[0.6, 0.4, 0.0]])]
    (hot,) = averaging.tempered(masked, 20.0)
    assert hot[0, 2] == 0
    np.testing.assert_allclose(hot.sum(), 1, rtol=1e-6)
