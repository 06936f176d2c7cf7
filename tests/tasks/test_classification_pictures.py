import sys

import numpy as np
import pytest

from tasks.images import classification_pictures as pictures

WHITE = 250


def counts(classes, right=90, wrong=10):
    """Each class is taken for the next one now and then."""
    return right * np.eye(classes) + wrong * np.roll(np.eye(classes), 1, axis=1)


def bins(accuracy):
    """Parts of equal size, whose examples are as sure as the middle of their part."""
    middles = (np.arange(15) + 0.5) / 15
    return np.stack([np.full(15, 100.0), 100 * middles, 100 * accuracy(middles)], axis=1)


def share(picture, color):
    """The share of pixels of about one color."""
    return (np.abs(picture.astype(int) - color).max(axis=2) < 12).mean()


RED, GREEN = (209, 96, 94), (106, 159, 88)


@pytest.mark.parametrize("classes", [2, 10, 40, 300])
def test_a_confusion_matrix_is_a_picture_of_bounded_size(classes):
    picture = pictures.confusion_matrix(counts(classes))
    assert picture.dtype == np.uint8
    height, width, channels = picture.shape
    assert channels == 3
    assert 300 < height < width < 1500
    assert picture[:8].min() > WHITE  # the title is not cut off
    assert picture[:, :8].min() > WHITE  # nor are the names


def test_long_names_of_classes_make_room_for_themselves():
    names = [f"the class with the number {number}" for number in range(10)]
    named = pictures.confusion_matrix(counts(10), names)
    numbered = pictures.confusion_matrix(counts(10))
    assert named[:, :8].min() > WHITE
    assert named.shape != numbered.shape


def test_the_shades_are_shares_of_the_rows_whatever_their_examples():
    even = counts(30)
    uneven = even * np.arange(1, 31)[:, np.newaxis]
    same, other = (pictures.confusion_matrix(each)[200:] for each in (even, uneven))
    np.testing.assert_array_equal(same, other)
    assert not np.array_equal(same, pictures.confusion_matrix(counts(30, 60, 40))[200:])


def test_classes_without_examples_stay_empty():
    matrix = counts(4)
    matrix[2] = 0
    assert pictures.confusion_matrix(matrix).shape[2] == 3


def test_a_reliability_diagram_shows_over_and_underconfidence():
    sure = pictures.reliability(bins(lambda confidence: 0.5 * confidence))
    unsure = pictures.reliability(bins(np.sqrt))
    assert share(sure, RED) > 0.05
    assert share(unsure, GREEN) > 0.05
    # What is left is the legend's.
    assert share(sure, GREEN) < 0.005
    assert share(unsure, RED) < 0.005


def test_a_reliability_diagram_leaves_empty_parts_empty():
    some = bins(np.sqrt)
    some[:10] = 0
    assert share(pictures.reliability(some), GREEN) < share(
        pictures.reliability(bins(np.sqrt)), GREEN
    )


def test_drawing_leaves_pyplot_alone():
    before = "matplotlib.pyplot" in sys.modules
    pictures.confusion_matrix(counts(3))
    if before:
        assert not sys.modules["matplotlib.pyplot"].get_fignums()
    else:
        assert "matplotlib.pyplot" not in sys.modules
