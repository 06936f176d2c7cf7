import pathlib

from runner.studies import rungs, trial

OBJECTIVE = trial.Objective("accuracy", higher=True)


class Simulated:
    """A trial whose accuracy grows with the steps towards its own quality."""

    def __init__(self, number, quality):
        self.number, self.quality, self.steps, self.state = number, quality, 0, "waiting"

    @property
    def seen(self):
        found = [(at, self.quality * at / (at + 1)) for at in range(1, self.steps + 1)]
        return trial.Trial(
            self.number,
            pathlib.Path(),
            {},
            0,
            None,
            self.state,
            self.steps,
            evaluations=[(at, {"accuracy": value}) for at, value in found],
            objective=OBJECTIVE,
        )


def trained(rule, qualities, end=27):
    """All steps that were trained, and the trials, with one worker."""
    where = rungs.Rungs(rule, rungs.steps(1, 3, end, rule=rule), 3)
    every, spent = [Simulated(n, quality) for n, quality in enumerate(qualities)], 0
    while True:
        seen = [each.seen for each in every]
        waiting = [each for each in every if each.state != "done"]
        for one in sorted(waiting, key=lambda each: each.state != "paused"):
            if step := where.target(seen[one.number], seen):
                break
        else:
            left = where.left(seen)
            if left is None:
                return spent, every
            one, step = every[left.number], where.after(left)
        assert step > one.steps
        spent += step - one.steps
        one.steps, one.state = step, "done" if step == end else "paused"


QUALITIES = [(n * 7 % 30) / 30 for n in range(30)]


def test_halving_finds_the_best_with_a_third_of_the_steps():
    spent, every = trained("asha", QUALITIES)
    done = [each.quality for each in every if each.state == "done"]
    assert max(done) == max(QUALITIES)
    assert spent <= 30 * 27 / 3


def test_hyperband_starts_some_further_on():
    _, every = trained("hyperband", QUALITIES)
    assert max(each.quality for each in every if each.state == "done") == max(QUALITIES)
    assert len({each.steps for each in every}) > 2


def test_the_median_lets_the_better_half_go_on():
    spent, every = trained("median", QUALITIES, end=9)
    assert max(QUALITIES) in [each.quality for each in every if each.state == "done"]
    assert spent < 30 * 9
    assert min(each.steps for each in every) == 1


def test_a_few_trials_still_have_one_that_is_trained_to_the_end():
    _, every = trained("asha", [0.1, 0.2])
    assert sorted(each.state for each in every) == ["done", "paused"]


def test_a_killed_trial_goes_on_to_the_rung_that_it_was_on_the_way_to():
    where = rungs.Rungs("asha", [1, 3, 9], 3)
    one = Simulated(0, 0.5)
    one.state = "preempted"
    for steps, target in ((0, 1), (1, 1), (2, 3), (5, 9)):
        one.steps = steps
        assert where.target(one.seen, [one.seen]) == target


def test_a_diverged_trial_counts_where_it_diverged_and_is_never_promoted():
    where = rungs.Rungs("asha", [1, 3, 9], 3)
    every = [Simulated(n, 0.5) for n in range(3)]
    for one, state in zip(every, ("diverged", "paused", "paused"), strict=True):
        one.steps, one.state = 1, state
    seen = [each.seen for each in every]
    assert [where.target(each, seen) for each in seen[1:]] == [3, None]
