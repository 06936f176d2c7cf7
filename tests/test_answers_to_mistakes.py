"""What the command suggests for a mistake in a value."""

from pathlib import Path

import finished
import pytest
import toy
from wording import says

from runner import main
from runner.core import spelling

DIGITS = ["--mode=train", "--gin_file=digits.gin", "--model_dir=run"]


def answer(capsys, *flags):
    assert main.main(flags) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.fixture
def runs():
    finished.run(toy.experiment(), Path("runs/a"))
    return "--model_dir=runs"


@pytest.mark.parametrize(
    ("binding", "expected"),
    [
        ("TrainerConfig.train_steps=abc", "expected int"),
        ("TrainerConfig.train_tf_while_loop=yes", "expected bool"),
        ("CosineLrConfig.initial_learning_rate=high", "expected float"),
    ],
)
def test_a_word_in_place_of_a_number_is_told_what_is_expected(capsys, binding, expected):
    said = answer(capsys, *DIGITS, f"--gin.{binding}")
    assert binding.partition("=")[0] in said
    assert expected in said
    assert "quotes" not in said


@pytest.mark.parametrize("word", ["newest", "last"])
def test_the_newest_checkpoint_is_called_latest(capsys, word):
    assert main.main([*DIGITS, "--gin.TrainerConfig.train_steps=10"]) == 0
    capsys.readouterr()
    said = answer(capsys, "--mode=eval", *DIGITS[1:], f"--checkpoint={word}")
    says(said, "mean latest")
    listed = said.partition("available: ")[2].partition(";")[0]
    assert listed == "latest, all, 10"


def test_a_column_that_is_like_none_is_answered_with_columns(capsys, runs):
    said = answer(capsys, "--mode=runs", runs, "--sort=foo")
    assert "did you mean" not in said
    assert "best.accuracy" in said


def test_the_beginning_of_a_column_is_answered_with_the_column(capsys, runs):
    for flag in ("--where=acc > 0.9", "--sort=acc", "--columns=acc"):
        said = answer(capsys, "--mode=runs", runs, flag)
        says(said, "mean accuracy")


def test_configuration_reads_are_printed_with_a_mode_as_without(capsys):
    assert main.main([*DIGITS, "--gin.TrainerConfig.train_steps=10"]) == 0
    capsys.readouterr()
    for flags in ([], ["--mode=train"]):
        assert main.main(["--print_config=reads", "--model_dir=run", *flags]) == 0
        assert "train_steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "meant"),
    [("foo", ""), ("stp", "step"), ("acc", "accuracy"), ("acuracy", "accuracy"), ("s", "")],
)
def test_a_short_word_is_not_taken_for_one_that_is_only_a_little_alike(word, meant):
    said = spelling.did_you_mean(word, ["floor", "step", "accuracy"])
    assert (f"{meant!r}" in said) if meant else said == ""
