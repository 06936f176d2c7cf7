"""Lengths in epochs become steps."""

import dataclasses

import numpy as np
import pytest
import toy
import yaml
from official.core import config_definitions as cfg
from wording import each_says, saying, says

from runner import config, inputs, run_config
from runner.configuration import epochs
from runner.errors import ConfigError
from runner.history import policies
from runner.run_directory import begun
from tasks.images import image_data, image_examples


def made(size=100, batch=10, overrides=None, **fields):
    """The toy experiment with the lengths of `fields` in epochs, its steps left at the defaults."""
    experiment = toy.experiment(overrides)
    standard = cfg.TrainerConfig()
    for name in ("train_steps", "validation_interval", "checkpoint_interval", "summary_interval"):
        setattr(experiment.trainer, name, getattr(standard, name))
    data = experiment.task.train_data
    data.num_examples, data.global_batch_size = size, batch
    experiment.run.epochs.override(fields)
    return experiment


def rate(kind, warmup=None):
    """Overrides that choose a learning rate schedule and a warm-up."""
    chosen = {"learning_rate": {"type": kind}, "warmup": {"type": warmup}}
    return {"trainer": {"optimizer_config": chosen}}


def complaints(experiment):
    with pytest.raises(ConfigError) as error:
        epochs.resolve(experiment)
    return str(error.value).splitlines()


@pytest.mark.parametrize(
    ("examples", "batch", "length", "steps"),
    [
        (100, 10, 3, 30),
        (1437, 64, 10, 225),  # 224.53
        (1437, 64, 1, 22),  # 22.45
        (105, 10, 1, 11),  # 10.5
        (64, 64, 1, 1),
        (1000, 10, 0.1, 10),  # not 11, though 0.1 is a little more than a tenth
        (1000, 10, 0.1 + 0.2, 30),
        (90, 10, 1 / 3, 3),
        (1000, 10, 1e-9, 1),
        (30, 64, 1, 1),
        (10**12, 1, 3, 3 * 10**12),
    ],
)
def test_a_length_is_the_step_nearest_to_its_end(examples, batch, length, steps):
    experiment = made(examples, batch, train=length)
    epochs.resolve(experiment)
    assert experiment.trainer.train_steps == steps


def test_every_length_sets_the_steps_that_it_stands_for_and_is_shown():
    experiment = made(
        1437,
        64,
        rate("cosine", warmup="linear"),
        train=10,
        validation_interval=1,
        checkpoint_interval=2.5,
        summary_interval=0.5,
        warmup=0.25,
        decay=9,
        stopping_from=4,
        best_from=3,
    )
    part = run_config.EvaluationSetConfig(name="part", interval_epochs=2)
    experiment.run.evaluation_sets = (run_config.EvaluationSetConfig(name="other"), part)
    each_says(
        epochs.resolve(experiment),
        "epochs 1,437 batches 64 22.5",
        "TrainerConfig.train_steps 225 10 epochs",
        "TrainerConfig.validation_interval 22 1 epoch",
        "TrainerConfig.checkpoint_interval 56 2.5 epochs",
        "TrainerConfig.summary_interval 11 0.5 epochs",
        "LinearWarmupConfig.warmup_steps 6 0.25 epochs",
        "CosineLrConfig.decay_steps 202 9 epochs",
        "EarlyStoppingConfig.from_step 90 4 epochs",
        "RetentionConfig.from_step 67 3 epochs",
        "EvaluationSetConfig.interval part 45 2 epochs",
    )
    trainer = experiment.trainer
    assert (trainer.train_steps, trainer.validation_interval) == (225, 22)
    assert (trainer.checkpoint_interval, trainer.summary_interval) == (56, 11)
    assert trainer.optimizer_config.warmup.linear.warmup_steps == 6
    assert trainer.optimizer_config.learning_rate.cosine.decay_steps == 202
    assert experiment.run.early_stopping.from_step == 90
    assert experiment.run.retention.from_step == 67
    assert [one.interval for one in experiment.run.evaluation_sets] == [0, 45]


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("cosine", "decay_steps"),
        ("exponential", "decay_steps"),
        ("polynomial", "decay_steps"),
        ("power_linear", "total_decay_steps"),
    ],
)
def test_every_schedule_that_has_a_length_takes_it_in_epochs(kind, field):
    experiment = made(100, 10, rate(kind), decay=2)
    epochs.resolve(experiment)
    schedule = experiment.trainer.optimizer_config.learning_rate.get()
    assert getattr(schedule, field) == 20


@pytest.mark.parametrize("kind", ["stepwise", "step_cosine_with_offset"])
def test_boundaries_are_the_steps_that_end_their_epochs(kind):
    experiment = made(105, 10, rate(kind), boundaries=(0, 1, 2.5))
    lines = epochs.resolve(experiment)
    schedule = experiment.trainer.optimizer_config.learning_rate.get()
    assert list(schedule.boundaries) == [0, 11, 26]
    assert lines[-1].endswith("Config.boundaries = [0, 11, 26] (0, 1, 2.5 epochs)")


@pytest.mark.parametrize("kind", ["stepwise", "step_cosine_with_offset"])
@pytest.mark.parametrize(
    ("train", "boundaries"),
    [(200, [6300, 12600, 16800]), (10, [315, 630, 840]), (1, [32, 63, 84])],
)
def test_shares_of_a_training_in_epochs_are_epochs(kind, train, boundaries):
    experiment = made(1050, 10, rate(kind), train=train, boundary_shares=(0.3, 0.6, 0.8))
    lines = epochs.resolve(experiment)
    schedule = experiment.trainer.optimizer_config.learning_rate.get()
    assert list(schedule.boundaries) == boundaries
    says(lines[-1], f"boundaries {boundaries} 0.3 0.6 0.8")
    in_epochs = tuple(share * train for share in (0.3, 0.6, 0.8))
    same = made(1050, 10, rate(kind), train=train, boundaries=in_epochs)
    epochs.resolve(same)
    schedule = same.trainer.optimizer_config.learning_rate.get()
    assert list(schedule.boundaries) == boundaries


def test_shares_of_a_training_in_steps_need_no_epochs():
    experiment = made(0, 10, rate("stepwise"), boundary_shares=(0.3, 0.6, 0.8))
    experiment.trainer.train_steps = 101
    line = "StepwiseLrConfig.boundaries = [31, 61, 81] (0.3, 0.6, 0.8 of the training)"
    assert epochs.resolve(experiment) == [line]
    assert list(experiment.trainer.optimizer_config.learning_rate.stepwise.boundaries) == [
        31,
        61,
        81,
    ]
    assert epochs.resolve(experiment) == [line]


def test_nothing_in_epochs_changes_nothing():
    experiment = toy.experiment()
    before = experiment.as_dict()
    assert epochs.resolve(experiment) == []
    assert experiment.as_dict() == before


def test_resolving_again_changes_nothing_and_shows_the_same():
    experiment = made(105, 10, rate("stepwise"), train=2, boundaries=(1,))
    lines = epochs.resolve(experiment)
    before = experiment.as_dict()
    for section in (experiment.trainer, experiment.trainer.optimizer_config.learning_rate.stepwise):
        section.lock()
    assert epochs.resolve(experiment) == lines
    assert experiment.as_dict() == before


# How many examples there are.


def test_the_number_of_examples_can_be_given_for_data_that_do_not_say_it():
    experiment = made(0, 10, train=2, examples=50)
    experiment.task.train_data = cfg.DataConfig(global_batch_size=10)
    epochs.resolve(experiment)
    assert experiment.trainer.train_steps == 10


def test_data_that_say_nothing_are_answered_with_what_would_say_it():
    ours = made(0, 10, train=2)
    (line,) = complaints(ours)
    says(line, "EpochsConfig.train 2 needs examples")
    assert "num_examples" in line
    assert "EpochsConfig.examples" in line

    officials = made(0, 10, train=2)
    officials.task = cfg.TaskConfig(train_data=cfg.DataConfig(global_batch_size=10))
    (line,) = complaints(officials)
    assert "num_examples" not in line
    assert "EpochsConfig.examples" in line


def test_an_epoch_needs_a_batch_size():
    (line,) = complaints(made(100, 0, train=2))
    assert "task.train_data.global_batch_size, which is 0" in line


@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ({"is_training": True}, 1438),
        ({"is_training": False}, 359),
        ({"is_training": True, "split": "all"}, 1797),
    ],
)
def test_images_are_counted_as_their_split_has_them(fields, size):
    data = image_data.ImageData(**fields)
    assert data.size() == size
    assert len(image_examples.read(image_data.source_of(data)).labels) == size


def test_images_of_a_file_are_counted(tmp_path):
    path = str(tmp_path / "images.npz")
    np.savez(path, images=np.zeros((12, 2, 2), np.uint8), labels=np.zeros(12, np.int32))
    assert image_data.ImageData(is_training=True, input_path=path).size() == 12
    assert image_data.ImageData(is_training=True, input_path=path, split="train").size() == 10
    with pytest.raises(ConfigError, match="no file"):
        image_data.ImageData(is_training=True, input_path="nowhere.npz").size()


def test_counted_images_take_no_number():
    with pytest.raises(ConfigError, match=r"num_examples=3 has no effect"):
        image_data.ImageData(is_training=True, num_examples=3).size()


@dataclasses.dataclass
class CountedData(inputs.DataConfig):
    def size(self):
        return 40


def test_a_task_of_ones_own_may_count_its_data():
    experiment = made(0, 10, train=2)
    experiment.task.train_data = CountedData(global_batch_size=10)
    epochs.resolve(experiment)
    assert experiment.trainer.train_steps == 8


# What is wrong.


def test_steps_and_epochs_that_disagree_are_refused_and_nothing_is_set():
    experiment = made(train=2, validation_interval=1)
    experiment.trainer.train_steps = 30
    (line,) = complaints(experiment)
    says(line, "TrainerConfig.train_steps 30 EpochsConfig.train 2 makes")
    assert experiment.trainer.validation_interval == cfg.TrainerConfig().validation_interval


def test_steps_and_epochs_that_agree_are_fine():
    experiment = made(train=2)
    experiment.trainer.train_steps = 20
    assert epochs.resolve(experiment)


@pytest.mark.parametrize("value", [-1, -0.5, float("nan"), float("inf")])
def test_a_length_is_a_number_from_0(value):
    (line,) = complaints(made(train=value))
    says(line, "must 0")


@pytest.mark.parametrize(
    "shares", [(0.0,), (1.0,), (0.6, 0.3), (0.3, 0.3), (-0.1, 0.5), (0.5, float("nan"))]
)
def test_shares_ascend_between_0_and_1(shares):
    (line,) = complaints(made(100, 10, rate("stepwise"), boundary_shares=shares))
    says(line, "ascend 0 1")


def test_boundaries_in_epochs_and_in_shares_are_refused():
    (line,) = complaints(made(overrides=rate("stepwise"), boundaries=(1,), boundary_shares=(0.5,)))
    says(line, "EpochsConfig.boundary_shares 0.5 replaces EpochsConfig.boundaries")


def test_boundaries_in_steps_and_in_shares_are_refused():
    experiment = made(overrides=rate("stepwise"), boundary_shares=(0.5,))
    experiment.trainer.train_steps = 20
    experiment.trainer.optimizer_config.learning_rate.stepwise.boundaries = [11]
    (line,) = complaints(experiment)
    says(line, "StepwiseLrConfig.boundaries 11 EpochsConfig.boundary_shares 0.5 makes [10]")


@pytest.mark.parametrize(
    ("kind", "field", "value", "said"),
    [
        ("constant", "decay", 3, "LrConfig.type exponential"),
        (
            "cosine",
            "boundaries",
            (1, 2),
            "stepwise step_cosine_with_offset cosine",
        ),
        ("cosine", "warmup", 1, "WarmupConfig.type polynomial"),
    ],
)
def test_a_length_of_what_is_not_chosen_says_what_could_be(kind, field, value, said):
    (line,) = complaints(made(100, 10, rate(kind), **{field: value}))
    says(line, said)


def test_a_misspelt_choice_is_answered_with_the_one_that_was_meant():
    experiment = made(decay=1)
    experiment.trainer.optimizer_config.learning_rate.type = "cosin"
    (line,) = complaints(experiment)
    says(line, "mean cosine")


def test_all_mistakes_are_named_at_once():
    experiment = made(train=2, decay=1, summary_interval=-1)
    experiment.trainer.train_steps = 30
    experiment.run.evaluation_sets = [
        run_config.EvaluationSetConfig(name="part", interval=3, interval_epochs=1)
    ]
    assert len(complaints(experiment)) == 4


# From gin.

GIN = """
from __gin__ import dynamic_registration
import toy
from runner import inputs
from runner import run_config
include 'base.gin'
Experiment.task = @toy.ToyConfig()
ToyConfig.train_data = @inputs.DataConfig()
inputs.DataConfig:
  is_training = True
  global_batch_size = 10
  num_examples = 105
OptimizerConfig.type = 'adam'
LrConfig.type = 'constant'
"""


def load(folder, *lines, params=()):
    (folder / "toy.gin").write_text(GIN + "\n".join(lines))
    return config.load(["toy.gin"], params)


def test_epochs_stand_in_a_gin_file_or_on_the_command_line(tmp_path):
    assert load(tmp_path, "EpochsConfig.train = 10").trainer.train_steps == 105
    experiment = load(tmp_path, params=["EpochsConfig.train=3", "EpochsConfig.decay=0"])
    assert experiment.trainer.train_steps == 32
    config.validate(experiment, trains=True, evaluates=False)
    assert epochs.resolve(experiment)[1] == "TrainerConfig.train_steps = 32 (3 epochs)"


def test_epochs_may_come_from_a_macro(tmp_path):
    lines = ["LENGTH = 2", "EpochsConfig:", "  train = %LENGTH", "  checkpoint_interval = %LENGTH"]
    trainer = load(tmp_path, *lines).trainer
    assert (trainer.train_steps, trainer.checkpoint_interval) == (21, 21)


def test_giving_both_is_refused_with_both_places(tmp_path):
    with pytest.raises(ConfigError) as error:
        load(
            tmp_path,
            "TrainerConfig.summary_interval = 1000",
            params=["EpochsConfig.summary_interval=1"],
        )
    says(
        str(error.value),
        "toy.gin:15 TrainerConfig.summary_interval --gin.EpochsConfig.summary_interval=1",
    )


def test_0_leaves_the_length_to_the_other(tmp_path):
    lines = ["TrainerConfig.train_steps = 50", "EpochsConfig.train = 2"]
    assert load(tmp_path, *lines, params=["EpochsConfig.train=0"]).trainer.train_steps == 50
    assert load(tmp_path, *lines, params=["TrainerConfig.train_steps=0"]).trainer.train_steps == 21


def test_evaluation_sets_have_intervals_in_epochs(tmp_path):
    lines = [
        "RunConfig.evaluation_sets = (@a/EvaluationSetConfig(), @b/EvaluationSetConfig())",
        "a/EvaluationSetConfig.interval_epochs = 1",
        "b/EvaluationSetConfig.interval_epochs = 0.5",
    ]
    experiment = load(tmp_path, *lines)
    assert [one.interval for one in experiment.run.evaluation_sets] == [11, 5]
    with pytest.raises(ConfigError, match=r"^toy.gin:18: EvaluationSetConfig.interval = 7; "):
        load(tmp_path, *lines, "b/EvaluationSetConfig.interval = 7")


def test_a_loaded_experiment_is_resolved_and_validated_once(monkeypatch):
    given = ["EpochsConfig.train = 2", "TrainerConfig.train_steps = 0"]
    loaded = config.load(["digits.gin"], given, trains=True, evaluates=True)
    shown = config.resolve(loaded)
    changed = loaded.replace(run={"seed": -1})
    with pytest.raises(ConfigError, match=saying("must 0")):
        config.prepare(changed, trains=True, evaluates=True)
    monkeypatch.setattr(config, "resolve", None)
    monkeypatch.setattr(config, "validate", None)
    assert config.prepare(loaded, trains=True, evaluates=True) == shown
    assert shown


def test_a_run_begun_when_lengths_were_rounded_up_keeps_its_epochs(tmp_path):
    experiment = made(31, 3, train=3, validation_interval=1, rounding="up")
    epochs.resolve(experiment)
    assert (experiment.trainer.train_steps, experiment.trainer.validation_interval) == (31, 11)
    grid = policies.of(experiment).grid
    assert [step for step in range(1, 32) if grid.evaluates(step)] == [11, 22, 31]

    (tmp_path / "ckpt-11.index").touch()
    path = tmp_path / "params.yaml"
    path.write_text(config.as_yaml(experiment))
    kept = ["EpochsConfig.rounding = 'up'"]
    assert begun.bindings(tmp_path) == kept
    params = yaml.safe_load(path.read_text())
    del params["run"]["epochs"]["rounding"]  # as earlier versions wrote it
    path.write_text(yaml.safe_dump(params))
    assert begun.bindings(tmp_path) == kept
    params["run"]["epochs"] |= dict.fromkeys(("train", "validation_interval"), 0.0)
    path.write_text(yaml.safe_dump(params))
    assert begun.bindings(tmp_path) == []
    assert begun.bindings(tmp_path / "new") == begun.bindings("") == []


FETCHED = """
import dataclasses
from runner import errors, inputs


@dataclasses.dataclass
class Fetched(inputs.DataConfig):
    part: str = "all"

    def check(self):
        if self.part != "all":
            raise errors.ConfigError(f"Fetched.part={self.part!r}: expected 'all'")

    def size(self):
        raise AssertionError("it was fetched")
"""


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("part/EvaluationSetConfig.intervall = 5", "parameter intervall"),
        ("part/EvaluationSetConfig.interval = -5", "must 0"),
        ("held/Fetched.part = 'al'", "Fetched.part='al' expected all"),
    ],
)
def test_a_mistake_is_found_before_examples_are_counted_which_may_fetch_them(
    tmp_path, mistake, said
):
    (tmp_path / "fetched.py").write_text(FETCHED)
    lines = [
        "import fetched",
        "ToyConfig.validation_data = @validation/inputs.DataConfig()",
        "validation/inputs.DataConfig.is_training = False",
        "RunConfig.evaluation_sets = (@part/EvaluationSetConfig(),)",
        "part/EvaluationSetConfig.name = 'part'",
        "part/EvaluationSetConfig.data = @held/fetched.Fetched()",
        "held/Fetched.global_batch_size = 3",
        "held/Fetched.is_training = False",
        "ToyConfig.train_data = @training/fetched.Fetched()",
        "training/Fetched.global_batch_size = 3",
        "training/Fetched.is_training = True",
        "EpochsConfig.train = 3",
    ]
    (tmp_path / "toy.gin").write_text(GIN + "\n".join([*lines, mistake]))
    with pytest.raises(ConfigError) as error:
        config.load(["toy.gin"], [], trains=True, evaluates=True)
    says(str(error.value), said)
