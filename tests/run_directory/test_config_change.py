"""Going on with another configuration is shown and refused, unless the run stays the same."""

import dataclasses
import json

import finished
import pytest
import toy
import yaml
from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config
from official.modeling.optimization.configs import optimizer_config
from wording import saying, says

import runner
from runner import config, inputs, run_config
from runner.configuration import fields
from runner.errors import ConfigError
from runner.run_directory import config_change


def saved(experiment):
    return yaml.safe_load(config.as_yaml(experiment))


def lines(before, now):
    return [str(change) for change in config_change.compare(before, now)]


def changed(path, value):
    """The toy experiment with one value changed."""
    experiment = toy.experiment()
    *sections, field = path.split(".")
    section = experiment
    for name in sections:
        section = getattr(section, name)
    setattr(section, field, value)
    return experiment


def part(name="part", **fields):
    data = inputs.DataConfig(is_training=False, global_batch_size=8)
    return run_config.EvaluationSetConfig(**{"name": name, "data": data, **fields})


def with_sets(*sets, plateau=None):
    experiment = toy.experiment({"run": {"plateau": plateau or {}}})
    experiment.run.evaluation_sets = sets
    return experiment


@pytest.fixture
def run(tmp_path):
    """A folder in which the toy experiment has trained."""
    (tmp_path / "params.yaml").write_text(config.as_yaml(toy.experiment()))
    (tmp_path / "ckpt-20.index").touch()
    return tmp_path


def check(folder, experiment, *, allow=False):
    """What is noted."""
    notes = []
    config_change.check(folder, experiment, allow=allow, note=notes.append)
    return notes


def test_the_same_configuration_has_no_changes(run):
    assert not config_change.compare(saved(toy.experiment()), toy.experiment())
    assert not check(run, toy.experiment())


def test_a_change_is_shown_with_its_path_and_both_values():
    (change,) = config_change.compare(saved(toy.experiment()), changed("task.dropout", 0.1))
    assert change == config_change.Change("task.dropout", 0.5, 0.1, harmless="")
    assert str(change) == "task.dropout: 0.5 -> 0.1"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("trainer.train_steps", 80),
        ("trainer.train_steps", 30),
        ("trainer.steps_per_loop", 5),
        ("trainer.summary_interval", 20),
        ("trainer.checkpoint_interval", 10),
        ("trainer.validation_interval", 10),
        ("trainer.max_to_keep", 1),
        ("trainer.continuous_eval_timeout", 5),
        ("trainer.best_checkpoint_eval_metric", "validation_loss"),
        ("trainer.recovery_max_trials", 3),
        ("runtime.distribution_strategy", "mirrored"),
        ("runtime.num_gpus", 8),
        ("run.logical_cpus", 2),
        ("run.inter_op_threads", 1),
        ("run.peak_flops", 1e12),
        ("run.async_checkpoints", False),
        ("run.evaluator.name", "mine"),
        ("run.early_stopping.higher", ("accuracy",)),
        ("run.early_stopping.from_step", 10),
        ("run.retention.best", 3),
        ("run.epochs.train", 2.0),
        ("run.test.data", inputs.DataConfig(is_training=False, global_batch_size=8)),
        ("run.evaluation_sets", (part(),)),
        ("task.train_data.num_examples", 30),
        ("task.train_data.prefetch_buffer_size", 2),
        ("task.validation_data.global_batch_size", 17),
    ],
)
def test_what_leaves_the_experiment_what_it_is_is_noted_in_a_line(run, path, value):
    now = changed(path, value)
    (change,) = config_change.compare(saved(toy.experiment()), now)
    assert change.harmless
    assert check(run, now) == [f"changed: {change}; {change.harmless}"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("run.seed", 1),
        ("run.plateau.higher", ("accuracy",)),
        ("run.plateau.factor", 0.1),
        ("run.plateau.floor", 0.001),
        ("task.dropout", 0.1),
        ("task.init_checkpoint", "other"),
        ("task.train_data.global_batch_size", 16),
        ("task.validation_data.input_path", "other"),
        ("task.validation_examples", 10),
        ("trainer.validation_steps", 1),
        ("trainer.optimizer_config.ema", optimizer_config.EMAConfig()),
        ("trainer.optimizer_config.learning_rate.constant.learning_rate", 0.1),
        ("runtime.mixed_precision_dtype", "bfloat16"),
        ("runtime.loss_scale", "dynamic"),
    ],
)
def test_what_makes_it_another_experiment_is_refused_unless_it_is_allowed(run, path, value):
    now = changed(path, value)
    (change,) = config_change.compare(saved(toy.experiment()), now)
    assert not change.harmless
    with pytest.raises(ConfigError) as error:
        check(run, now)
    assert f"\n  {change}\n" in str(error.value)
    assert "--allow_config_change" in str(error.value)
    assert check(run, now, allow=True) == [f"changed: {change}"]


def test_the_batches_of_an_evaluation_that_does_not_see_all_examples_are_no_small_matter():
    some = {"trainer": {"validation_steps": 1}}
    now = toy.experiment(some)
    now.task.validation_data.global_batch_size = 4
    (change,) = config_change.compare(saved(toy.experiment(some)), now)
    assert not change.harmless


def test_another_choice_is_one_change_and_shows_both():
    now = toy.experiment()
    now.trainer.optimizer_config.learning_rate.type = "exponential"
    exponential = now.trainer.optimizer_config.learning_rate.exponential
    exponential.initial_learning_rate = 0.1
    assert lines(saved(toy.experiment()), now) == [
        "trainer.optimizer_config.learning_rate: "
        "constant(name='Constant', learning_rate=0.01) -> "
        "exponential(name='ExponentialDecay', initial_learning_rate=0.1, offset=0)"
    ]


def test_no_choice_is_none():
    now = toy.experiment()
    now.trainer.optimizer_config.warmup.type = "linear"
    (line,) = lines(saved(toy.experiment()), now)
    assert line.startswith("trainer.optimizer_config.warmup: None -> linear(name='linear', ")


def test_a_field_that_is_new_and_has_its_default_is_no_change():
    before = saved(toy.experiment())
    del before["run"]["logical_cpus"], before["trainer"]["max_to_keep"], before["runtime"]
    now = toy.experiment({"runtime": {"distribution_strategy": "mirrored"}})
    assert not config_change.compare(before, now)


def test_a_field_that_is_new_and_has_another_value_is_a_change_of_its_default():
    before = saved(toy.experiment())
    del before["run"]["seed"], before["task"]["dropout"]
    now = toy.experiment({"run": {"seed": 3}}, dropout=0.25)
    assert lines(before, now) == ["task.dropout: 0.5 -> 0.25", "run.seed: 0 -> 3"]


def test_what_model_garden_wrote_is_compared_without_the_section_it_does_not_have(tmp_path):
    before = toy.experiment({"task": {"examples": 12}}).as_dict()
    del before["run"]
    before["task"]["init_checkpoint"] = ("a", "b")  # which Model Garden writes with a tag
    (tmp_path / "params.yaml").write_text(yaml.dump(before))
    (tmp_path / "ckpt-20.index").touch()
    now = toy.experiment({"run": {"seed": 3}})
    with pytest.raises(ConfigError) as error:
        check(tmp_path, now)
    assert "task.examples: 12 -> 30" in str(error.value)
    assert "['a', 'b']" in str(error.value)
    assert "run." not in str(error.value)


def test_a_field_that_is_no_more_is_a_change():
    before = saved(toy.experiment())
    before["task"]["stride"] = 2
    assert lines(before, toy.experiment()) == ["task.stride: 2 -> unset"]


@dataclasses.dataclass
class Block(base_config.Config):
    units: int = 0
    activation: str = "relu"

    def __post_init__(self, *params):
        super().__post_init__(*params)
        if self.units < 1:
            raise ValueError("units must be given")


@dataclasses.dataclass
class BlocksConfig(cfg.TaskConfig):
    shape: tuple[int, ...] = (8, 8)
    blocks: tuple[Block, ...] = ()


def blocks(*units, **fields):
    return config.Experiment(task=BlocksConfig(blocks=[Block(units=n) for n in units], **fields))


def test_sequences_are_compared_item_by_item_and_tuples_are_as_good_as_lists():
    assert not config_change.compare(saved(blocks(4, 8)), blocks(4, 8, shape=[8, 8]))
    assert lines(saved(blocks(4, 8)), blocks(4, 16, shape=(8, 9))) == [
        "task.shape[1]: 8 -> 9",
        "task.blocks[1].units: 8 -> 16",
    ]


def test_sequences_of_different_length_are_shown_whole():
    (line,) = lines(saved(blocks(4)), blocks())
    assert line == "task.blocks: [{'units': 4, 'activation': 'relu'}] -> []"


def test_a_new_field_of_a_section_that_refuses_its_defaults_is_a_change():
    before = saved(blocks(4))
    del before["task"]["blocks"][0]["activation"]
    assert lines(before, blocks(4)) == ["task.blocks[0].activation: unset -> 'relu'"]


GIN = """
from __gin__ import dynamic_registration
import toy
include 'base.gin'
Experiment.task = @toy.ToyConfig()
TrainerConfig.train_steps = {steps}
OptimizerConfig.type = '{optimizer}'
LrConfig.type = 'constant'
ConstantLrConfig.learning_rate = {rate}
"""


def test_each_change_says_where_the_new_value_is_written(tmp_path):
    def load(*params, **values):
        (tmp_path / "toy.gin").write_text(GIN.format(**values))
        return config.load(["toy.gin"], params)

    run = tmp_path / "run"
    run.mkdir()
    first = load(steps=40, optimizer="sgd", rate=0.1)
    (run / "params.yaml").write_text(config.as_yaml(first))
    (run / "ckpt-20.index").touch()
    now = load("RunConfig.seed=1", steps=80, optimizer="lars", rate=0.2)

    with pytest.raises(ConfigError) as error:
        check(run, now)

    said = str(error.value).splitlines()
    rate = "trainer.optimizer_config.learning_rate.constant.learning_rate"
    says(said[0], f"{run} trained configuration")
    assert said[1].startswith("  trainer.optimizer_config.optimizer: sgd(")
    assert said[1].endswith(" (toy.gin:7)")
    assert said[2] == f"  {rate}: 0.1 -> 0.2 (toy.gin:9)"
    assert said[3] == "  run.seed: 0 -> 1 (--gin.RunConfig.seed=1)"
    assert len(said) == 5  # train_steps may change
    assert any("train_steps: 40 -> 80 (toy.gin:6)" in note for note in check(run, now, allow=True))


def test_a_change_that_nobody_made_is_said_to_be_the_default(run):
    (run.parent / "toy.gin").write_text(GIN.format(steps=40, optimizer="sgd", rate=0.1))
    now = config.load([str(run.parent / "toy.gin")])
    before = saved(now)
    before["trainer"]["max_to_keep"] = 7
    before["task"]["stride"] = 2
    (run / "params.yaml").write_text(yaml.safe_dump(before))
    notes = check(run, now, allow=True)
    assert notes[0] == "changed: task.stride: 2 -> unset"
    assert notes[1].startswith("changed: trainer.max_to_keep: 7 -> 5 (default); ")


@pytest.mark.parametrize(
    ("lengths", "rounding", "expected"),
    [
        ({"train": 2.0}, "up", []),
        ({"train": 2.0}, "nearest", ["run.epochs.rounding: 'up' -> 'nearest'"]),
        ({}, "nearest", []),
    ],
)
def test_a_run_begun_before_rounding_could_be_chosen_rounded_lengths_in_epochs_up(
    lengths, rounding, expected
):
    now = toy.experiment({"run": {"epochs": {**lengths, "rounding": rounding}}})
    before = saved(now)
    del before["run"]["epochs"]["rounding"]
    assert lines(before, now) == expected


def test_before_the_first_checkpoint_anything_may_change(run):
    (run / "ckpt-20.index").unlink()
    assert not check(run, changed("run.seed", 1))


@pytest.mark.parametrize("text", [None, b"", b"- 1", b"a: [", b"\xff\xfe\x00"])
def test_a_params_yaml_that_tells_nothing_stops_the_start_unless_it_is_allowed(run, text):
    (run / "params.yaml").unlink(missing_ok=True)
    if text is not None:
        (run / "params.yaml").write_bytes(text)
    what = "missing" if text is None else "damaged"
    with pytest.raises(ConfigError, match=rf"params.yaml is {what}(.|\n)*--allow_config_change"):
        check(run, toy.experiment())
    (note,) = check(run, toy.experiment(), allow=True)
    assert what in note


# Evaluation sets.


def test_an_evaluation_set_may_come_and_go_and_the_others_are_known_by_their_names():
    before = saved(with_sets(part("a"), part("b", share=0.5)))
    assert not config_change.compare(before, with_sets(part("b", share=0.5), part("a")))
    gone, new = config_change.compare(before, with_sets(part("c"), part("b", share=0.5)))[::-1]
    assert (gone.path, gone.new) == ("run.evaluation_sets[a]", config_change.UNSET)
    assert (new.path, new.old) == ("run.evaluation_sets[c]", config_change.UNSET)
    assert gone.harmless
    assert new.harmless
    assert len(str(new)) < 250  # the line of a set that was added does not show all of its fields


@pytest.mark.parametrize(
    ("path", "value", "may_change"),
    [
        ("interval", 7, True),
        ("data.global_batch_size", 16, True),
        ("data.prefetch_buffer_size", 2, True),
        ("data.input_path", "other", False),
        ("data.input_path", ["other"], False),
        ("share", 0.5, False),
        ("examples", 5, False),
        ("prefix", "other", False),
    ],
)
def test_an_evaluation_set_that_stays_keeps_its_data(path, value, may_change):
    one = part("a.b")
    *sections, field = path.split(".")
    setattr(getattr(one, sections[0]) if sections else one, field, value)
    (change,) = config_change.compare(saved(with_sets(part("a.b"))), with_sets(one))
    assert change.path == f"run.evaluation_sets[a.b].{path}"
    assert bool(change.harmless) == may_change


@pytest.mark.parametrize(
    ("plateau", "may_change"),
    [
        ({}, True),
        ({"higher": ("accuracy",)}, False),
        ({"lower": ("validation_loss",)}, False),
        ({"higher": ("accuracy",), "source": "gpu"}, True),
    ],
)
def test_when_a_run_is_evaluated_counts_where_its_own_evaluations_lower_the_rate(
    plateau, may_change
):
    before = saved(with_sets(part("a"), plateau=plateau))
    added = with_sets(part("a"), part("b"), plateau=plateau)
    often = with_sets(part("a", interval=5), plateau=plateau)
    other = with_sets(part("a"), plateau=plateau)
    other.trainer.validation_interval = 10
    for now in (added, often, other):
        (change,) = config_change.compare(before, now)
        assert bool(change.harmless) == may_change


def test_a_change_of_an_evaluation_set_says_where_it_is_written(tmp_path):
    sets = [
        "from runner import run_config",
        "RunConfig.evaluation_sets = (@a/EvaluationSetConfig(), @b/EvaluationSetConfig())",
        "a/EvaluationSetConfig.name = '1'",
        "b/EvaluationSetConfig.name = 'b'",
    ]
    text = GIN.format(steps=40, optimizer="sgd", rate=0.1)
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "toy.gin").write_text("\n".join([text, *sets]))
    (run / "params.yaml").write_text(config.as_yaml(config.load(["toy.gin"])))
    (run / "ckpt-20.index").touch()
    more = ["a/EvaluationSetConfig.share=0.5", "b/EvaluationSetConfig.share=0.25"]
    with pytest.raises(ConfigError) as error:
        check(run, config.load(["toy.gin"], more))
    said = str(error.value).splitlines()[1:-1]
    assert said == [
        f"  run.evaluation_sets[1].share: 1.0 -> 0.5 (--gin.{more[0]})",
        f"  run.evaluation_sets[b].share: 1.0 -> 0.25 (--gin.{more[1]})",
    ]


def test_every_official_field_that_something_is_said_of_exists():
    from official.vision.configs import image_classification  # has one that its base has not

    for kind, settings in fields.OFFICIAL.items():
        kinds = [kind, image_classification.ImageClassificationTask]
        names = {field.name for each in kinds for field in dataclasses.fields(each)}
        assert settings.keys() <= names


def test_why_a_value_may_change_is_written_at_its_field_and_holds_below_it():
    assert fields.of(run_config.RunConfig, "seed").resume is None
    assert fields.of(run_config.RunConfig, "early_stopping").resume.why
    assert fields.of(inputs.DataConfig, "ram_budget").resume.why  # official's, in a subclass


def test_what_changed_is_in_the_record_of_the_start(tmp_path):
    finished.run(toy.experiment(), tmp_path, "train")
    longer = toy.experiment({"trainer": {"train_steps": 60}, "run": {"seed": 5}})
    runner.run(longer, tmp_path, "train", allow_config_change=True)
    first, second = json.loads((tmp_path / "run.json").read_text())["starts"]
    assert "changed" not in first
    assert second["changed"] == ["trainer.train_steps: 40 -> 60", "run.seed: 0 -> 5"]


def test_a_refused_start_leaves_the_configuration_of_the_run(tmp_path):
    finished.run(toy.experiment({"trainer": {"train_steps": 20}}), tmp_path, "train")
    kept = [(tmp_path / name).read_text() for name in ("params.yaml", "config.gin")]
    misspelt = {"run": {"seed": 5, "retention": {"higher": ["f1"]}}}
    with pytest.raises(ConfigError, match="f1"):
        runner.run(toy.experiment(misspelt), tmp_path, "train_and_eval", allow_config_change=True)
    assert kept == [(tmp_path / name).read_text() for name in ("params.yaml", "config.gin")]
    with pytest.raises(ConfigError, match=r"run\.seed: 0 -> 5"):
        runner.run(toy.experiment({"run": {"seed": 5}}), tmp_path, "train")
    runner.run(toy.experiment(), tmp_path, "train")


def test_other_training_metrics_are_not_called_another_model(tmp_path):
    finished.run(toy.experiment({"trainer": {"train_steps": 20}}), tmp_path, "train")
    more = toy.experiment({"run": {"log_gradient_norm": True}})
    with pytest.raises(ConfigError, match=saying("written metrics")) as error:
        runner.run(more, tmp_path, "train", allow_config_change=True)
    assert "missing" in str(error.value)
    assert "RunConfig.log_gradient_norm" in str(error.value)
