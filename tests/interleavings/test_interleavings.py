"""Real code in many orders of its file operations. `scripts.chaos interleavings` explores more."""

import dataclasses

import pytest
from interleavings import explorer, faults, models

SECONDS = 2.0


@pytest.mark.parametrize("name", models.MODELS)
def test_no_property_is_violated(name):
    result = explorer.at_random(models.MODELS[name], seconds=SECONDS)
    assert result.explored
    assert result.violations == {}


@pytest.mark.parametrize("name", ["lock", "lease", "moved"])
def test_no_crash_violates_a_property(name):
    model = dataclasses.replace(models.MODELS[name], deviations=0, stalls=0)
    result = explorer.systematic(model)
    assert result.is_complete
    assert result.violations == {}


@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.name)
def test_the_exploration_finds(fault):
    model = dataclasses.replace(models.MODELS[fault.model], **fault.how)
    with fault.put_back():
        tries = (
            explorer.at_random(model, seed=n, count=2500, stop_at_first=True) for n in range(6)
        )
        assert any(result.violations for result in tries)


def test_a_violation_can_be_replayed():
    [fault] = [fault for fault in faults.FAULTS if fault.name.startswith("the lock file")]
    model = models.MODELS[fault.model]
    with fault.put_back():
        result = explorer.at_random(model, stop_at_first=True)
        [choices] = result.violations.values()
        assert explorer.replay(model, choices, deviations=explorer.MANY)
