"""The page about a run: what it says, and that nothing in a folder can break it."""

import json
import math
import re
import time

import finished
import folders_of_runs
import numpy as np
import pytest
import toy
from wording import says

from runner import main
from runner.inspection import curves, predictions, run_page
from runner.run_directory.run import Run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    finished.run(toy.experiment(), folder)
    return folder


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def evaluation(step, **metrics):
    return {
        **{"kind": "evaluation", "step": step, "metrics": metrics, "seconds": 0.5},
        **{"time": 1e9 + step, "checkpoint": f"ckpt-{step}"},
    }


def page_of(folder):
    """The page, without the marks that say where a name may be broken."""
    return run_page.render(Run(folder, strict=False)).replace("<wbr>", "")


def data_of(html):
    """What the page's script is given."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    return json.loads(text, parse_constant=pytest.fail)


def chart(html, name):
    return next(each for each in data_of(html)["charts"] if each["name"] == name)


def test_the_command_writes_a_page_into_the_folder(trained, capsys):
    assert main.main(["--mode=report", f"--model_dir={trained}"]) == 0
    results = json.loads(capsys.readouterr().out)
    html = (trained / "report.html").read_text()
    assert results["output"] == str(trained / "report.html")
    assert results["bytes"] == len(html.encode())
    says(html, "Done 40 accuracy")
    assert "config.gin --model_dir=" in html
    assert "SparseCategorical" not in html
    assert '<th scope="row">tensorflow</th>' in html
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)", html)  # nothing comes from elsewhere


def test_training_and_validation_share_an_axis(trained):
    loss = chart(page_of(trained), "loss")
    assert [each["name"] for each in loss["series"]] == ["training", "validation"]
    assert [each["x"] for each in loss["series"]] == [[10, 20, 30, 40], [20, 40]]


def test_further_sets_and_evaluators_have_curves_on_the_same_axis(tmp_path):
    (tmp_path / "params.yaml").write_text("run: {evaluation_sets: [{name: part}]}")
    names = {"part/validation_loss": 3.0, "f1/cat": 0.5, "validation_loss": 2.0}
    lines(tmp_path / "history.jsonl", [evaluation(10, **names)])
    (tmp_path / "eval-cpu").mkdir()
    lines(tmp_path / "eval-cpu" / "history.jsonl", [evaluation(10, validation_loss=4.0)])
    html = page_of(tmp_path)
    found = {each["name"]: each["y"] for each in chart(html, "loss")["series"]}
    assert found == {"part": [3.0], "validation": [2.0], "validation (cpu)": [4.0]}
    assert [each["name"] for each in chart(html, "f1")["series"]] == ["cat"]


def test_it_says_where_values_were_set_and_what_changed(tmp_path):
    (tmp_path / "params.yaml").write_text("trainer: {train_steps: 500}\ntask: {a: 1}")
    start = {"started": 1.0, "ended": 2.0, "state": "done", "step": 5, "mode": "train"}
    origins = {"trainer.train_steps": "mine.gin:7"}
    starts = [start, {**start, "origins": origins, "changed": ["trainer.train_steps: 5 -> 500"]}]
    (tmp_path / "run.json").write_text(json.dumps({"starts": starts}))
    html = page_of(tmp_path)
    row = r"trainer.train_steps</th><td class=\"long\">500</td><td class=\"long\">mine.gin:7</td>"
    assert re.search(row, html)
    assert "trainer.train_steps: 5 -&gt; 500" in html


EVIL = "\"><script>alert(1)</script>'&"


def test_everything_that_is_shown_is_escaped(tmp_path):
    folder = tmp_path / EVIL.replace("/", "-")
    (folder / "predictions").mkdir(parents=True)
    lines(folder / "history.jsonl", [evaluation(10, **{EVIL: 1.0, "x</script>/y": 2.0})])
    lines(folder / "train.jsonl", [{"step": 10, EVIL: 0.5}])
    start = {
        **{"started": 1.0, "ended": 2.0, "state": EVIL, "step": 5, "mode": EVIL, "host": EVIL},
        **{"command": ["runner", "--mode=train", EVIL], "versions": {EVIL: EVIL}},
        **{"origins": {EVIL: EVIL}, "changed": [EVIL], "code": {"diff": EVIL, "branch": EVIL}},
    }
    (folder / "run.json").write_text(json.dumps({"starts": [start]}))
    (folder / "status.json").write_text(EVIL)
    (folder / "params.yaml").write_text(json.dumps({EVIL: [EVIL]}))
    (folder / "overview.json").write_text(json.dumps({EVIL: EVIL, "layers": [{"layer": EVIL}]}))
    lines(folder / "predictions" / f"{EVIL.replace('/', '-')}.jsonl", [{"key": EVIL, EVIL: EVIL}])
    html = page_of(folder)
    assert html.count("<script") == 2  # the data and the page's own
    assert html.count("</script>") == 2
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    names = [each["name"] for each in data_of(html)["charts"]]
    assert names == ['"><script>alert(1)<', "x<"]


def test_values_that_are_not_finite_are_marked_and_break_nothing(tmp_path):
    values = ["nan", "inf", 1.0, 2.0, "-inf"]
    lines(tmp_path / "train.jsonl", [{"step": n, "m": each} for n, each in enumerate(values)])
    lines(tmp_path / "history.jsonl", [evaluation(3, m=float("nan"))])
    training, validation = chart(page_of(tmp_path), "m")["series"]
    assert (training["x"], training["y"]) == ([2, 3], [1.0, 2.0])
    assert training["bad"] == [[0, "NaN"], [1, "infinity"], [4, "-infinity"]]
    assert (validation["y"], validation["bad"]) == ([], [[3, "NaN"]])


def test_damaged_files_are_named_and_the_rest_is_shown(tmp_path):
    good = json.dumps(evaluation(10, accuracy=0.5))
    (tmp_path / "history.jsonl").write_text(
        f'{good}\n{{"kind\n{good}\n{{"kind": "x", "step": 1}}\n'
    )
    (tmp_path / "train.jsonl").write_text('{"step": 10, "a": 1}\n{"step": 20, "a": 2}\n{"ste')
    for name in ("run.json", "overview.json", "status.json", "params.yaml"):
        (tmp_path / name).write_text("{")
    run = Run(tmp_path, strict=False)
    html = run_page.render(run)
    assert [each["x"] for each in chart(html, "a")["series"]] == [[10, 20]]
    for name in ("run.json", "overview.json", "status.json", "params.yaml"):
        assert any(name in each for each in run.problems), name
    assert any("history.jsonl:2" in problem for problem in run.problems)
    assert len(run.evaluations) == 2
    assert not any("train.jsonl" in each for each in run.problems)  # it is being written
    says(html, "everything read")


def test_a_folder_without_a_run_is_refused_with_what_is_in_it(tmp_path, capsys):
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "status.json").write_text("{}")
    assert main.main(["--mode=report", f"--model_dir={tmp_path / 'runs'}"]) == 2
    says(capsys.readouterr().err, f"run runs {tmp_path / 'runs' / 'a'}")
    assert main.main(["--mode=report", "--model_dir=nowhere"]) == 2
    says(capsys.readouterr().err, "nowhere no")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--mode=report", "--gin_file=digits.gin"], "--gin_file effect"),
        (["--mode=runs", "--watch"], "--watch --mode=runs report status"),
        (["--mode=report", "--watch=often"], "--watch=often expected seconds"),
        (["--mode=report", "--output=a.pdf"], "--output=a.pdf html"),
    ],
)
def test_flags_without_effect_are_refused(flags, said, capsys):
    assert main.main([*flags, "--model_dir=run"]) == 2
    says(capsys.readouterr().err, said)


def test_a_long_run_makes_a_small_page_with_its_spikes(tmp_path):
    rows = np.random.default_rng(0).random((100_000, 6)).round(6).tolist()
    rows[50_123][0] = 1000.0
    lines(
        tmp_path / "train.jsonl",
        [
            {"step": n, **{f"m{i}": each for i, each in enumerate(row)}}
            for n, row in enumerate(rows)
        ],
    )
    lines(tmp_path / "history.jsonl", [evaluation(n, m0=0.5) for n in range(50_000)])
    html = page_of(tmp_path)
    assert len(html) < 2_000_000
    (spiky, validation) = chart(html, "m0")["series"]
    assert max(spiky["y"]) == 1000.0
    assert (spiky["x"][0], spiky["x"][-1], validation["x"][-1]) == (0, 99_999, 49_999)


def test_five_hundred_metrics_make_a_small_page(tmp_path):
    names = [f"metric {n}" for n in range(500)]
    rows = [evaluation(step, **dict.fromkeys(names, step / 7)) for step in range(0, 1000, 5)]
    lines(tmp_path / "history.jsonl", rows)
    html = page_of(tmp_path)
    assert len(html) < 2_000_000
    assert len(data_of(html)["charts"]) == 500


def test_predictions_show_a_matrix_calibration_and_samples(tmp_path):
    (tmp_path / "predictions").mkdir()
    rows = [
        {"key": n, "class": n % 2, "probabilities": [0.8, 0.2][:: 1 - 2 * (n % 2)], "label": 0}
        for n in range(10)
    ]
    lines(tmp_path / "predictions" / "step-5-validation.jsonl", rows)
    problems = []
    found = predictions.of(tmp_path, problems)
    assert found.matrix == [[5, 5], [0, 0]]
    assert found.bins == [pytest.approx((0.8, 0.5, 1.0))]
    assert found.error == pytest.approx(0.3)
    assert (found.wrong, found.samples[0][0], found.samples[5][0]) == (5, "1", "0")
    (tmp_path / "predictions" / "step-5-validation.jsonl").write_text("[1]\n")
    assert predictions.of(tmp_path, problems) is None
    assert problems


def test_watching_ends_with_the_run(tmp_path, monkeypatch, capsys):
    status = {"state": "running", "step": 1, "reason": "", "heartbeat": 0, "host": "", "pid": 1}
    (tmp_path / "status.json").write_text(json.dumps(status))
    pages = []

    def sleep(seconds):
        pages.append((tmp_path / "report.html").read_text())
        (tmp_path / "status.json").write_text(json.dumps({**status, "state": "done", "step": 2}))

    monkeypatch.setattr(time, "sleep", sleep)
    assert main.main(["--mode=report", "--watch=7", f"--model_dir={tmp_path}"]) == 0
    (page,) = pages
    assert '<meta http-equiv="refresh" content="7">' in page
    assert 'http-equiv="refresh"' not in (tmp_path / "report.html").read_text()


def test_thinning_keeps_the_extremes():
    x = range(10_000)
    y = [math.sin(each) for each in x]
    y[1234], y[4321] = 9, -9
    few_x, few_y = curves.thinned(x, y, 100)
    assert len(few_x) <= 100
    assert {9, -9} <= set(few_y)
    assert list(few_x) == sorted(few_x)


def test_several_runs_share_charts_and_a_table(tmp_path, capsys):
    for name, loss in (("a", 3.0), ("b", 2.0)):
        (tmp_path / name).mkdir()
        lines(tmp_path / name / "history.jsonl", [evaluation(10, validation_loss=loss)])
        (tmp_path / name / "params.yaml").write_text(f"task: {{rate: {loss}, same: 1}}")
    runs = f"--runs={tmp_path / 'a'},{tmp_path / 'b'}"
    assert main.main(["--mode=report", runs, f"--model_dir={tmp_path / 'both'}"]) == 0
    html = (tmp_path / "both" / "report.html").read_text().replace("<wbr>", "")
    found = {each["name"]: each["y"] for each in chart(html, "loss")["series"]}
    assert found == {"a: validation": [3.0], "b: validation": [2.0]}
    assert "task.rate" in html
    assert "task.same" not in html
    assert main.main(["--mode=report", f"--runs={tmp_path}", "--model_dir=x"]) == 2
    assert f"--runs={tmp_path} has no run" in capsys.readouterr().err


def test_several_runs_have_each_metric_once_and_each_run_one_color(tmp_path):
    """All of them decide by the same metric, and not all have all curves."""
    for n, name in enumerate(("a", "b", "c")):
        folders_of_runs.make(tmp_path / name, accuracy=(0.5, 0.9)[: 2 - n // 2], losses=(1.0,) * n)
    runs = f"--runs={','.join(str(tmp_path / name) for name in 'abc')}"
    assert main.main(["--mode=report", runs, f"--model_dir={tmp_path / 'all'}"]) == 0
    charts = data_of((tmp_path / "all" / "report.html").read_text())["charts"]
    names = [each["name"] for each in charts]
    assert names.count("accuracy") == 1
    assert len(names) == len(set(names))
    series = [one for each in charts for one in each["series"]]
    colors = {(one["name"].split(":")[0], one["color"]) for one in series}
    assert sorted(name for name, _ in colors) == ["a", "b", "c"]
    assert len({color for _, color in colors}) == 3


def test_the_samples_of_the_machine_have_charts(tmp_path):
    (tmp_path / "status.json").write_text("{}")
    lines(tmp_path / "system.jsonl", [{"step": 3, "time": 1e9, "cpu": 0.5}])
    assert [each["name"] for each in data_of(page_of(tmp_path))["charts"]] == ["machine: cpu"]
