"""Lists, numbers and defaults of the manual are those of the code."""

import ast
import json
import re
from pathlib import Path

import pytest

from runner import errors, main, run_config
from runner.command import table
from runner.core import layout
from runner.run_directory import status
from runner.run_directory.state import State
from scripts import results

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def text(name):
    (page,) = DOCS.rglob(name)
    return page.read_text()


def rows(page, first):
    """The cells of the table on a page whose heading begins with a cell."""
    (table,) = re.findall(rf"^\| {first} \|.*\n\|[-| ]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    lines = table.splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def names(cells):
    return [name for cell in cells for name in re.findall(r"`([a-z_]+)`", cell)]


def answers():
    """Every status that the code writes as a literal into the last line on stdout."""
    for path in (ROOT / "runner").rglob("*.py"):
        if path.name == "manifest.py":  # where `status` is a word of Kubernetes
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                given = {key.value: value for key, value in _literal_keys(node)}.get("status")
                either = [given.body, given.orelse] if isinstance(given, ast.IfExp) else [given]
                yield from (
                    each.value
                    for each in either
                    if isinstance(each, ast.Constant) and isinstance(each.value, str)
                )


def _literal_keys(node):
    pairs = zip(node.keys, node.values, strict=True)
    return [(key, value) for key, value in pairs if isinstance(key, ast.Constant)]


PLACES = {
    name: where.split(", ")
    for cell, where, _ in rows(text("exit_codes.md"), "status")
    for name in names([cell])
}


class TestStatuses:
    """Of the page about exit codes, which is the only list."""

    def at(self, place):
        return {name for name, where in PLACES.items() if place in where}

    def test_of_the_file(self):
        assert self.at("file") == set(status.WRITTEN)
        (row,) = (cells for cells in rows(text("folder.md"), "name") if cells[0] == "`status.json`")
        assert set(names(row[1:])) == set(status.WRITTEN)

    def test_of_answers(self):
        assert set(answers()) <= self.at("answer")
        assert {"rejected", "rehearsed", "submitted"} <= self.at("answer")

    def test_of_tables(self):
        assert self.at("tables") == set(State)

    def test_of_the_glossary(self):
        (entry,) = re.findall(r"^status\n((?:  .*\n)+)", text("glossary.md"), re.MULTILINE)
        assert "exit_codes.md#statuses" in entry
        assert not names([entry])


@pytest.mark.parametrize(
    "page",
    [
        *("workers", "kubernetes", "slurm", "ray", "buckets", "gpus"),
        *("exporting", "loggers", "performance", "comparison", "from_model_garden"),
        *("from_intqa", "from_pyabsa", "from_slim", "from_uncertainty_baselines"),
    ],
)
def test_what_was_not_tried_on_real_machines_is_one_click_away(page):
    assert "developers/tested.md" in text(f"{page}.md")
    tried = rows(text("tested.md"), r"\| tested on")
    parts = {cells[0] for cells in tried}
    assert {"devices", "several hosts", "Slurm", "Kubernetes", "Ray", "buckets"} <= parts
    assert all(len(cells) == 3 and all(cells) for cells in tried)


def test_the_readme_gives_both_costs_of_a_checkpoint():
    measured = text("performance.md")
    (stall, save) = re.findall(
        r"^\| time that a checkpoint blocks .* \| ([\d.]+) \| ([\d.]+) \|", measured, re.M
    )[0]
    (total, _) = re.findall(
        r"^\| total cost of a checkpoint .* \| ([\d.]+) \| ([\d.]+) \|", measured, re.M
    )[0]
    readme = (ROOT / "README.md").read_text()
    for seconds in (stall, save, total):
        assert f"{float(seconds) * 1000:.0f} ms" in readme


def test_exit_codes_that_launchers_do_not_retry():
    (cell,) = re.findall(r"^\| with ([\d, or]+) \|", text("kubernetes.md"), re.MULTILINE)
    kinds = errors.RunnerError.__subclasses__()
    assert {int(code) for code in re.findall(r"\d", cell)} == {kind.exit_code for kind in kinds} - {
        1
    }


def test_the_readme_names_modes_and_buckets_has_every_one():
    known = set(table.modes())
    assert set(re.findall(r"--mode=(\w+)", (ROOT / "README.md").read_text())) <= known
    assert set(names(row[0] for row in rows(text("buckets.md"), "mode"))) == known


def test_every_file_of_a_run_is_explained():
    page = text("folder.md")
    constants = {name: value for name, value in vars(layout).items() if name.isupper()}
    kept = {name: value for name, value in constants.items() if isinstance(value, str)}
    for name, value in kept.items():
        if not name.startswith("_") and not value.startswith("."):
            assert re.search(rf"`{re.escape(value)}[-/<`]|/{re.escape(value)}[/`]", page), value


DEFAULT = r"`(\w+Config)\.(\w+)`(?: seconds)? \(([\d.]+)[);]"
DEFAULTS = [
    (page.name, *found)
    for page in DOCS.rglob("*.md")
    if "_" not in page.parent.name
    for found in re.findall(DEFAULT, page.read_text())
]


@pytest.mark.parametrize(("page", "section", "field", "value"), DEFAULTS)
def test_defaults_are_those_of_the_code(page, section, field, value):
    default = getattr(getattr(run_config, section)(), field)
    assert float(default) == float(value), page


def test_pages_name_the_best_step_of_the_first_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ["--mode=train_and_eval", "--gin_file=digits.gin", "--model_dir=runs/digits"]
    assert main.main(flags) == 0
    history = Path("runs/digits/history.jsonl").read_text().splitlines()
    last = json.loads(history[-1])["metrics"]["accuracy"]
    if f"final accuracy {last:.4f}" not in text("monitoring.md"):
        pytest.skip("this processor rounds otherwise than the one on which the pages were made")
    best = json.loads(Path("runs/digits/best/info.json").read_text())["best_ckpt_global_step"]
    found = [
        *re.findall(r"best accuracy [\d.]+ at step (\d+)", text("monitoring.md")),
        *re.findall(r"best, step (\d+)", text("monitoring.md")),
        *re.findall(r"runs/digits/best/ckpt-(\d+)", text("ensembles.md")),
        *re.findall(r"exporting ckpt-(\d+)", text("exporting.md")),
    ]
    assert found == [f"{best:.0f}"] * 4


def test_results_are_those_recorded():
    page = text("results.md")
    assert "\n".join(results.table()) in page
    readme = (ROOT / "README.md").read_text().partition("## Results")[2].partition("\n## ")[0]
    means = re.findall(r"\| ([\d.]+), [\d.]+ to [\d.]+ \|", readme)
    assert len(means) == 3
    assert all(f"| {mean.rstrip('0')}, " in page for mean in means)
