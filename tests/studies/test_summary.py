"""What the trials of a study say together, from small made trials: nothing is trained."""

import csv
import json
import math
from pathlib import Path

import pytest
from pyarrow import parquet
from wording import says

from runner.core import layout
from runner.studies import findings, publish, statistics, summary, tables, trial

RATE = "CosineLrConfig.initial_learning_rate"
ACCURACY = trial.Objective("accuracy", True)
NAN = math.nan


def made(number, rate, seed, accuracy=None, *, state="done", step=2000, fold=None, **more):
    metrics = {} if accuracy is None else {"accuracy": accuracy, "loss": 1 - accuracy}
    facts = {"best": metrics, "last": metrics, "objective": ACCURACY, **more}
    folder = Path(layout.TRIALS, f"{number:04}-rate={rate}")
    return trial.Trial(number, folder, {RATE: rate}, seed, fold, state, step, **facts)


def three_rates():
    """Three rates, five seeds each: two about equal, one worse."""
    noise = [0.002, -0.001, 0.0, 0.003, -0.002]
    rates = {0.001: (0.95, 1), 0.005: (0.972, 1), 0.02: (0.9715, -1)}
    return [
        made(5 * n + seed, rate, seed, mean + sign * noise[seed])
        for n, (rate, (mean, sign)) in enumerate(rates.items())
        for seed in range(5)
    ]


def notes(trials):
    return "\n".join(findings.notes(summary.of(trials)))


def test_configurations_are_what_differs_by_more_than_seed_and_come_best_first():
    found = summary.of(three_rates())
    assert [each.name for each in found.configurations] == ["0.005", "0.02", "0.001"]
    best = found.chosen.best["accuracy"]
    assert (best.n, best.mean) == (5, pytest.approx(0.9724))
    assert best == statistics.spread([*found.chosen.scores.values()])
    assert found.metrics == ["accuracy", "loss"]


def test_lower_is_better_where_the_objective_says_so():
    loss = trial.Objective("loss", False)
    trials = [made(n, n, 0, value, objective=loss) for n, value in enumerate([0.9, 0.8])]
    assert summary.of(trials).chosen.name == "0"


def test_the_sentences_say_what_can_be_told_apart_and_how_many_seeds_it_takes():
    equal, better = findings.comparisons(summary.of(three_rates()))
    gap = summary.of(three_rates()).differences[0][1]
    says(equal, f"0.005 0.02 apart 5 {gap.needed} needed 0.0013")
    assert better.startswith("0.005 ")
    says(better, "better 0.005 0.001 accuracy differs 0.022 5")


def test_the_last_evaluations_have_a_table_of_their_own_where_they_are_not_the_best():
    trials = three_rates()
    assert "last evaluation" not in tables.render(summary.of(trials))
    trials[5] = made(5, 0.005, 0, 0.974, last={"accuracy": 0.5})
    text = tables.render(summary.of(trials))
    says(text, "accuracy higher last evaluation")


def test_the_table_shows_each_configuration_and_marks_the_best():
    title, head, first, *_ = tables.render(summary.of(three_rates())).splitlines()
    says(title, "accuracy higher best evaluation")
    assert head.split() == [
        "trials", "initial_learning_rate", "n", "mean", "95", "%", "interval", "std", "min", "max",
        "steps",
    ]  # fmt: skip
    assert first.split() == [
        "5-9", "0.005", "5", "0.9724", "0.9698", "to", "0.9750", "0.0021", "0.9700", "0.9750",
        "2,000", "best",
    ]  # fmt: skip


def test_one_run_each_has_no_interval_and_no_comparison():
    found = summary.of([made(n, n, 0, 0.9 + n / 100) for n in range(3)])
    assert "interval" not in tables.render(found).splitlines()[1]
    assert "--seeds=5" in "\n".join(findings.comparisons(found))


def test_seeds_alone_are_one_configuration():
    found = summary.of([made(n, 0.1, n, 0.9 + n / 100) for n in range(3)])
    assert [each.name for each in found.configurations] == ["the configuration"]
    assert findings.comparisons(found) == []


def test_several_parameters_are_named():
    trials = [
        trial.Trial(n, Path("x"), {"A.rate": rate, "B.size": size, "B.same": 1}, 0, None, "done",
                    best={"accuracy": rate}, objective=ACCURACY)
        for n, (rate, size) in enumerate([(0.1, 8), (0.2, 16)])
    ]  # fmt: skip
    assert [each.name for each in summary.of(trials).configurations] == [
        "rate 0.2, size 16", "rate 0.1, size 8"
    ]  # fmt: skip


def test_a_diverged_trial_counts_as_the_worst_and_leaves_no_interval():
    trials = [
        *(made(n, 0.1, n, 0.99) for n in range(2)),
        made(2, 0.1, 2, 0.3, state="diverged", step=40),
        *(made(3 + n, 0.01, n, 0.90) for n in range(2)),
        made(5, 0.01, 2, 0.5),
    ]
    found = summary.of(trials)
    hot = next(each for each in found.configurations if each.name == "0.1")
    assert hot.best["accuracy"].mean == pytest.approx((0.99 + 0.99 + 0.3) / 3)
    assert math.isnan(hot.best["accuracy"].low)
    assert hot.best["loss"].n == 2
    assert "1 of 6 trials diverged" in notes(trials)
    says(notes(trials), "worst accuracy 0.3")
    says(notes(trials), "exclude metrics loss")
    says("\n".join(findings.comparisons(found)), "scored worst 0.1")


def evaluated(number, rate, seed, best, last, **more):
    return made(number, rate, seed, best={"accuracy": best}, last={"accuracy": last}, **more)


def configuration(trials, name):
    return next(each for each in summary.of(trials).configurations if each.name == name)


def test_a_configuration_whose_data_files_have_changed_is_named():
    before, after = {"photos": "1a"}, {"photos": "2b"}
    trials = [
        made(0, 0.1, 0, 0.9, data=before),
        made(1, 0.1, 1, 0.9, data=after),
        made(2, 0.2, 0, 0.9, data=after),
        made(3, 0.2, 1, 0.9, data=after),
    ]
    says(notes(trials), "data files changed 0.1: trial 0 trial 1")
    assert "data files" not in notes(trials[2:])


def test_a_diverged_trial_is_as_bad_as_the_worst_of_the_same_evaluations():
    """Trained to 0.8 and 0.82, which fell to 0.6 and 0.62; the diverged one fell from 0.9."""
    trials = [
        evaluated(0, 0.1, 0, 0.8, 0.6),
        evaluated(1, 0.1, 1, 0.82, 0.62),
        evaluated(2, 0.2, 0, 0.9, 0.7, state="diverged"),
    ]
    hot = configuration(trials, "0.2")
    assert (hot.best["accuracy"].mean, hot.last["accuracy"].mean) == (0.8, 0.6)
    says(notes(trials), "0.8 best evaluation 0.6")


def test_a_diverged_trial_is_never_better_than_its_own_values():
    trials = [
        evaluated(0, 0.1, 0, 0.8, 0.6),
        evaluated(1, 0.2, 0, 0.3, 0.1, state="diverged"),
        evaluated(2, 0.3, 0, 0.7, 0.65, state="diverged"),
    ]
    for name in ("0.2", "0.3"):
        hot = configuration(trials, name)
        assert (hot.best["accuracy"].mean, hot.last["accuracy"].mean) == (0.3, 0.1)
    assert summary.of(trials).chosen.name == "0.1"


def test_a_paused_trial_may_be_the_worst_of_all():
    trials = [
        evaluated(0, 0.1, 0, 0.8, 0.8),
        evaluated(1, 0.2, 0, 0.5, 0.4, state="paused", step=100),
        made(2, 0.3, 0, state="diverged", step=40),
    ]
    hot = configuration(trials, "0.3")
    assert (hot.best["accuracy"].mean, hot.last["accuracy"].mean) == (0.5, 0.4)
    says(notes(trials), "0.5 best evaluation 0.4")


def test_what_diverged_is_not_chosen_where_nothing_has_finished():
    trials = [
        evaluated(0, 0.1, 0, 0.9, 0.3, state="diverged"),
        evaluated(1, 0.2, 0, 0.5, 0.4, state="paused", step=100),
    ]
    assert summary.of(trials).chosen is None
    says(notes(trials), "no configuration chosen")


def test_a_last_value_that_is_not_finite_counts_as_the_worst_last_one():
    trials = [evaluated(0, 0.1, 0, 0.8, 0.6), evaluated(1, 0.2, 0, 0.9, NAN)]
    fallen = configuration(trials, "0.2")
    assert (fallen.best["accuracy"].mean, fallen.last["accuracy"].mean) == (0.9, 0.6)
    assert summary.of(trials).chosen is not None
    says(notes(trials), "1 no finite accuracy last")


def test_the_number_of_seeds_is_that_of_both_sides():
    noise = [0.01, -0.01, 0.02, -0.02, 0.0, 0.01]
    four = [made(n, 0.1, n, 0.8 + noise[n]) for n in range(4)]
    six = [made(4 + n, 0.2, 10 + n, 0.8 - noise[n]) for n in range(6)]
    (said,) = findings.comparisons(summary.of([*four, *six]))
    assert "4 and 6 seeds" in said or "6 and 4 seeds" in said
    assert "not paired" in said
    some_shared = [made(4 + n, 0.2, n, 0.8 - noise[n]) for n in range(6)]
    (said,) = findings.comparisons(summary.of([*four, *some_shared]))
    assert "4 shared seeds" in said


def test_one_run_of_the_chosen_one_is_not_called_one_run_each():
    trials = [made(0, 0.1, 0, 0.9), made(1, 0.2, 0, 0.8), made(2, 0.2, 1, 0.8)]
    (said,) = findings.comparisons(summary.of(trials))
    assert "one run of 0.1" in said


def test_configurations_that_are_not_compared_are_named():
    trials = [
        *(made(n, 0.1, n, 0.9 + n / 100) for n in range(2)),
        *(made(2 + n, 0.2, n, 0.8 - n / 100) for n in range(2)),
        *(made(4 + n, 0.3, n, 0.8, state=("done", "diverged")[n]) for n in range(2)),
    ]
    assert "0.3" in findings.comparisons(summary.of(trials))[-1]


def test_an_accuracys_interval_ends_at_one():
    trials = [made(n, 0.1, n, value) for n, value in enumerate([0.97, 0.99, 1.0])]
    best = summary.of(trials).chosen.best
    assert best["accuracy"].high == 1
    assert best["loss"].low < 0
    assert "to 1.00" in tables.render(summary.of(trials))


def test_only_the_best_evaluations_name_a_best_configuration():
    trials = [evaluated(0, 0.1, 0, 0.9, 0.5), evaluated(1, 0.2, 0, 0.8, 0.7)]
    best, last = tables.render(summary.of(trials)).split("last evaluation")
    assert "  best\n" in best
    assert "  best\n" not in last


def test_nan_as_the_best_counts_as_the_worst():
    trials = [made(0, 0.1, 0, 0.9), made(1, 0.2, 0, best={}, last={"accuracy": NAN})]
    found = summary.of(trials)
    assert found.chosen.name == "0.1"
    assert found.configurations[1].best["accuracy"].mean == 0.9
    says(notes(trials), "1 never accuracy")


def test_nothing_is_chosen_where_no_trial_has_a_finite_value():
    trials = [made(n, n, 0, best={}, last={"accuracy": NAN}) for n in range(2)]
    assert summary.of(trials).chosen is None
    says(notes(trials), "no configuration chosen accuracy")
    assert tables.render(summary.of(trials))


def test_a_metric_of_some_trials_is_counted_and_said():
    both = {"accuracy": 0.9, "f1": 0.8}
    trials = [made(0, 0.1, 0, 0.9), made(1, 0.1, 1, best=both, last=both)]
    assert summary.of(trials).chosen.best["f1"].n == 1
    says(notes(trials), "1 2 finished finite f1")


def test_only_what_has_finished_counts_and_the_budgets_are_said():
    trials = [
        made(0, 0.1, 0, 0.90),
        made(1, 0.1, 1, 0.70, state="paused", step=500),
        made(2, 0.2, 0, 0.95, state="paused", step=500),
        made(3, 0.3, 0, 0.50, state="paused", step=100),
        made(4, 0.4, 0, state="waiting", step=0),
        made(5, 0.5, 0, state="failed", step=0, reason="disk full"),
    ]
    found = summary.of(trials)
    assert found.chosen.name == "0.1"
    assert found.chosen.best["accuracy"].n == 1
    assert [each.is_finished for each in found.configurations].count(True) == 1
    text = notes(trials)
    says(text, "1 done 2,000 2 paused 500 100")
    says(text, "means 0.1 optimistic")
    says(text, "1 trial finish")
    says(text, "5 disk full")


def test_a_study_whose_trials_are_all_paused_chooses_nothing_yet():
    found = summary.of([made(n, n, 0, 0.9, state="paused", step=500) for n in range(2)])
    assert found.chosen is None
    assert found.configurations[0].best["accuracy"].mean == 0.9


def test_the_same_trial_twice_counts_once():
    trials = [made(n, 0.1, 0, 0.9) for n in range(3)]
    assert summary.of(trials).chosen.best["accuracy"].n == 1
    assert "trials 1, 2" in notes(trials)


def test_the_choice_is_by_validation_and_a_look_at_other_tests_is_warned_of():
    def tested(n, accuracy, test):
        return made(n, n, 0, accuracy, test={"test/accuracy": test}, tests=1)

    trials = [tested(0, 0.9, 0.99), tested(1, 0.95, 0.90)]
    found = summary.of(trials)
    assert found.chosen.name == "1"
    says(tables.render(found), "test chosen 1")
    assert "0.99" not in tables.render(found)
    says(notes(trials), "used 2 configurations")
    assert "warning" not in notes([made(0, 0, 0, 0.9), tested(1, 0.95, 0.9)])


def test_folds_are_paired_and_their_intervals_widened():
    trials = [
        made(5 * n + fold, rate, 0, 0.9 + n / 50 + fold / 100, fold=fold)
        for n, rate in enumerate([0.1, 0.2])
        for fold in range(5)
    ]
    found = summary.of(trials)
    plain = statistics.spread([0.92 + fold / 100 for fold in range(5)])
    best = found.chosen.best["accuracy"]
    assert best.high - best.mean == pytest.approx(
        (plain.high - plain.mean) * math.sqrt((1 / 5 + 1 / 4) * 5)
    )
    assert "5 folds" in findings.comparisons(found)[0]
    says(notes(trials), "folds share")


def test_the_files_say_the_same_and_need_no_place_on_the_disk(tmp_path):
    (tmp_path / "a").mkdir()
    trials = [*three_rates(), made(15, 0.3, 0, NAN, fold=None, state="stopped")]
    tables.write(tmp_path / "a", summary.of(trials))
    facts = json.loads((tmp_path / "a" / layout.STUDY).read_text())
    assert facts["chosen"] == {"name": "0.005", "parameters": {RATE: 0.005}}
    assert facts["configurations"][0]["best"]["accuracy"]["n"] == 5
    assert facts["configurations"][-1]["best"]["accuracy"]["std"] is None
    says(facts["differences"][0]["in_words"], "cannot apart")
    with (tmp_path / "a" / layout.TRIALS_TABLE).open() as file:
        rows = [*csv.DictReader(file)]
    table = parquet.read_table(tmp_path / "a" / layout.TRIALS_PARQUET)
    assert [float(row["best/accuracy"]) for row in rows[:15]] == table["best/accuracy"].to_pylist()[
        :15
    ]
    assert (rows[0]["folder"], rows[0]["fold"]) == ("trials/0000-rate=0.001", "")
    assert str(tmp_path) not in (tmp_path / "a" / layout.STUDY).read_text()


def test_parameters_of_any_kind_have_a_column():
    values = {"A.list": [1, 2], "A.mixed": 1, "A.flag": True, "A.number": 1}
    others = {"A.list": [3], "A.mixed": "x", "A.flag": False, "A.number": 0.5}
    trials = [
        trial.Trial(n, Path("x"), parameters, 0, None, "waiting")
        for n, parameters in enumerate([values, others, {}])
    ]
    tables.write(Path(), summary.of(trials))
    row = parquet.read_table(layout.TRIALS_PARQUET).to_pylist()[0]
    assert {name: row[name] for name in values} == {
        "A.list": "[1, 2]", "A.mixed": "1", "A.flag": True, "A.number": 1.0
    }  # fmt: skip


@pytest.mark.parametrize("count", [0, 1])
def test_a_study_that_has_hardly_begun_has_a_summary(count):
    found = summary.of([made(n, 0.1, n, state="waiting", step=0) for n in range(count)])
    assert tables.render(found)
    tables.write(Path(), found)
    assert json.loads(Path(layout.STUDY).read_text())["chosen"] is None


def test_a_study_ends_with_its_files_its_pictures_and_its_table(capsys):
    result = publish.publish(Path(), three_rates())
    assert {path.name for path in Path().iterdir()} == {
        layout.STUDY, layout.TRIALS_TABLE, layout.TRIALS_PARQUET, layout.PLOTS
    }  # fmt: skip
    assert result["best"]["parameters"] == {RATE: 0.005}
    low, high = result["best"]["interval"]
    assert low < result["best"]["accuracy"] < high
    says(capsys.readouterr().err, "0.005 0.02 apart")
    json.dumps(result)


def test_pictures_are_drawn_again_only_where_something_is_new():
    publish.publish(Path(), three_rates())
    picture = Path(layout.PLOTS, "accuracy-box.svg")
    picture.write_text("drawn before")
    publish.publish(Path(), three_rates())
    assert picture.read_text() == "drawn before"
    publish.publish(Path(), [*three_rates(), made(15, 0.3, 0, 0.9)])
    assert picture.read_text().startswith("<?xml")
