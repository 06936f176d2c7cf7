"""Flags that other tools have: what the message tells to do instead does it."""

import re

import pytest

from runner import main
from runner.command import parser, typed
from runner.command.help import other_tools
from runner.errors import ConfigError

RUN = ["--mode=train", "--gin_file=digits.gin", "--print_config=changed"]
VALUES = {
    "seed": ("7", "seed: 7"),
    "epochs": ("3", "train: 3"),
    "max_steps": ("70", "train_steps: 70"),
    "lr": ("0.25", "initial_learning_rate: 0.25"),
    "learning_rate": ("0.25", "initial_learning_rate: 0.25"),
    "batch-size": ("48", "global_batch_size: 48"),
    "eval_batch_size": ("48", "global_batch_size: 48"),
    "optimizer": ("sgd", "type: sgd"),
    "gpus": ("2", "num_gpus: 2"),
    "distribution_strategy": ("one_device", "distribution_strategy: one_device"),
    "precision": ("16", "mixed_precision_dtype: bfloat16"),
    "val_check_interval": ("30", "validation_interval: 30"),
    "save_steps": ("30", "checkpoint_interval: 30"),
    "data_dir": ("x.npz", "input_path: x.npz"),
    "init_checkpoint": ("a/ckpt-1", "init_checkpoint: a/ckpt-1"),
}


def advice(*arguments):
    """The flags that the answer to these arguments names."""
    with pytest.raises(ConfigError) as error:
        typed.parse(arguments)
    (said,) = str(error.value).splitlines()
    unknown, _, rest = said.partition("; ")
    assert arguments[0].partition("=")[0] in unknown
    return re.findall(r"--[\w.]+(?:=[^\s,;)]+)?", rest)


@pytest.mark.parametrize("name", VALUES)
def test_the_advice_sets_the_value(capsys, name):
    value, shown = VALUES[name]
    named = [each.replace("=N", f"={value}") for each in advice(f"--{name}={value}")]
    configuring = [each for each in named if not each.startswith(("--help", "--checkpoint"))]
    assert main.main([*RUN, *configuring]) == 0
    assert shown in capsys.readouterr().out


def test_the_value_may_be_the_next_argument():
    assert advice("--lr", "0.5")[0].endswith("=0.5")
    assert advice("--output_dir", "--mode=train") == ["--model_dir=..."]


@pytest.mark.parametrize(("flag", "named"), [("resume", "--model_dir"), ("do_eval", "--mode=eval")])
def test_what_needs_no_value_is_explained(flag, named):
    assert named in advice(f"--{flag}")


def test_a_field_of_the_configuration_is_found_by_its_help():
    assert advice("--label_smoothing=0.1") == ["--help=label_smoothing"]


def test_no_flag_of_the_command_is_taken_for_another_tools():
    own = {name.removeprefix("--") for name in parser.all_flags()}
    assert not own & set(other_tools.names())


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("train", "--mode=train"),
        ("trian", "--mode=train"),
        ("digits.gin", "--gin_file=digits.gin"),
        ("TrainerConfig.train_steps=5", "--gin.TrainerConfig.train_steps=5"),
        ("trainer.train_steps=5", "--params_override=trainer.train_steps=5"),
    ],
)
def test_a_word_is_answered_with_the_flag_that_it_needs(word, named):
    with pytest.raises(ConfigError, match=re.escape(f"did you mean {named}?")):
        typed.parse([word, "--model_dir=x"])
