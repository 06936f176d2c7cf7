import gc
import weakref

import pytest

from runner.devices import garbage, strategy


class Node:
    """Refers to itself, as models and graphs do, so only the search for garbage finds it."""

    def __init__(self):
        self.itself = self


@pytest.mark.parametrize("again", [garbage.freeze, lambda: strategy.set_seed(3)])
def test_what_a_run_leaves_is_collected_though_imports_were_frozen(again):
    garbage.freeze()
    left = weakref.ref(Node())
    again()
    gc.collect()
    assert left() is None


def test_imports_leave_the_collection_as_it_was():
    with garbage.uncollected():
        assert not gc.isenabled()
        with garbage.uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
