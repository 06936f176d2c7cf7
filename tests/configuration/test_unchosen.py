"""A typed value for an alternative that is not chosen stops the command; one of a file does not."""

import json

import pytest

import runner
from runner import main
from runner.errors import ConfigError

MOMENTUM = "trainer.optimizer_config.optimizer.sgd.momentum"
DIGITS = ["--mode=train", "--gin_file=digits.gin"]


def refusal(capsys, *flags):
    assert main.main([*DIGITS, *flags]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err


@pytest.mark.parametrize(
    "typed",
    [
        "--gin.SGDConfig.momentum=0.5",
        "--gin_params=SGDConfig.momentum=0.5",
        f"--params_override={MOMENTUM}=0.5",
        "--params_override={trainer: {optimizer_config: {optimizer: {sgd: {momentum: 0.5}}}}}",
        "--gin.SGDConfig.momentum=0.0",  # the default
    ],
)
def test_a_typed_value_of_another_optimizer_is_refused(tmp_path, capsys, typed):
    said = refusal(capsys, f"--model_dir={tmp_path / 'run'}", typed)
    (line,) = said.splitlines()
    assert MOMENTUM in line
    assert "OptimizerConfig.type = 'adam'" in line
    assert "digits.gin:" in line  # where that is set
    assert "set OptimizerConfig.type = 'sgd'" in line
    assert not (tmp_path / "run").exists()


def test_chosen_as_the_message_says_it_is_taken(tmp_path):
    made = runner.load("digits.gin", ["SGDConfig.momentum = 0.5", "OptimizerConfig.type = 'sgd'"])
    assert made.trainer.optimizer_config.optimizer.sgd.momentum == 0.5


def test_where_nothing_is_chosen_the_message_names_the_field_that_chooses(tmp_path, capsys):
    said = refusal(capsys, f"--model_dir={tmp_path}", "--gin.LinearWarmupConfig.warmup_steps=10")
    assert "WarmupConfig.type = None" in said
    assert "set WarmupConfig.type = 'linear'" in said


def test_all_are_named_at_once(tmp_path, capsys):
    typed = ["--gin.LinearWarmupConfig.warmup_steps=10", "--gin.SGDConfig.momentum=0.5"]
    said = refusal(capsys, f"--model_dir={tmp_path}", *typed)
    assert "linear.warmup_steps" in said
    assert "sgd.momentum" in said


def test_in_python_too():
    with pytest.raises(ConfigError, match=r"sgd\.momentum.*set OptimizerConfig.type = 'sgd'"):
        runner.load("digits.gin", ["SGDConfig.momentum = 0.5"])
    with pytest.raises(ConfigError, match=r"sgd\.momentum"):
        runner.load("digits.gin", overrides=[f"{MOMENTUM}=0.5"])
    with pytest.raises(ConfigError, match=r"sgd\.momentum"):
        runner.load(
            experiment="resnet_imagenet",
            overrides=[f"{MOMENTUM}=0.5", "trainer.optimizer_config.optimizer.type=adam"],
        )


def test_the_configuration_is_printed_before_the_refusal(capsys):
    flags = ["--gin_file=digits.gin", "--print_config", "--gin.SGDConfig.momentum=0.5"]
    assert main.main(flags) == 2
    shown = capsys.readouterr()
    assert "momentum: 0.5" in shown.out
    assert MOMENTUM in shown.err


def test_a_file_may_have_values_for_several_alternatives(tmp_path):
    (tmp_path / "menu.gin").write_text("include 'digits.gin'\nSGDConfig.momentum = 0.5\n")
    (tmp_path / "menu.yaml").write_text(json.dumps({"trainer": {"optimizer_config": {}}}))
    assert runner.load(tmp_path / "menu.gin").trainer.optimizer_config.optimizer.type == "adam"
    runner.load("questions_tiny.gin")


def test_a_binding_that_has_an_effect_in_one_of_several_places_is_taken():
    typed = ["ConstantLrConfig.learning_rate = 0.1", "LrConfig.type = 'constant'"]
    assert runner.load("digits.gin", typed).trainer.optimizer_config.learning_rate.type


def test_a_study_may_choose_the_alternative(tmp_path, capsys):
    study = ["--mode=study", "--gin_file=digits.gin", "--dry_run", f"--model_dir={tmp_path}"]
    both = "--vary=OptimizerConfig.type='adam','sgd'"
    assert main.main([*study, both, "--gin.SGDConfig.momentum=0.5"]) == 0
    capsys.readouterr()
    for flags in (
        ["--seeds=2", "--gin.SGDConfig.momentum=0.5"],
        [
            "--vary=SGDConfig.momentum=uniform(0, 0.9)",
            "--trials=3",
            "--params_override=run.study.strategy=random",
        ],
    ):
        assert main.main([*study, *flags]) == 2
        assert "set OptimizerConfig.type = 'sgd'" in capsys.readouterr().err
