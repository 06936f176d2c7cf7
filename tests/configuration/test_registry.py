"""Model Garden's registered experiments, through the command, on small data that the test makes."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import toy
import yaml
from official.core import config_definitions as cfg
from official.core import exp_factory, task_factory
from official.modeling.hyperparams import base_config
from wording import says

import runner
from runner import config, main
from runner.errors import ConfigError

SMALL_RESNET = """
task:
  model:
    num_classes: 11
    input_size: [32, 32, 3]
    backbone: {type: resnet, resnet: {model_id: 10}}
  train_data: {input_path: images, global_batch_size: 4, dtype: float32, shuffle_buffer_size: 8}
  validation_data: {input_path: images, global_batch_size: 4, dtype: float32}
trainer:
  optimizer_config:
    learning_rate: {stepwise: {boundaries: [2, 3, 4], values: [1.0e-3, 1e-3, 1e-3, 1e-3]}}
    warmup: {linear: {warmup_steps: 1}}
runtime: {enable_xla: false}
"""
SMALL_BERT = """
task:
  model:
    num_classes: 2
    encoder:
      type: bert
      bert: {vocab_size: 60, num_layers: 1, hidden_size: 16, num_attention_heads: 2}
  train_data: {input_path: dummy, seq_length: 8, global_batch_size: 4}
  validation_data: {input_path: dummy, seq_length: 8, global_batch_size: 4}
trainer:
  optimizer_config:
    learning_rate: {polynomial: {decay_steps: 1e1}}
    warmup: {polynomial: {warmup_steps: 1}}
"""
FIVE_STEPS = (
    "trainer.train_steps=5,trainer.steps_per_loop=5,trainer.summary_interval=5,"
    "trainer.checkpoint_interval=5,trainer.validation_interval=5,trainer.validation_steps=-1,"
    "runtime.distribution_strategy=off"
)


def records(name):
    """Eight images as TFRecords."""
    with tf.io.TFRecordWriter(name) as file:
        for number in range(8):
            made = tf.train.Features(feature=image(number))
            file.write(tf.train.Example(features=made).SerializeToString())


def image(number):
    pixels = np.random.default_rng(number).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    encoded = tf.io.encode_jpeg(pixels).numpy()
    return {
        "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
        "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
    }


def run(capsys, *flags):
    assert main.main(["--mode=train_and_eval", "--model_dir=run", *flags]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.fixture(params=["resnet_imagenet", "bert/sentence_prediction"])
def flags(request):
    """Of an experiment that reads records, and of one whose data official makes up itself."""
    overrides, small = FIVE_STEPS, SMALL_BERT
    if request.param == "resnet_imagenet":
        records("images")
        small = SMALL_RESNET
    else:  # the data have no end
        overrides = FIVE_STEPS.replace("validation_steps=-1", "validation_steps=2")
    Path("small.yaml").write_text(small)
    named = [f"--experiment={request.param}", "--config_file=small.yaml"]
    return [*named, f"--params_override={overrides}"]


def test_a_registered_experiment_trains_and_what_is_written_down_builds_it_again(capsys, flags):
    results = run(capsys, *flags)
    assert (results["status"], results["step"]) == ("done", 5)
    metric = "accuracy" if "resnet" in flags[0] else "cls_accuracy"
    assert 0 <= results["metrics"][metric] <= 1
    overview = json.loads(Path("run/overview.json").read_text())
    assert overview["parameters"] > 1000

    saved = yaml.safe_load(Path("run/params.yaml").read_text())
    again = config.load(experiment=flags[0].partition("=")[2], config_files=["run/params.yaml"])
    assert yaml.safe_load(config.as_yaml(again)) == saved
    from_gin = runner.load("run/config.gin")
    assert yaml.safe_load(config.as_yaml(from_gin)) == saved
    results = run(capsys, "--gin_file=run/config.gin")  # the same run: nothing has changed
    assert results["step"] == 5


def test_params_yaml_of_a_gin_experiment_loads_back(tmp_path):
    made = runner.load("digits.gin", ["RunConfig.seed = 7", "AdamConfig.beta_1 = 0.5"])
    (tmp_path / "params.yaml").write_text(config.as_yaml(made))
    again = config.load(["digits.gin"], config_files=[str(tmp_path / "params.yaml")])
    assert again.as_dict() == made.as_dict()
    with pytest.raises(ValueError, match="locked"):
        again.trainer.optimizer_config.optimizer.adam.beta_1 = 0.1


def test_gin_sets_what_a_registered_experiment_has(capsys):
    made = config.load(
        gin_params=["TrainerConfig.train_steps = 7", "OptimizationConfig.ema = @EMAConfig()"],
        experiment="resnet_imagenet",
        overrides=["trainer.max_to_keep=3"],
    )
    assert (made.trainer.train_steps, made.trainer.max_to_keep) == (7, 3)
    assert made.trainer.optimizer_config.ema.average_decay == 0.99
    assert made.task.train_data.input_path == "imagenet-2012-tfrecord/train*"


def test_what_an_experiment_leaves_empty_is_named_before_anything_is_built(capsys):
    named = ["--mode=train", "--experiment=bert/sentence_prediction", "--model_dir=run"]
    code = main.main([*named, "--params_override=task.validation_data.input_path=absent"])
    err = capsys.readouterr().err
    assert code == 2
    says(err, "trainer.train_steps 0 1 train")
    assert "decay_steps" not in err  # it follows
    says(err, "warmup_steps warmup polynomial")
    says(err, "task.train_data.input_path tfds_name tfds_split")
    says(err, "task.model.num_classes 0 1")
    assert "absent" not in err  # which this mode does not read
    assert main.main([*named, "--params_override=task.train_data.input_path=absent*"]) == 2
    says(capsys.readouterr().err, "input_path absent* file")


def test_the_restrictions_of_an_experiment_hold(monkeypatch):
    rule = "trainer.train_steps > trainer.steps_per_loop"
    made = cfg.ExperimentConfig(task=toy.ToyConfig(), restrictions=[rule])
    monkeypatch.setitem(exp_factory._REGISTERED_CONFIGS, "restricted", lambda: made)
    with pytest.raises(ConfigError, match=r"trainer\.train_steps.*trainer\.steps_per_loop"):
        runner.load(experiment="restricted", overrides=["trainer.train_steps=5"])


def test_an_unknown_experiment_is_answered_with_near_ones(capsys):
    code = main.main(["--mode=train", "--experiment=bert/sentense_prediction", "--model_dir=run"])
    assert code == 2
    assert "did you mean 'bert/sentence_prediction'?" in capsys.readouterr().err


def test_one_of_ones_own_is_told_how_to_import_its_module(capsys):
    assert main.main(["--mode=train", "--experiment=mine", "--model_dir=run"]) == 2
    said = "--gin_file=mine.gin, with the line: import my_module"
    assert said in capsys.readouterr().err


def test_a_task_that_makes_up_no_data_needs_a_file(capsys):
    Path("small.yaml").write_text(SMALL_RESNET.replace("images", "dummy"))
    flags = ["--mode=train", "--experiment=resnet_imagenet", "--model_dir=x"]
    assert main.main([*flags, "--config_file=small.yaml"]) == 2
    says(capsys.readouterr().err, "file dummy")


def test_a_module_that_a_gin_file_imports_may_register_an_experiment(tmp_path, capsys):
    (tmp_path / "my_experiments.py").write_text(
        "import toy\n"
        "from official.core import exp_factory\n"
        "exp_factory.register_config_factory('mine')(lambda: toy.experiment())\n"
    )
    (tmp_path / "mine.gin").write_text("import my_experiments\n")
    results = run(capsys, "--experiment=mine", "--gin_file=mine.gin")
    assert results["step"] == 40


@dataclasses.dataclass
class Head(base_config.Config):
    kind: str = "small"
    units: int = 1


@dataclasses.dataclass
class WithHead(toy.ToyConfig):
    head: Head = dataclasses.field(default_factory=Head)


@task_factory.register_task_cls(WithHead)
class WritesIntoItsSection(toy.ToyTask):
    """As official's vision transformers do."""

    def build_model(self):
        head = self.task_config.head
        head.override({"units": {"small": 3, "large": 6}[head.kind]})
        return super().build_model()


@pytest.fixture
def with_head(monkeypatch):
    def experiment():
        made = cfg.ExperimentConfig(task=WithHead(), trainer=toy.experiment().trainer)
        made.override({"runtime": {"distribution_strategy": "off"}})
        return made

    monkeypatch.setitem(exp_factory._REGISTERED_CONFIGS, "with_head", experiment)


def test_a_task_may_write_into_its_section_and_the_run_keeps_what_was_given(capsys, with_head):
    kind = "--params_override=task.head.kind=large"
    run(capsys, "--experiment=with_head", kind)
    saved = yaml.safe_load(Path("run/params.yaml").read_text())
    assert saved["task"]["head"] == {"kind": "large", "units": 1}
    results = run(capsys, "--gin_file=run/config.gin")  # the same run: nothing has changed
    assert results["step"] == 40


def test_a_given_value_that_the_task_replaces_is_refused(capsys, with_head):
    given = "task.head.units=5"
    flags = ["--experiment=with_head", "--model_dir=run", f"--params_override={given}"]
    assert main.main(["--mode=train", *flags]) == 2
    says(capsys.readouterr().err, f"--params_override {given} task.head.units 5 effect model")
    assert main.main(["--mode=train", *flags[:2], "--params_override=task.head.units=3"]) == 0
