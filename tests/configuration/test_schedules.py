"""A learning rate schedule follows the run's length, and one that does not fit it is told."""

import re
from pathlib import Path

import pytest
import toy
import yaml
from official.modeling.optimization import optimizer_factory
from wording import each_says, saying, says

import runner
from runner import config
from runner.configuration import schedules
from runner.errors import ConfigError
from runner.models import learning_rate

FILES = sorted((Path(__file__).parents[2] / "experiments").glob("*.gin"))


def made(kind, steps=100, *, warmup=None, **fields):
    """The toy experiment with a schedule, resolved as a run does."""
    chosen = {"learning_rate": {"type": kind, kind: fields}}
    if warmup is not None:
        chosen["warmup"] = {"type": "linear", "linear": {"warmup_steps": warmup}}
    experiment = toy.experiment({"trainer": {"train_steps": steps, "optimizer_config": chosen}})
    config.resolve(experiment)
    return experiment


def complaints(experiment):
    """Those about the schedule that official builds."""
    factory = optimizer_factory.OptimizerFactory(experiment.trainer.optimizer_config)
    built = factory.build_optimizer(factory.build_learning_rate())
    learning_rate.scale_rate(built)
    return list(schedules.complaints(experiment, lambda steps: learning_rate.rates(built, steps)))


def length(experiment):
    chosen = experiment.trainer.optimizer_config.learning_rate
    section = getattr(chosen, chosen.type)
    return getattr(section, "decay_steps", None) or getattr(section, "total_decay_steps", None)


COSINE = {"initial_learning_rate": 0.1}


@pytest.mark.parametrize("empty", [None, 0])
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("cosine", "decay_steps"),
        ("polynomial", "decay_steps"),
        ("exponential", "decay_steps"),
        ("power_linear", "total_decay_steps"),
    ],
)
def test_a_schedule_without_a_length_has_the_runs(kind, field, empty):
    assert length(made(kind, 70, **{field: empty})) == 70
    assert length(made(kind, 70, offset=10, **{field: empty})) == 60  # it ends with the run
    assert length(made(kind, 70, **{field: 30})) == 30


def test_a_schedule_follows_a_length_that_is_changed_and_keeps_one_that_was_given():
    experiment = runner.load("digits.gin").replace(trainer={"train_steps": 5000})
    config.resolve(experiment)
    assert length(experiment) == 5000
    given = ["CosineLrConfig.decay_steps = 2000"]
    experiment = runner.load("digits.gin", given).replace(trainer={"train_steps": 5000})
    config.resolve(experiment)
    assert length(experiment) == 2000


def included(path):
    """The experiments that one includes."""
    names = re.findall(r"^include '(.+)'", path.read_text(), re.MULTILINE)
    return [path.parent / name for name in names if name != "base.gin"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_experiment_is_right_where_its_length_alone_is_changed(path):
    texts = [each.read_text() for each in (path, *included(path))]
    in_epochs = any("EpochsConfig" in text for text in texts) or "cifar" in path.stem
    change = "EpochsConfig.train = 7" if in_epochs else "TrainerConfig.train_steps = 777"
    experiment = runner.load(path.name, [change, "EpochsConfig.examples = 1000"])
    assert complaints(experiment) == []


def test_the_length_is_written_down_and_a_resume_with_another_one_is_refused(tmp_path):
    def load(*params):
        return runner.load("digits.gin", ["TrainerConfig.steps_per_loop = 10", *params])

    runner.run(load("TrainerConfig.train_steps = 10"), tmp_path, "train")
    written = yaml.safe_load((tmp_path / "params.yaml").read_text())
    path = "trainer.optimizer_config.learning_rate.cosine.decay_steps"
    assert written["trainer"]["optimizer_config"]["learning_rate"]["cosine"]["decay_steps"] == 10
    assert length(config.load([str(tmp_path / "config.gin")])) == 10

    longer = "TrainerConfig.train_steps = 20"
    with pytest.raises(ConfigError) as refused:
        runner.run(load(longer), tmp_path, "train")
    assert f"{path}: 10 -> 20 (follows TrainerConfig.train_steps)" in str(refused.value)
    keeps = f"{path}=10"
    assert str(refused.value).endswith(f"set {path} = 10")
    kept = config.load(["digits.gin"], [longer], overrides=[keeps])
    assert runner.run(kept, tmp_path, "train", allow_config_change=False)["step"] == 20


def test_a_rate_of_0_is_told_before_the_first_step_with_its_place(tmp_path, capsys):
    given = ["CosineLrConfig.decay_steps = 10", "TrainerConfig.train_steps = 40"]
    runner.run(runner.load("digits.gin", given), tmp_path, "train", dry_run=True)
    said = capsys.readouterr().err
    says(said.splitlines(), "--gin_params CosineLrConfig.decay_steps 10 0 follow length")
    assert said.index("learning rate is 0") < said.index("first step")


@pytest.mark.parametrize(
    ("experiment", "said"),
    [
        (
            lambda: made("cosine", decay_steps=50, alpha=0.1, **COSINE),
            "CosineLrConfig.decay_steps 50 100 0 follow length",
        ),
        (
            lambda: made("cosine", decay_steps=120, offset=30, **COSINE),
            "CosineLrConfig.decay_steps 120 150 100 0 follow length",
        ),
        (
            lambda: made("power_linear", total_decay_steps=50, **COSINE),
            "PowerAndLinearDecayLrConfig.total_decay_steps 50 0 50% 100 follow length",
        ),
        (
            lambda: made("stepwise", boundaries=[30, 99], values=[0.1, 0.01, 0.001]),
            "StepwiseLrConfig.boundaries 30 99 ends 100 effect",
        ),
        (
            lambda: made("stepwise", boundaries=[30], values=[0.1, 0.0]),
            "StepwiseLrConfig.boundaries 30 learning 0 69% run's 100",
        ),
        (
            lambda: made("step_cosine_with_offset", boundaries=[0, 60], values=[0.1, 0.01]),
            "StepCosineLrConfig.boundaries 0 60 schedule ends 100",
        ),
        (
            lambda: made("constant", warmup=150, learning_rate=0.1),
            "LinearWarmupConfig.warmup_steps 150 warm-up 100",
        ),
    ],
)  # fmt: skip
def test_a_schedule_that_does_not_fit_the_run_is_told(experiment, said):
    each_says(complaints(experiment()), said)


@pytest.mark.parametrize(
    "experiment",
    [
        lambda: made("constant", learning_rate=0.1),
        lambda: made("cosine", warmup=20, **COSINE),
        lambda: made("cosine", 4, warmup=2, **COSINE),  # a quarter of its steps begins at 0
        lambda: made("cosine", decay_steps=95, offset=5, **COSINE),
        lambda: made("polynomial", decay_steps=10, cycle=True, **COSINE),
        lambda: made("exponential", decay_steps=10, decay_rate=0.9, **COSINE),
        lambda: made("stepwise", boundaries=[30, 98], values=[0.1, 0.01, 0.001]),
        lambda: made("power", **COSINE),
    ],
)
def test_a_schedule_that_fits_is_not_mentioned(experiment):
    assert complaints(experiment()) == []


def test_a_stepwise_rate_changes_after_its_boundary_as_tensorflow_has_it():
    experiment = made("stepwise", boundaries=[30], values=[0.5, 0.25])
    factory = optimizer_factory.OptimizerFactory(experiment.trainer.optimizer_config)
    built = factory.build_optimizer(factory.build_learning_rate())
    assert learning_rate.rates(built, [0, 29, 30, 31]) == [0.5, 0.5, 0.5, 0.25]


def test_a_negative_length_is_refused():
    with pytest.raises(ConfigError, match=saying("decay_steps -5 1 0 run")):
        config.validate(made("cosine", decay_steps=-5, **COSINE), trains=True, evaluates=False)
