"""Reports in a real browser: headless Chromium, which runs a script of the test in the page."""

import html
import json
import re
import shutil
import subprocess
import textwrap

import folders_of_runs
import pytest
from wording import each_says, says

from runner import main

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium")

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--virtual-time-budget=4000", "--window-size=1200,900", "--dump-dom"),
)
ERRORS = """
    window.problems = [];
    addEventListener("error", (event) => problems.push(event.message));
    addEventListener("securitypolicyviolation", (event) => problems.push(event.violatedDirective));
    console.error = (...said) => problems.push(said.join(" "));
    window.alert = (said) => problems.push(`alert: ${said}`);
"""
HELPERS = """
    const all = (query, within = document) => [...within.querySelectorAll(query)];
    const title = (each) => each.querySelector("h3").textContent;
    const figure = (name) => all("figure").find((each) => title(each) === name);
    const count = (name, query) => all(query, figure(name)).length;
    const set = (id, value) => {
      const field = document.getElementById(id);
      field.value = value;
      field.dispatchEvent(new Event("input"));
    };
    const found = {};
"""


GEOMETRY = """
    const inside = (x, y, box) =>
      x > box.left + 1 && x < box.right - 1 && y > box.top + 2 && y < box.bottom - 2;
    const crosses = (line, box) => {
      const length = line.getTotalLength(), to = line.getScreenCTM();
      for (let at = 0; at <= length; at += 2) {
        const point = line.getPointAtLength(at).matrixTransform(to);
        if (inside(point.x, point.y, box)) return true;
      }
      return false;
    };
    const drawings = all("svg[role=img]");
    const labels = (drawing) => all("text:not(.bad)", drawing);
    const strikes = (drawing, box) =>
      all("line, .trials path", drawing).some((line) => crosses(line, box));
    found.struck = drawings.flatMap((drawing) => labels(drawing).filter((label) =>
      strikes(drawing, label.getBoundingClientRect())).map((label) => label.textContent));
    found.touching = drawings.flatMap((drawing) => {
      const level = labels(drawing).filter((label) => !label.hasAttribute("transform"));
      const boxes = level.map((label) => [label.textContent, label.getBoundingClientRect()]);
      return boxes.filter(([, a], n) => boxes.slice(n + 1).some(([, b]) =>
        a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3
      )).map(([text]) => text);
    });
    const size = (each) => parseFloat(getComputedStyle(each).fontSize)
      * (each.getScreenCTM ? Math.abs(each.getScreenCTM().a) || 1 : 1);
    const texts = [...all("main td, main th, main p, main span, main small, main li, header p"),
      ...drawings.flatMap(labels).filter((label) => !label.hasAttribute("transform"))];
    found.smallest = Math.min(...texts.map(size));
    const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    found.broken = [];
    while (walker.nextNode()) {
      const node = walker.currentNode;
      if (!node.parentElement.closest("td, th, dd, dt, .bars")) continue;
      if (!node.parentElement.checkVisibility()) continue;
      for (const word of node.data.matchAll(/[^\\s-]+/g)) {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        if (range.getClientRects().length > 1) found.broken.push(word[0]);
      }
    }
    const root = document.documentElement;
    found.wide = root.scrollWidth - Math.max(root.clientWidth, root.getBoundingClientRect().width);
"""


def seen(page, script, tmp_path, *, width=None):
    """What a script, run in the page, has put into `found`; there is no error in the console.

    The page may be narrower than the least width of a window.
    """
    text = page.read_text()
    if width:
        text = text.replace("</head>", f"<style>html {{ width: {width}px; }}</style></head>", 1)
    write = 'document.body.replaceChildren(); document.body.textContent = "RESULT" + JSON.stringify'
    script = f"{HELPERS}\n{textwrap.dedent(script)}\n{write}({{...found, problems}}) + 'END';"
    wrapped = f'addEventListener("load", () => {{ try {{ {script} }} catch (error) {{ '
    wrapped += "document.body.textContent = 'RESULT' + JSON.stringify({problems: [String(error)]})"
    wrapped += " + 'END'; } });"
    text = text.replace("<head>", f"<head><script>{ERRORS}</script>", 1)
    text = text.replace("</body>", f"<script>{wrapped}</script></body>", 1)
    tried = tmp_path / "tried.html"
    tried.write_text(text)
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [str(CHROMIUM), *FLAGS, profile, tried.as_uri()],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    (result,) = re.findall(r"RESULT(\{.*\})END", done.stdout, re.S)
    result = json.loads(html.unescape(result))
    assert result.pop("problems") == []
    return result


EVIL = "<script>alert(1)</script>'\""


@pytest.fixture(scope="module")
def run_page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    training = [
        {"step": n, "training_loss": 2.0 / n, EVIL: n, "learning_rate": 0.1} for n in range(1, 101)
    ]
    training[49]["training_loss"] = "nan"
    rows = [
        {
            **{
                "kind": "evaluation",
                "step": n,
                "seconds": 0.1,
                "time": n,
                "checkpoint": f"ckpt-{n}",
            },
            "metrics": {"validation_loss": 3.0 / n, **{f"m{i}": i for i in range(8)}},
        }
        for n in (25, 50, 75, 100)
    ]
    for name, each in {"train.jsonl": training, "history.jsonl": rows}.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in each))
    spent = {"training": 80, "start": 10, "evaluation": 10, "from": 0}
    start = {"started": 0.0, "ended": 100.0, "state": "done", "step": 100, "spent": spent}
    (folder / "run.json").write_text(json.dumps({"starts": [{**start, "host": EVIL}]}))
    assert main.main(["--mode=report", f"--model_dir={folder}"]) == 0
    return folder / "report.html"


def test_curves_are_drawn_and_the_switches_work(run_page, tmp_path):
    found = seen(
        run_page,
        """
        found.charts = count("loss", "path.curve");
        found.legend = all(".legend button", figure("loss")).map((each) => each.textContent);
        found.marked = all("text.bad title", figure("loss")).map((each) => each.textContent);
        found.label = figure("loss").querySelector("svg[role=img]").getAttribute("aria-label");
        const ticks = () => all(".grid text", figure("loss")).map((each) => each.textContent);
        found.linear = ticks();
        document.getElementById("log").click();
        found.logarithmic = ticks();
        set("smooth", "0.9");
        found.raw = count("loss", "path.curve.raw");
        const one = figure("loss").querySelector(".legend button");
        one.click();
        found.pressed = one.getAttribute("aria-pressed");
        found.left = count("loss", "path.curve:not(.raw)");
        one.click();
        const drawing = figure("loss").querySelector("svg[role=img]");
        const box = drawing.getBoundingClientRect();
        const at = { clientX: box.right - 24, clientY: box.top + 50 };
        drawing.dispatchEvent(new PointerEvent("pointermove", at));
        found.hover = document.querySelector(".tip").innerText.split(/\\s+/);
        drawing.dispatchEvent(new KeyboardEvent("keydown", { key: "Home" }));
        drawing.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
        found.said = document.getElementById("said").textContent;
        set("filter", "learn");
        found.shown = all("figure.curves:not([hidden]) h3").map((each) => each.textContent);
        found.parts = all(".parts i").length;
        """,
        tmp_path,
    )
    assert found["charts"] == 2
    assert found["legend"] == ["training", "validation"]
    each_says(found["marked"], "training NaN step 50")
    says(found["label"], "loss 2 1 0.02 100 values")
    assert "1.5" in found["linear"]
    assert "0.1" in found["logarithmic"]
    assert found["raw"] == 2
    assert (found["pressed"], found["left"]) == ("false", 1)
    assert found["hover"] == ["step", "100", "training", "0.02", "validation", "0.03"]
    assert found["said"].startswith("step 2: training 1")
    assert found["shown"] == ["learning_rate"]
    assert found["parts"] == 3


def test_it_can_be_read_in_both_themes_and_by_a_screen_reader(run_page, tmp_path):
    found = seen(
        run_page,
        """
        const light = (text) => {
          const parts = text.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255);
          const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
          return [0.2126, 0.7152, 0.0722].reduce((sum, w, n) => sum + w * linear(parts[n]), 0);
        };
        const back = () => getComputedStyle(document.body).backgroundColor;
        const texts = ["body", ".soft", "nav a", "th", ".badge", ".legend span"];
        const contrast = () => texts.map((query) => {
          const a = light(getComputedStyle(document.querySelector(query)).color), b = light(back());
          return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        });
        found.first = [back(), Math.min(...contrast())];
        document.getElementById("theme").click();
        found.second = [back(), Math.min(...contrast())];
        found.unnamed = [
          ...all("svg[role=img]").filter((each) => !each.getAttribute("aria-label")),
          ...all("button").filter((each) => !each.textContent.trim()),
          ...all("input, select").filter((each) => !each.labels.length),
        ].map((each) => each.outerHTML.slice(0, 80));
        const ids = all("[id]").map((each) => each.id);
        found.twice = ids.filter((id, n) => ids.indexOf(id) !== n);
        const links = all("nav a").map((each) => each.getAttribute("href"));
        found.dangling = links.filter((link) => !document.querySelector(link));
        found.wide = document.documentElement.scrollWidth <= innerWidth;
        """,
        tmp_path,
    )
    assert found["first"][0] != found["second"][0]
    assert found["first"][1] > 4.5
    assert found["second"][1] > 4.5
    assert found["unnamed"] == found["twice"] == []
    assert found["dangling"] == []
    assert found["wide"]


@pytest.fixture(scope="module")
def study_page(tmp_path_factory):
    """A study whose parameters have long names, with trials that are done, paused and diverged."""
    folder = tmp_path_factory.mktemp("study")
    states = {6: "diverged", 9: "paused", 10: "paused", 11: "diverged"}
    kinds = ("match_lstm", "mnemonic_reader_with_memory", "bidirectional_attention_flow")
    for n in range(12):
        parameters = {
            "CosineLrConfig.initial_learning_rate": 10.0 ** (n // 2 - 5),
            "ReaderConfig.type": kinds[n // 4],
            "Net.hidden_layer_sizes": [64] * (1 + n // 6),
        }
        trial_folder = folder / "trials" / f"{n:04}-x"
        made_trial(trial_folder, n, parameters, n % 2, state=states.get(n, "done"))
    assert main.main(["--mode=report", f"--model_dir={folder}"]) == 0
    return folder / "report.html"


def made_trial(folder, n, parameters, seed, state="done"):
    folder.mkdir(parents=True)
    facts = {"number": n, "parameters": parameters, "seed": seed, "objective": ["accuracy", True]}
    (folder / "trial.json").write_text(json.dumps(facts))
    reason = "paused at step 20" if state == "paused" else ""
    status = {"state": "stopped" if reason else state, "step": 20, "reason": reason}
    (folder / "status.json").write_text(
        json.dumps({**status, "heartbeat": 0, "host": "", "pid": 1})
    )
    metrics = {"expected_calibration_error": 0.0123456}
    rows = [
        {
            **{"kind": "evaluation", "step": step},
            **{"metrics": {"accuracy": n / 20 + step / 100, **metrics}},
            **{"seconds": 0.1, "time": float(step), "checkpoint": f"ckpt-{step}"},
        }
        for step in (10, 20)
    ]
    (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def several_page(tmp_path_factory):
    """Three runs, one of which has a long name."""
    root = tmp_path_factory.mktemp("several")
    folders = [root / name for name in ("adam", "sgd", "a-run-with-quite-a-long-name")]
    for n, folder in enumerate(folders):
        folders_of_runs.make(folder, rate=10.0**-n, seed=n, accuracy=(0.5, 0.7 + n / 10, 0.9))
        rows = [
            {"step": step, "training_loss": 1 / step, "accuracy": step / 50, "learning_rate": 0.1}
            for step in (10, 20, 30)
        ]
        folders_of_runs.lines(folder / "train.jsonl", rows)
    runs = ",".join(map(str, folders))
    assert main.main(["--mode=report", f"--runs={runs}", f"--model_dir={root}"]) == 0
    return root / "report.html"


@pytest.fixture(scope="module")
def one_page(several_page):
    """One of these runs."""
    folder = several_page.parent / "a-run-with-quite-a-long-name"
    assert main.main(["--mode=report", f"--model_dir={folder}"]) == 0
    return folder / "report.html"


@pytest.mark.parametrize("width", [1200, 400])
@pytest.mark.parametrize("name", ["study_page", "several_page", "one_page"])
def test_nothing_is_struck_through_broken_or_too_small(name, width, request, tmp_path):
    found = seen(request.getfixturevalue(name), GEOMETRY, tmp_path, width=width)
    assert found["struck"] == found["touching"] == found["broken"] == []
    assert found["smallest"] >= 9
    assert found["wide"] <= 0


def test_a_run_has_one_color_in_all_charts(several_page, tmp_path):
    found = seen(
        several_page,
        """
        found.charts = all("figure.curves h3").map((each) => each.textContent);
        found.colors = all(".legend button").map((each) =>
          [each.textContent.split(":")[0], each.querySelector("line").getAttribute("stroke")]);
        """,
        tmp_path,
    )
    assert found["charts"] == ["accuracy", "loss", "learning_rate"]
    colors = {(name, color) for name, color in found["colors"]}
    assert len(colors) == len(dict(colors)) == len({color for _, color in colors}) == 3


def test_the_charts_of_a_study_are_drawn(tmp_path):
    for n in range(6):
        folder = tmp_path / "study" / "trials" / f"{n:04}-x"
        folder.mkdir(parents=True)
        facts = {"number": n, "parameters": {"a.rate": n // 2, "a.kind": EVIL * (n % 2)}}
        facts = {**facts, "seed": n % 2, "objective": ["accuracy", True]}
        if n > 3:
            facts["parameters"] = {"a.rate": 5, "a.kind": "b"}
        (folder / "trial.json").write_text(json.dumps(facts))
        status = {"state": "done", "step": 20, "reason": "", "heartbeat": 0, "host": "", "pid": 1}
        (folder / "status.json").write_text(json.dumps(status))
        rows = [
            {
                **{
                    "kind": "evaluation",
                    "step": step,
                    "metrics": {"accuracy": n / 10 + step / 100},
                },
                **{"seconds": 0.1, "time": 0.0, "checkpoint": f"ckpt-{step}"},
            }
            for step in (10, 20)
        ]
        (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main.main(["--mode=report", f"--model_dir={tmp_path / 'study'}"]) == 0
    found = seen(
        tmp_path / "study" / "report.html",
        """
        found.lines = count("all parameters", ".trials path");
        const heads = all("svg text.head", figure("all parameters"));
        found.names = heads.map((each) => each.firstChild.textContent);
        found.dots = count("accuracy over rate", "circle.dot");
        found.said = figure("accuracy over rate").querySelector("circle title").textContent;
        const boxes = "accuracy of each configuration";
        found.boxes = [count(boxes, ".box rect"), count(boxes, ".box path")];
        const select = figure(boxes).querySelector("select");
        select.value = "violin";
        select.dispatchEvent(new Event("change"));
        found.violins = [count(boxes, ".box rect"), count(boxes, ".box path")];
        found.ranks = count("rank by accuracy", "path.curve");
        """,
        tmp_path,
    )
    assert found["lines"] == 6
    assert found["names"] == ["rate", "kind", "accuracy"]
    assert found["dots"] == 6
    says(found["said"], "0 accuracy 0.2 done")
    assert found["boxes"] == [5, 0]
    assert found["violins"] == [0, 1]  # of the configuration with two runs
    assert found["ranks"] == 6
