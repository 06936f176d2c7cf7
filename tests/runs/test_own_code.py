"""Actions, writers and stopping rules of a user's own, bound by gin in a file."""

import json
import sys
from pathlib import Path

import pytest
import yaml
from wording import saying, says

import runner
from runner import config
from runner.errors import ConfigError

MODULE = """
import json

CALLS = []

class Note:
    def __init__(self, label: str = "x", stop_at: int = 0):
        self.label, self.stop_at, self.calls = label, stop_at, 0

    def __call__(self, logs):
        CALLS.append((self.label, sorted(logs)))
        self.calls += 1
        return "enough" if self.calls == self.stop_at else None

def tell(logs, label: str = "told"):
    CALLS.append((label, sorted(logs)))

class Lines:
    def __init__(self, path: str):
        self.path, self.rows = path, []

    def __call__(self, step, values, name):
        self.rows.append({"step": step, "name": name, **values})

    def close(self):
        with open(self.path, "a") as file:
            file.writelines(json.dumps(row) + chr(10) for row in self.rows)

def after_two(evaluations, count: int = 2):
    if len(evaluations) >= count:
        step, metrics = evaluations[-1]
        return f"{count} evaluations, the last at step {step} with {len(metrics) > 1}"

def wrong(evaluations):
    return 3

class Idle:
    pass
"""
GIN = """
from __gin__ import dynamic_registration
import my_code
from runner import run_config
include 'digits.gin'

TrainerConfig.train_steps = 200
TrainerConfig.summary_interval = 50
TrainerConfig.checkpoint_interval = 50
TrainerConfig.validation_interval = 100
TrainerConfig.best_checkpoint_eval_metric = 'accuracy'
"""
ACTIONS = """
run_config.RunConfig.actions = (
    @loops/run_config.ActionConfig(), @seen/run_config.ActionConfig(),
    @best/run_config.ActionConfig(), @last/run_config.ActionConfig())
loops/run_config.ActionConfig.action = @loops/my_code.Note()
loops/run_config.ActionConfig.every = 80
loops/my_code.Note.label = 'every 80'
seen/run_config.ActionConfig.action = @seen/my_code.Note()
seen/run_config.ActionConfig.at = 'evaluation'
seen/my_code.Note.label = 'evaluated'
best/run_config.ActionConfig.action = @my_code.Note
best/run_config.ActionConfig.at = 'best'
my_code.Note.label = 'best'
last/run_config.ActionConfig.action = @my_code.tell
last/run_config.ActionConfig.at = 'end'
my_code.tell.label = 'ended'
"""
WRITERS = "RunConfig.writers = (@my_code.Lines(),)\nmy_code.Lines.path = 'rows.jsonl'\n"
RULE = "RunConfig.stopping_rules = (@my_code.after_two,)\n"


@pytest.fixture(autouse=True)
def my_code(tmp_path):
    (tmp_path / "my_code.py").write_text(MODULE)


def load(tmp_path, *texts, params=(), **more):
    (tmp_path / "mine.gin").write_text("\n".join([GIN, *texts]))
    return config.load(["mine.gin"], params, **more)


def calls():
    return sys.modules["my_code"].CALLS


@pytest.fixture
def bound(tmp_path, capsys):
    """The experiment of a finished run with actions, a writer and a rule, and its folder."""
    params = ["my_code.after_two.count = 9"]
    experiment = load(tmp_path, ACTIONS, WRITERS, RULE, params=params)
    runner.run(experiment, tmp_path / "run", "train_and_eval")
    assert "had no effect" not in capsys.readouterr().err  # though some are used late
    return experiment, tmp_path / "run"


def test_what_is_bound_is_called_and_written_and_is_no_change_in_a_resume(bound, tmp_path):
    experiment, folder = bound
    labels = [label for label, _ in calls()]
    assert labels.count("every 80") == 3  # at 80, 160 and the last step
    assert labels.count("evaluated") == 2
    assert 1 <= labels.count("best") <= 2
    assert labels[-1] == "ended"
    logs = dict(calls())
    assert "training_loss" in logs["every 80"]
    assert "accuracy" in logs["evaluated"]
    assert {"training_loss", "accuracy"} <= set(logs["ended"])

    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["name"] == "train"] == [50, 100, 150, 200]
    assert [row["step"] for row in rows if row["name"] == "validation"] == [100, 200]
    assert all("training_loss" in row for row in rows if row["name"] == "train")
    history = (folder / "history.jsonl").read_text().splitlines()
    (written,) = [row for row in rows if (row["name"], row["step"]) == ("validation", 200)]
    assert written["accuracy"] == json.loads(history[-1])["metrics"]["accuracy"]

    saved = yaml.safe_load((folder / "params.yaml").read_text())
    first = saved["run"]["actions"][0]
    assert first["action"] == {"name": "my_code.Note", "arguments": {"label": "every 80"}}
    assert (first["at"], first["every"]) == ("loop", 80)
    again = config.load([str(folder / "config.gin")])
    assert again.as_dict() == experiment.as_dict()
    texts = (ACTIONS, WRITERS, RULE)
    shorter = load(tmp_path, *texts, params=["my_code.after_two.count = 4"])
    assert runner.run(shorter, folder, "train_and_eval")["step"] == 200  # no refusal

    before = len(Path("rows.jsonl").read_text().splitlines())
    runner.run(load(tmp_path, WRITERS), folder, "eval")  # the writer gets the evaluation alone
    more = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert more[before:] == [written]


def test_a_run_that_only_trains_says_which_actions_are_left_to_evaluators(tmp_path, capsys):
    experiment = load(tmp_path, ACTIONS, params=["TrainerConfig.train_steps = 20"])
    runner.run(experiment, tmp_path / "run", "train")
    left = "best/, the action my_code.Note at 'evaluation', the action my_code.Note at 'best'"
    assert f"left to evaluators: {left}\n" in capsys.readouterr().err


def test_a_bare_action_is_called_after_each_loop_and_may_stop_the_run(tmp_path):
    bound = "RunConfig.actions = (@my_code.Note(),)\nmy_code.Note.stop_at = 2\n"
    experiment = load(tmp_path, bound, params=["TrainerConfig.steps_per_loop = 10"])
    results = runner.run(experiment, tmp_path / "run", "train")
    assert (results["status"], results["step"], results["reason"]) == ("stopped", 20, "enough")
    assert [label for label, _ in calls()] == ["x", "x"]


def test_a_stopping_rule_ends_the_run_and_a_resume_repeats_it(tmp_path):
    params = ["TrainerConfig.train_steps = 2000"]
    for _ in range(2):
        results = runner.run(
            load(tmp_path, RULE, params=params), tmp_path / "run", "train_and_eval"
        )
        assert (results["status"], results["step"]) == ("stopped", 200)
        says(results["reason"], "2 evaluations step 200 True")
    more = load(tmp_path, RULE, params=[*params, "my_code.after_two.count = 3"])
    assert runner.run(more, tmp_path / "run", "train_and_eval")["step"] == 300


def test_a_rule_that_gives_no_reason_is_named(tmp_path):
    experiment = load(tmp_path, "RunConfig.stopping_rules = (@my_code.wrong,)")
    with pytest.raises(ConfigError, match=saying("my_code.wrong returned 3")):
        runner.run(experiment, tmp_path / "run", "train_and_eval")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            ACTIONS + "my_code.Note.lable = 'a'",
            "Note lable label",
        ),
        ("RunConfig.actions = (@my_code.Not(),)", "mean"),
        ("RunConfig.actions = (@my_code.tell(),)", "@tell calls"),
        ("RunConfig.writers = ('my_code.Lines',)", "expected function"),
        ("RunConfig.writers = (@my_code.Lines(),)", "required path"),
        ("RunConfig.writers = (@my_code.tell,)", "cannot called"),
        ("RunConfig.actions = (@my_code.Idle(),)", "makes objects"),
        ("RunConfig.stopping_rules = (@my_code.Idle,)", "makes objects"),
        (
            ACTIONS + "seen/run_config.ActionConfig.every = 5",
            "effect evaluation",
        ),
        (ACTIONS + "last/run_config.ActionConfig.at = 'ends'", "mean end"),
        (
            "RunConfig.actions = (@my_code.tell, @one/run_config.ActionConfig())\n"
            "one/run_config.ActionConfig.action = @my_code.tell",
            "way not",
        ),
        (
            ACTIONS + "TrainerConfig.best_checkpoint_eval_metric = ''",
            "best effect TrainerConfig.best_checkpoint_eval_metric",
        ),
    ],
)
def test_a_mistake_in_a_binding_is_named_with_its_place(tmp_path, text, said):
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text, trains=True, evaluates=True)
    says(str(error.value), said)
    assert "mine.gin:" in str(error.value)
