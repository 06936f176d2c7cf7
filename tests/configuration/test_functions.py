"""Functions that a configuration names: bound by gin, written, read again, compared, called."""

import importlib

import pytest
import yaml
from wording import says

import runner
from runner import config
from runner.configuration import functions, gin_builder, gin_export, printing
from runner.errors import ConfigError
from runner.run_directory import config_change, watch

RULES = """
asked = []

def patience(times: int, step: float = 1.0):
    asked.append(step)
    return len(asked) >= times

def fails(why):
    raise KeyError(why)

def always():
    return True
"""
HOLDER = """
import dataclasses
from official.modeling.hyperparams import base_config
from runner.configuration.functions import FunctionConfig

@dataclasses.dataclass
class Holder(base_config.Config):
    rules: tuple[FunctionConfig, ...] = ()
"""
BOUND = ["EvaluatorConfig.give_up = @my_rules.patience", "my_rules.patience.times = 2"]


@pytest.fixture(autouse=True)
def my_rules(tmp_path, monkeypatch):
    """A module of the user's in the working folder."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_rules.py").write_text(RULES)


def load(*params, files=("digits.gin",), **more):
    return runner.load(files, ["import my_rules", *params], **more)


def rule(experiment):
    return experiment.run.evaluator.give_up


def refusal(*params, **more):
    with pytest.raises(ConfigError) as error:
        config.load(["digits.gin"], ["import my_rules", *params], **more)
    return str(error.value)


def test_gin_binds_a_function_and_its_parameters():
    made = rule(load(*BOUND))
    assert made.as_dict() == {"name": "my_rules.patience", "arguments": {"times": 2}}
    call = functions.load(made)
    assert [call(), call()] == [False, True]


@pytest.mark.parametrize("how", ["config.gin", "params.yaml"])
def test_what_a_run_writes_builds_it_again_and_is_no_change(tmp_path, how):
    experiment = load(*BOUND)
    as_yaml = config.as_yaml(experiment)
    if how == "config.gin":
        (tmp_path / how).write_text(gin_export.write(experiment))
        again = runner.load(how)
    else:
        (tmp_path / how).write_text(as_yaml)
        again = runner.load("digits.gin", config_files=[how])
    assert config.as_yaml(again) == as_yaml
    assert config_change.compare(yaml.safe_load(as_yaml), again) == []
    assert functions.load(rule(again))() is False


def test_the_scope_of_a_reference_chooses_what_is_bound_of_the_function():
    made = load(
        "EvaluatorConfig.give_up = @mine/my_rules.patience",
        "my_rules.patience.step = 2",
        "mine/my_rules.patience.times = 3",
    )
    assert rule(made).arguments.as_dict() == {"step": 2.0, "times": 3}


def test_a_field_may_hold_several(tmp_path):
    (tmp_path / "held.py").write_text(HOLDER)
    params = [
        "import held",
        "import my_rules",
        "held.Holder.rules = (@one/my_rules.patience, @two/my_rules.patience, @my_rules.always)",
        "one/my_rules.patience.times = 1",
        "two/my_rules.patience.times = 2",
    ]
    holder = importlib.import_module("held").Holder
    made, found = gin_builder.build(holder, [], params)
    patience = "my_rules.patience"
    assert [(each.name, each.arguments.as_dict()) for each in made.rules] == [
        (patience, {"times": 1}), (patience, {"times": 2}), ("my_rules.always", {})
    ]  # fmt: skip
    assert "two/my_rules" in found.origins["rules[1].arguments.times"]


def test_a_registered_experiment_takes_one_too():
    made = load(*BOUND, files=(), experiment="resnet_imagenet")
    assert rule(made).as_dict() == {"name": "my_rules.patience", "arguments": {"times": 2}}


def test_yaml_and_overrides_name_one_by_its_fields():
    text = "run.evaluator.give_up.name=my_rules.patience,run.evaluator.give_up.arguments.times=4"
    made = load(overrides=[text])
    assert rule(made).as_dict() == {"name": "my_rules.patience", "arguments": {"times": 4}}


def test_it_is_shown_with_the_places_where_it_was_given():
    made = load(*BOUND)
    shown = printing.render(made, config.origins(made), changed=True)
    (name,) = (line for line in shown.splitlines() if "my_rules.patience " in line)
    assert "EvaluatorConfig.give_up" in name
    (times,) = (line for line in shown.splitlines() if "times: 2" in line)
    assert "my_rules.patience.times" in times


def test_arguments_that_are_given_as_a_whole_are_shown_with_their_place(tmp_path):
    (tmp_path / "config.gin").write_text(gin_export.write(load(*BOUND)))
    made = runner.load("config.gin")
    shown = printing.render(made, config.origins(made), changed=True)
    (times,) = (line for line in shown.splitlines() if "times: 2" in line)
    assert "config.gin:" in times


def test_it_is_locked_with_the_rest():
    with pytest.raises(ValueError, match="locked"):
        rule(load(*BOUND)).arguments.times = 5


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ([*BOUND, "my_rules.patience.tims = 1"], "parameter tims times"),
        ([*BOUND, "my_rules.patience.times = 'x'"], "expected str 'x'"),
        (["EvaluatorConfig.give_up = @my_rules.patience()"], "@patience calls"),
        (["EvaluatorConfig.give_up = @my_rules.patiens"], "mean my_rules.patience"),
        (["EvaluatorConfig.give_up = 'my_rules.patience'"], "expected function"),
        (["my_rules.patience.times = 1"], "builds patience"),
        ([*BOUND, "my_rules.patience.step = @my_rules.always()"], "expected numbers"),
    ],
)
def test_mistakes_are_refused_where_they_are_written(params, said):
    message = refusal(*params)
    says(message, said)
    assert "--gin" in message


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ("name=my_rules.nothing", "module.function AttributeError module"),
        ("name=no_rules.any", "module.function ModuleNotFoundError module"),
        ("name=my_rules.asked", "must function"),
        ("name=my_rules.patience", "called required"),
        ("name=my_rules.always,run.evaluator.give_up.arguments.x=1", "unexpected keyword"),
    ],
)
def test_what_yaml_names_is_looked_for_before_anything_is_built(overrides, said):
    more = {"overrides": [f"run.evaluator.give_up.{overrides}"]}
    message = refusal(**more, trains=False, evaluates=True)
    assert message.startswith('--params_override "run.evaluator.give_up')
    says(message, said)


def test_a_rule_that_is_never_asked_is_refused():
    params = [*BOUND, "TrainerConfig.continuous_eval_timeout = None"]
    says(refusal(*params, trains=False, evaluates=True), "no effect")


class Clock:
    now = 0.0

    def __call__(self):
        self.now += 4.0
        return self.now


def waits(folder, give_up):
    """Waits for a run that never begins; returns the reason to give up, and the times of asking."""
    clock, times = Clock(), []

    def asked():
        times.append(clock.now)
        return give_up()

    seen = watch.Watch(folder, timeout=10, give_up=asked, note=lambda _: None, clock=clock)
    while not (reason := seen.look() and seen.wait()):
        pass
    return reason, times


def test_a_rule_is_asked_each_time_the_silence_is_too_long_until_it_gives_up(tmp_path):
    reason, times = waits(tmp_path / "run", functions.load(rule(load(*BOUND))))
    assert len(times) == 2
    assert times[1] - times[0] > 10
    says(reason, "heartbeat 0")


def test_an_evaluator_that_a_rule_ends_ends_well_and_says_so(tmp_path):
    short = "TrainerConfig.continuous_eval_timeout = 1"
    always = load("EvaluatorConfig.give_up = @my_rules.always", short)
    results = runner.run(always, tmp_path / "run", "continuous_eval")
    assert (results["status"], results["training"]) == ("stopped", "absent")
    says(results["reason"], "heartbeat")
    params = ["EvaluatorConfig.give_up = @my_rules.fails", "my_rules.fails.why = 'no'", short]
    with pytest.raises(KeyError, match="no"):
        runner.run(load(*params), tmp_path / "run", "continuous_eval")
