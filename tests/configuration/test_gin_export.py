import dataclasses
import json

import pytest
from official.modeling.hyperparams import base_config
from wording import saying

import runner
from runner import config
from runner.configuration import gin_export, registry
from runner.errors import ConfigError
from runner.run_directory.verification import tensors


def again(tmp_path, experiment):
    """The experiment that the generated file alone builds."""
    path = tmp_path / "config.gin"
    module = registry.task_module(experiment.task)
    path.write_text(gin_export.write(experiment, [module] if module else []))
    return runner.load(path)


def plain(experiment):
    return json.loads(json.dumps(experiment.as_dict()))


@pytest.mark.parametrize("name", ["digits.gin", "digits_cnn.gin"])
def test_it_builds_the_experiment_again(tmp_path, name):
    params = ["OptimizationConfig.ema = @EMAConfig()", "TrainerConfig.loss_upper_bound = 1e999"]
    experiment = runner.load(name, params)
    made = again(tmp_path, experiment)
    assert made.as_dict() == experiment.as_dict()
    assert type(made.task) is type(experiment.task)


def test_sections_in_lists_and_of_one_class_keep_their_own_values(tmp_path):
    sets = [
        "RunConfig.evaluation_sets = (@a/EvaluationSetConfig(), @b/EvaluationSetConfig())",
        "a/EvaluationSetConfig.name = 'a'",
        "b/EvaluationSetConfig.name = 'b'",
        "a/EvaluationSetConfig.data = @validation/image_data.ImageData()",
    ]
    experiment = runner.load("digits.gin", sets)
    made = again(tmp_path, experiment)
    assert [each.name for each in made.run.evaluation_sets] == ["a", "b"]
    assert made.as_dict() == experiment.as_dict()


def test_a_section_of_its_own_kind_is_changed_by_its_name(tmp_path):
    path = tmp_path / "config.gin"
    path.write_text(gin_export.write(runner.load("digits.gin")))
    params = ["EvaluatorConfig.min_seconds = 2.0", "TrainerConfig.train_steps = 7"]
    made = runner.load(path, [*params, "RunConfig.seed = 5"])
    assert (made.run.evaluator.min_seconds, made.trainer.train_steps, made.run.seed) == (2.0, 7, 5)


def test_registered_experiments_of_official_can_be_written(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'resnet_imagenet'"):
        registry.experiment("resnet_imagnet")
    names = [name for name in registry.names() if "/" not in name or name.startswith("bert/")]
    assert len(names) > 30
    kinds = {}  # one experiment of each task and optimizer
    for name in names:
        base = registry.experiment(name)
        optimizer = getattr(base.trainer.optimizer_config, "optimizer", None)
        kinds[type(base.task), getattr(optimizer, "type", None)] = name, base
    assert len(kinds) > 8
    for name, base in kinds.values():
        experiment = config.Experiment(task=base.task, trainer=base.trainer, runtime=base.runtime)
        config.resolve(experiment)  # as loading does
        assert plain(again(tmp_path, experiment)) == plain(experiment), name


def test_what_gin_cannot_spell_is_said():
    @dataclasses.dataclass
    class Local(base_config.Config):
        x: float = 1.0

    with pytest.raises(ValueError, match=saying("Local imported")):
        gin_export.write(Local())
    experiment = runner.load("digits.gin", ["AdamConfig.beta_1 = 1e999"])
    experiment.trainer.optimizer_config.optimizer.adam.__dict__["beta_1"] = float("nan")
    with pytest.raises(ValueError, match=saying("beta_1 spell NaN")):
        gin_export.write(experiment)


def test_after_a_resume_config_gin_alone_trains_to_the_same_bits(tmp_path):
    params = ["TrainerConfig.train_steps = 60", "TrainerConfig.steps_per_loop = 20"]
    config = runner.load("digits.gin", params)
    texts = []
    for stops in (True, False):  # the same command again
        actions = [lambda logs: "enough for now"] if stops else []
        runner.run(config, tmp_path / "a", "train_and_eval", train_actions=actions)
        names = ("config.gin", "params.yaml")
        texts.append([(tmp_path / "a" / name).read_text() for name in names])
    assert texts[0] == texts[1]

    alone = runner.load(tmp_path / "a" / "config.gin")
    assert alone.as_dict() == config.as_dict()
    runner.run(alone, tmp_path / "b", "train_and_eval")
    parts = tensors.compare(tmp_path / "a" / "ckpt-60", tmp_path / "b" / "ckpt-60")
    assert not any(part.differences for part in parts)
