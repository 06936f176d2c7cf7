import pytest

from runner.checkpoints import retention


@pytest.mark.parametrize(
    ("last", "every", "removable"),
    [
        (1, 0, [0, 10, 20, 30, 40]),
        (3, 0, [0, 10, 20]),
        (9, 0, []),
        (1, 20, [10, 30]),
        (2, 25, [10, 20, 30]),
        (1, 1, []),
    ],
)
def test_what_is_neither_among_the_last_nor_on_the_grid_may_go(last, every, removable):
    assert retention.Keep(last, every).removable([0, 10, 20, 30, 40, 50]) == removable


def test_those_that_are_due_are_not_pushed_out_by_others():
    keep = retention.Keep(2, is_due=lambda step: step % 20 == 0)
    assert keep.removable([0, 20, 40, 45, 50]) == [0]
    assert keep.removable([0, 20, 40, 45, 50, 60]) == [0, 20, 45]


def test_the_last_are_those_written_last_whatever_their_step():
    assert retention.Keep(2).removable([10, 40, 50, 20]) == [10, 40]
