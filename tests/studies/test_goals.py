"""Several objectives of a study, and limits on size, time and metrics."""

import itertools
import json
import statistics

import numpy as np
import pytest
from wording import saying, says

from runner import main
from runner.core import layout
from runner.errors import ConfigError
from runner.inspection import study_charts
from runner.studies import goals, space, suggest, summary, trial

ACCURACY = goals.Goal("accuracy", higher=True)
SIZE = "saved_model/bytes"
RATE = "CosineLrConfig.initial_learning_rate"
STUDY = [
    *("--mode=study", "--gin_file=digits.gin", "--jobs=2"),
    "--gin_params=from runner import run_config",
    "--gin_params=RunConfig.study = @run_config.StudyConfig()",
    *(
        f"--gin.TrainerConfig.{name}={value}"
        for name, value in {
            "train_steps": 20,
            "steps_per_loop": 10,
            "summary_interval": 10,
            "validation_interval": 10,
            "checkpoint_interval": 10,
        }.items()
    ),
]
CUBE = space.parse([f"A.{name}=uniform(-10, 10)" for name in "xyz"])
LAG = 2


def test_the_front_is_what_nothing_dominates():
    rows = np.random.default_rng(0).integers(0, 30, [60, 3]).tolist()
    found = goals.Goals((ACCURACY, goals.Goal("a", higher=False), goals.Goal("b", higher=False)))
    values = [{"accuracy": -x, "a": y, "b": z} for x, y, z in rows]
    expected = {
        number
        for number, row in enumerate(rows)
        if not any(
            other != row and all(a <= b for a, b in zip(other, row, strict=True)) for other in rows
        )
    }
    front = found.front(values)
    assert set(front) == expected
    assert 1 < len(front) < len(rows)
    first = [values[number]["accuracy"] for number in front]
    assert first == sorted(first, reverse=True)


def test_what_exceeds_a_limit_or_is_unknown_is_not_on_the_front():
    made = goals.parse([SIZE], [f"{SIZE} <= 10", "accuracy >= 0.5"], ACCURACY)
    rows = [
        {"accuracy": 0.9, SIZE: 11},
        {"accuracy": 0.8, SIZE: 10},
        {"accuracy": 0.4, SIZE: 1},
        {"accuracy": 0.99},
        {"accuracy": float("nan"), SIZE: 1},
    ]
    assert made.front(rows) == [1]
    assert [[str(each) for each in made.exceeded(row)] for row in rows[:3]] == [
        [f"{SIZE} <= 10"],
        [],
        ["accuracy >= 0.5"],
    ]
    assert goals.Goals.read(json.loads(json.dumps(made.facts))) == made
    assert made.formats == ["saved_model"]
    assert goals.parse([], [], ACCURACY).facts == {}


def test_noise_in_the_size_of_a_file_puts_no_worse_model_on_the_front():
    made = goals.parse([SIZE], [], ACCURACY)
    assert made.front([{"accuracy": 0.9, SIZE: 165_320}, {"accuracy": 0.8, SIZE: 165_319}]) == [0]


@pytest.mark.parametrize(
    ("objectives", "limits", "main_goal", "message"),
    [
        (["f1"], [], ACCURACY, "'f1' higher tflite/bytes"),
        (["f1:up"], [], ACCURACY, "'f1:up' higher"),
        (["tflite/kilobytes"], [], ACCURACY, "'tflite/kilobytes' bytes milliseconds"),
        (["accuracy:higher"], [], ACCURACY, "'accuracy' more than once"),
        ([SIZE], [], None, "best_checkpoint_eval_metric first"),
        ([], [f"{SIZE} < 10"], ACCURACY, "limits <= number"),
        ([], [f"{SIZE} <= ten"], ACCURACY, "limits <= number"),
    ],
)
def test_texts_that_are_no_goals_are_refused(objectives, limits, main_goal, message):
    with pytest.raises(ConfigError, match=saying(message)):
        goals.parse(objectives, limits, main_goal)


def said(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def tried(strategy, count, seed, made):
    """Searches for points near the origin and near (4, 4, 4), with a mean of at least -1."""
    results = []
    for number in range(count):
        known = results[: max(number - LAG + 1, 0)]
        chosen = suggest.choose(strategy, CUBE, number, known, seed=seed, lag=LAG, goals=made)
        x = np.array([*chosen.values()])
        excess = tuple(each.excess(x.mean()) for each in made.limits)
        results.append(
            suggest.Result(chosen, float((x**2).sum()), (float(((x - 4) ** 2).sum()),), excess)
        )
    return results


def cost(results):
    """The median of the sum of both objectives, infinite beyond the limit."""
    return statistics.median(
        each.value + each.others[0] if each.excess[0] <= 0 else float("inf") for each in results
    )


@pytest.mark.parametrize("strategy", ["tpe", "nsga2"])
def test_a_search_comes_closer_to_the_front_within_the_limits_and_repeats_itself(strategy):
    made = goals.parse(["b:lower"], ["x >= -1"], goals.Goal("a", higher=False))
    first = tried(strategy, 20, 0, made)
    assert tried(strategy, 20, 0, made) == first
    costs = [
        statistics.median(cost(tried(each, 70, seed, made)[50:]) for seed in range(3))
        for each in (strategy, "random")
    ]
    assert costs[0] < 0.7 * costs[1]


@pytest.mark.parametrize("strategy", ["tpe", "nsga2"])
def test_diverged_and_unknown_results_do_not_stop_a_search(strategy):
    made = goals.parse(["b:lower"], ["c <= 1"], goals.Goal("a", higher=False))
    kinds = itertools.cycle(
        [
            (float("inf"), (None,), (None,)),
            (1.0, (None,), (0.5,)),
            (None, (1.0,), (None,)),
            (1.0, (2.0,), (-0.5,)),
        ]
    )
    results = []
    for number in range(24):
        chosen = suggest.choose(strategy, CUBE, number, results, seed=0, lag=1, goals=made)
        results.append(suggest.Result(chosen, *next(kinds)))
    assert len({each.chosen["A.x"] for each in results}) == 24


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--gin.StudyConfig.strategy='nsga2'", "--trials=4"], "'nsga2' several objectives"),
        (
            ["--gin.StudyConfig.stopping='asha'", f"--gin.StudyConfig.objectives=('{SIZE}',)"],
            "objectives 'asha'",
        ),
        (
            [
                "--gin.StudyConfig.strategy='cma_es'",
                "--trials=4",
                f"--gin.StudyConfig.limits=('{SIZE} <= 1',)",
            ],
            "'cma_es' limits",
        ),
        (
            [f"--gin.StudyConfig.across='{RATE}'", f"--gin.StudyConfig.limits=('{SIZE} <= 1',)"],
            "limits across",
        ),
    ],
)
def test_what_goals_cannot_be_combined_with_is_refused(flags, message, tmp_path, capsys):
    command = [*STUDY, *flags, f"--vary={RATE}=log(0.001, 0.1)", f"--model_dir={tmp_path / 's'}"]
    if "asha" in message or "across" in message:
        command = [each.replace("log(0.001, 0.1)", "0.001,0.1") for each in command]
    assert main.main(command) == 2
    says(capsys.readouterr().err, message)


def test_exported_models_are_measured_once_and_the_front_is_in_every_result(tmp_path, capsys):
    sizes = "--vary=MLPConfig.hidden=(4,),(64,),(64,64,64)"
    bound = "--gin.StudyConfig.limits=('saved_model/bytes <= 220000',)"
    command = [*STUDY, sizes, bound, f"--gin.StudyConfig.objectives=('{SIZE}',)"]
    assert main.main([*command, f"--model_dir={tmp_path}"]) == 0
    result = said(capsys)
    trials = trial.all_of(tmp_path)
    found = summary.of(trials)
    by_size = {tuple(each.parameters["MLPConfig.hidden"]): each for each in found.configurations}
    small, middle, large = (by_size[size].means for size in ((4,), (64,), (64, 64, 64)))
    assert small[SIZE] < middle[SIZE] < 220_000 < large[SIZE]
    assert [row["parameters"]["MLPConfig.hidden"] for row in result["front"]] == [[64], [4]]
    assert result["best"]["parameters"] == {"MLPConfig.hidden": [64]}
    assert found.configurations[-1] is by_size[64, 64, 64]
    written = json.loads((tmp_path / layout.STUDY).read_text())
    assert written["front"] == [each.name for each in found.front]
    assert any("220000" in note.replace(",", "") for note in written["notes"])
    (chart,) = (
        each for each, _ in study_charts.charts(found) if each["name"] == f"accuracy over {SIZE}"
    )
    assert [point["best"] for point in chart["points"]].count(True) == 2

    partial = trials[0].folder / layout.EXPORT / "saved_model/.tmp" / layout.EXPORT_FACTS
    partial.parent.mkdir()
    partial.write_text("{")  # as after a kill
    exports = {path: path.stat().st_mtime_ns for path in tmp_path.rglob(layout.EXPORT_FACTS)}
    assert len(exports) == 4
    assert main.main([*command, f"--model_dir={tmp_path}"]) == 0
    assert said(capsys)["front"] == result["front"]
    assert {path: path.stat().st_mtime_ns for path in exports} == exports
    assert main.main([*STUDY, sizes, f"--model_dir={tmp_path}"]) == 2
    says(capsys.readouterr().err, "other objectives limits --model_dir")
