"""The page about a study: its charts are of the trials that there are, and say what they found."""

import json
import re

import numpy as np
import pytest

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
    assert list(charts) == [
        *("all parameters", "accuracy over rate", "accuracy over width"),
        *("accuracy of each configuration", "accuracy while training", "rank by accuracy"),
    ]
    every = charts["all parameters"]
    assert [axis["name"] for axis in every["axes"]] == ["rate", "width", "accuracy"]
    assert [axis["log"] for axis in every["axes"]] == [True, False, False]
    assert sum(row["best"] for row in every["rows"]) == 1
    assert len(charts["accuracy over rate"]["points"]) == 16
    groups = charts["accuracy of each configuration"]["groups"]
    assert [len(group["points"]) for group in groups] == [2] * 8
    assert groups[0]["best"]
    ranks = {each["name"]: each["y"] for each in charts["rank by accuracy"]["series"]}
    assert sorted(values[-1] for values in ranks.values()) == list(range(1, 13))
    assert "The best of 8 configurations in 16 trials is rate 1, width" in html


def test_importance_is_that_of_what_matters(tmp_path):
    html, ended = study_page.render(study(tmp_path, 16))
    shares = dict(re.findall(r'<div class="bar"><span>(\w+)</span>.*?<b>(\d+) %</b>', html))
    assert int(shares["rate"]) > 95
    assert int(shares["width"]) < 5
    assert ended


def test_numbers_with_many_values_are_grouped():
    x = np.linspace(0, 1, 100)
    assert study_page.explained(x.tolist(), x) > 0.9
    assert study_page.explained(x.tolist(), np.random.default_rng(0).random(100)) < 0.1
    assert study_page.explained([1, 2], np.array([1.0, 2.0])) is None


def test_trials_without_a_result_and_damaged_ones_are_left_out_and_named(tmp_path):
    study(tmp_path, 4)
    trial(tmp_path, 4, 5.0, 8, 0, [float("nan")])
    trial(tmp_path, 5, 7.0, "<script>", 0, [])
    (tmp_path / "trials" / "0003-x" / "trial.json").write_text("{")
    html, _ = study_page.render(tmp_path)
    assert "0003-x" in html
    assert "Not everything could be read" in html
    assert html.count("<script") == 2
    assert len(data_of(html)["all parameters"]["rows"]) == 3


def test_a_study_that_has_just_begun_has_a_page(tmp_path):
    (tmp_path / "trials").mkdir()
    html, ended = study_page.render(tmp_path)
    assert "0 trials; nothing is chosen yet." in html
    assert ended


def test_two_hundred_trials_make_a_small_page(tmp_path):
    study(tmp_path, 200, seeds=1)
    html, _ = study_page.render(tmp_path)
    assert len(html) < 5_000_000
    assert len(data_of(html)["all parameters"]["rows"]) == 200
