"""The page about a study: its charts are of the trials that there are, and say what they found."""

import json
import re

import numpy as np
import pytest
from wording import each_says, says

from runner import main
from runner.inspection import study_page


def trial(study, number, rate, width, seed, accuracies, **more):
    folder = study / "trials" / f"{number:04}-x"
    folder.mkdir(parents=True)
    parameters = {"Lr.rate": rate, "Net.width": width}
    facts = {"number": number, "parameters": parameters, "seed": seed, "fold": None}
    facts["objective"] = ["accuracy", True]
    (folder / "trial.json").write_text(json.dumps({**facts, **more}))
    status = {"state": "done", "step": 10 * len(accuracies), "reason": "", "heartbeat": 0}
    (folder / "status.json").write_text(json.dumps({**status, "host": "", "pid": 1}))
    rows = [
        {
            **{"kind": "evaluation", "step": 10 * n, "metrics": {"accuracy": value, "other": 1.0}},
            **{"seconds": 0.1, "time": 0.0, "checkpoint": f"ckpt-{10 * n}"},
        }
        for n, value in enumerate(accuracies, 1)
    ]
    (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def study(folder, trials, seeds=2):
    """A study in which the rate decides and the width does not."""
    noise = np.random.default_rng(0)
    for n in range(trials):
        rate, width = 10.0 ** -(n // seeds % 4), [8, 16][n // seeds // 4 % 2]
        end = 0.9 - 0.1 * (n // seeds % 4) + noise.normal(scale=0.005)
        trial(folder, n, rate, width, n % seeds, [end / 2, end])
    return folder


def data_of(html):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    return {each["name"]: each for each in json.loads(text, parse_constant=pytest.fail)["charts"]}


def test_it_has_a_chart_of_each_kind(tmp_path, capsys):
    study(tmp_path, 16)
    assert main.main(["--mode=report", f"--model_dir={tmp_path}"]) == 0
    html = (tmp_path / "report.html").read_text()
    charts = data_of(html)
    each_says(
        charts,
        *("all parameters", "accuracy rate", "accuracy width"),
        *("accuracy configuration", "accuracy training", "rank accuracy"),
    )
    every = charts["all parameters"]
    assert [axis["name"] for axis in every["axes"]] == ["rate", "width", "accuracy"]
    assert [axis["log"] for axis in every["axes"]] == [True, False, False]
    assert [n for n, row in enumerate(every["rows"]) if row["best"]] == [0, 1]  # of the best rate
    assert len(charts["accuracy over rate"]["points"]) == 16
    groups = charts["accuracy of each configuration"]["groups"]
    assert [len(group["points"]) for group in groups] == [2] * 8
    assert groups[0]["best"]
    ranks = {each["name"]: each["y"] for each in charts["rank by accuracy"]["series"]}
    assert sorted(values[-1] for values in ranks.values()) == list(range(1, 13))
    says(html, "8 configurations 16 1 width")


def table_of(html):
    """The heads and rows of the table of configurations, as text."""
    (table,) = re.findall(r'id="configurations-h".*?<table.*?</table>', html, re.S)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("<tr")[1:]]
    return [[cell.replace("<wbr>", "") for cell in row] for row in cells]


def test_the_best_of_the_charts_is_the_configuration_that_the_headline_names(tmp_path):
    """The best single trial is one of another configuration."""
    trial(tmp_path, 0, 0.1, 8, 0, [0.5, 0.95])
    trial(tmp_path, 1, 0.1, 8, 1, [0.5, 0.5])
    trial(tmp_path, 2, 0.2, 8, 0, [0.5, 0.8])
    trial(tmp_path, 3, 0.2, 8, 1, [0.5, 0.8])
    html, _ = study_page.render(tmp_path)
    assert "is 0.2: accuracy 0.8" in html
    charts = data_of(html)
    for rows in (charts["all parameters"]["rows"], charts["accuracy over rate"]["points"]):
        assert [row["best"] for row in rows] == [False, False, True, True]
    marked = [row[0] for row in table_of(html) if "best" in row]
    assert marked == ["0.2"]


def test_a_column_that_no_configuration_fills_is_left_out(tmp_path):
    study(tmp_path / "one", 4, seeds=1)
    study(tmp_path / "two", 4)
    for name, several in (("one", False), ("two", True)):
        html, _ = study_page.render(tmp_path / name)
        head, *rows = table_of(html)
        assert ("95 % interval" in head) is several
        assert all(set(column) - {"", "-"} for column in zip(*rows, strict=True))
        assert "reason" not in html


def test_a_diverged_trial_is_drawn_as_it_counts_and_the_page_says_so(tmp_path):
    study(tmp_path, 4)
    trial(tmp_path, 4, 7.0, 8, 0, [0.5, 0.99])
    status = tmp_path / "trials" / "0004-x" / "status.json"
    status.write_text(status.read_text().replace("done", "diverged"))
    html, _ = study_page.render(tmp_path)
    points = data_of(html)["accuracy over rate"]["points"]
    assert points[-1]["y"] == min(point["y"] for point in points)
    says(points[-1]["said"], "scored worst")


def test_parameters_may_be_lists(tmp_path):
    study(tmp_path, 4)
    for n in range(4):
        path = tmp_path / "trials" / f"{n:04}-x" / "trial.json"
        facts = json.loads(path.read_text())
        facts["parameters"]["Net.sizes"] = [64] * (1 + n // 2)
        path.write_text(json.dumps(facts))
    html, _ = study_page.render(tmp_path)
    assert "[64, 64]" in html


def test_importance_is_that_of_what_matters(tmp_path):
    html, ended = study_page.render(study(tmp_path, 16))
    shares = dict(re.findall(r"<span>(\w+)</span><i style=.*?<b>(\d+) %</b>", html))
    assert int(shares["rate"]) > 95
    assert int(shares["width"]) < 5
    assert ended


def test_numbers_with_many_values_are_grouped():
    x = np.linspace(0, 1, 100)
    assert study_page.explained(x.tolist(), x) > 0.9
    assert study_page.explained(x.tolist(), np.random.default_rng(0).random(100)) < 0.1
    assert study_page.explained([1, 2], np.array([1.0, 2.0])) is None


def test_a_parameter_that_applies_to_some_trials_is_important_only_if_it_matters_there(tmp_path):
    study(tmp_path, 16)
    draws = np.random.default_rng(0)
    for n, path in enumerate(sorted(tmp_path.glob("trials/*/trial.json"))):
        facts = json.loads(path.read_text())
        facts["parameters"] |= {"Net.extra": float(draws.random())} if n % 2 else {}
        path.write_text(json.dumps(facts))
    html, _ = study_page.render(tmp_path)
    shares = dict(re.findall(r"<span>(\w+)</span><i style=.*?<b>(\d+) %</b>", html))
    assert int(shares["rate"]) > 95
    assert int(shares["extra"]) < 60


def test_trials_without_a_result_and_damaged_ones_are_left_out_and_named(tmp_path):
    study(tmp_path, 4)
    trial(tmp_path, 4, 5.0, 8, 0, [float("nan")])
    trial(tmp_path, 5, 7.0, "<script>", 0, [])
    (tmp_path / "trials" / "0003-x" / "trial.json").write_text("{")
    html, _ = study_page.render(tmp_path)
    assert "0003-x" in html
    says(html, "everything read")
    assert html.count("<script") == 2
    rows = data_of(html)["all parameters"]["rows"]
    assert [row["said"].split(",")[0] for row in rows] == [f"trial {n}" for n in (0, 1, 2, 4)]
    says(rows[-1]["said"], "scored worst")


def test_a_study_that_has_just_begun_has_a_page(tmp_path):
    (tmp_path / "trials").mkdir()
    html, ended = study_page.render(tmp_path)
    says(html, "0 chosen yet")
    assert ended


def test_two_hundred_trials_make_a_small_page(tmp_path):
    study(tmp_path, 200, seeds=1)
    html, _ = study_page.render(tmp_path)
    assert len(html) < 5_000_000
    assert len(data_of(html)["all parameters"]["rows"]) == 200
