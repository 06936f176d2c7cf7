import dataclasses
import pathlib

import pytest
from wording import saying

import runner
from runner.errors import ConfigError
from runner.studies import plan, trial

RATE = "CosineLrConfig.initial_learning_rate"
STUDY = f"StudyConfig.vary = ('{RATE}=0.1,0.2,0.3',)"
PARAMS = ["RunConfig.study = @run_config.StudyConfig()", STUDY]


def planned(*params):
    names = ["from __gin__ import dynamic_registration\nfrom runner import run_config\n"]
    pathlib.Path("study.gin").write_text("".join([*names, "include 'digits.gin'\n", PARAMS[0]]))
    return plan.of(runner.load("study.gin", [STUDY, *params]))


def trained(facts, accuracies, state="done"):
    """The trials of these facts, with an accuracy for each rate."""
    return [
        trial.Trial(
            number,
            pathlib.Path(),
            each["parameters"],
            each["seed"],
            each["fold"],
            state,
            best={"accuracy": accuracies[each["parameters"][RATE]]},
            objective=trial.Objective("accuracy"),
        )
        for number, each in enumerate(facts)
    ]


BEST = "StudyConfig.best = 2", "StudyConfig.seeds_of_best = (0, 5, 6)"
ACCURACIES = {0.1: 0.7, 0.2: 0.9, 0.3: 0.8}


def test_the_best_are_trained_with_further_seeds_once_all_are_known():
    made = planned(*BEST)
    assert made.size == 3 + 2 * 2
    first = list(made.wanted([]))
    assert [each["seed"] for each in first] == [0, 0, 0]
    there = trained(first, ACCURACIES)
    running = dataclasses.replace(there[0], state="running")
    assert list(made.wanted([running, *there[1:]])) == first
    further = [(each["parameters"][RATE], each["seed"]) for each in list(made.wanted(there))[3:]]
    assert further == [(0.2, 5), (0.2, 6), (0.3, 5), (0.3, 6)]
    diverged = dataclasses.replace(there[1], state="diverged")
    others = list(made.wanted([there[0], diverged, there[2]]))[3:]
    assert {each["parameters"][RATE] for each in others} == {0.1, 0.3}
    failed = dataclasses.replace(there[1], state="failed", failures=1)
    others = list(planned(*BEST, "StudyConfig.tries = 1").wanted([there[0], failed, there[2]]))[3:]
    assert {each["parameters"][RATE] for each in others} == {0.1, 0.3}


@pytest.mark.parametrize("strategy", ["random", "quasi_random"])
def test_random_choices_are_new_ones_while_there_are_any(strategy):
    drawn = f"StudyConfig.strategy = '{strategy}'"
    made = planned(*BEST, drawn, "StudyConfig.trials = 3")
    first = list(made.wanted([]))
    assert sorted(each["parameters"][RATE] for each in first) == [0.1, 0.2, 0.3]
    assert made.repeated == 0
    made = planned(*BEST, drawn, "StudyConfig.trials = 5")
    more = list(made.wanted([]))
    assert more[:3] == first
    assert made.repeated == 2
    further = list(made.wanted(trained(more, ACCURACIES)))[5:]
    assert sorted({each["parameters"][RATE] for each in further}) == [0.2, 0.3]


def test_the_further_seeds_change_neither_choices_nor_which_are_the_best():
    made = planned(*BEST)
    all_facts = list(made.wanted(trained(made.wanted([]), ACCURACIES)))
    worse = [
        dataclasses.replace(each, best={"accuracy": 0.0}) if each.seed else each
        for each in trained(all_facts, ACCURACIES)
    ]
    assert list(made.wanted(worse)) == all_facts


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([BEST[0]], "StudyConfig.best StudyConfig.seeds_of_best neither"),
        ([BEST[0], "StudyConfig.seeds_of_best = (1, 1)"], "seeds_of_best 1 once"),
        ([*BEST, "TrainerConfig.best_checkpoint_eval_metric = ''"], "StudyConfig.best needs"),
        ([*BEST, "StudyConfig.stopping = 'asha'"], "combined stopping asha"),
    ],
)
def test_best_configurations_that_cannot_be_trained_again_are_refused(params, message):
    with pytest.raises(ConfigError, match=saying(message)):
        planned(*params)
