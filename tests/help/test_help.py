"""`--help=TOPIC`: what can be set, what it means and where it is now set."""

import dataclasses
import runpy
from pathlib import Path

import pytest
from wording import says

from runner import config, main, run_config
from runner.command.help import facts, from_classes

ROOT = Path(__file__).parents[2]

TASK = '''
import dataclasses
from typing import Optional
import a_module_that_is_nowhere
from official.core import config_definitions as cfg
from runner import inputs
from runner.configuration.settings import setting

@dataclasses.dataclass
class SlopeConfig(cfg.TaskConfig):
    """A line to learn.

    More of it.

    Attributes:
        slope: How steep
            it is.
    """
    slope: float = 2.0
    name: "Optional[str]" = None
    shift: int | None = setting(3, "Up by this.")
    train_data: inputs.DataConfig = dataclasses.field(default_factory=inputs.DataConfig)

@dataclasses.dataclass
class SteepConfig(SlopeConfig):
    sizes: tuple[int, ...] = dataclasses.field(default_factory=lambda: (1, 2))
    given: str
'''
GIN = """
import my_slope
from runner import inputs
include 'base.gin'
Experiment.task = @SlopeConfig()
SlopeConfig.slope = 3.0
SlopeConfig.train_data = @train/inputs.DataConfig()
train/DataConfig.global_batch_size = 7
TrainerConfig.train_steps = 10
TrainerConfig.train_steps = %steps
steps = 20
"""


def shown(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main.main(arguments)
    assert end.value.code == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.fixture
def own_task(tmp_path):
    (tmp_path / "my_slope.py").write_text(TASK)
    (tmp_path / "my.gin").write_text(GIN)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("RunConfig", "seed 0 Seeds"),
        ("RunConfig", "0 below 4294967296"),
        ("RunConfig", "global norms"),
        ("EarlyStoppingConfig", "patience 5 evaluations"),
        ("EarlyStoppingConfig", "resume yes length"),
        ("run_config.EvaluatorConfig", "latest every"),
        (
            "TrainerConfig",
            "max_to_keep 5 Max keep 1",
        ),
        ("TrainerConfig", "TrainerConfig YAML trainer"),
        ("trainer", "TrainerConfig YAML trainer"),
        ("RuntimeConfig", "num_gpus 0 GPUs use resume"),
        ("OptimizerConfig", "adam AdamConfig Adam"),
        ("DataConfig", "tfds_name Config tensorflow dataset"),
        ("runner.inputs.DataConfig", "num_examples int 0 examples"),
        ("ImageData", "images read"),
        ("tasks.image_classification.ImageClassificationConfig", "0 1 Szegedy"),
        ("RunConfig.seed", "RunConfig.seed 0 Seeds weights"),
        ("run.seed", "Set --gin.RunConfig.seed=VALUE --params_override=run.seed=VALUE"),
    ],
)
def test_a_section_is_shown_with_types_defaults_and_meanings(capsys, name, said):
    says(shown(capsys, f"--help={name}"), said)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "RunConfg",
            "descriptions RunConfig",
        ),
        ("QuuxZone", "--help=my_module.MyConfig --gin_file"),
        ("run_config.RetentonConfig", "mean run_config.RetentionConfig"),
        ("tasks.image_clasification.X", "mean tasks.image_classification"),
        ("RunConfig.sed", "RunConfig sed seed"),
        ("trainer.train_stepz", "TrainerConfig train_stepz mean train_steps"),
        ("digit.gin", "gin file digit.gin"),
        ("experimnts", "mean experiments"),
        ("learning_rat", "mean learning_rate"),
        ("", "--help= topic"),
        ("*", "--help=* topic"),
    ],
)
def test_a_misspelt_topic_is_answered_with_what_was_meant(capsys, name, said):
    assert main.main([f"--help={name}"]) == 2
    says(capsys.readouterr().err, said)


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("SlopeConfig", "SlopeConfig YAML learn init_checkpoint"),
        ("SlopeConfig", "slope 2.0 3.0 my.gin:6"),
        ("SlopeConfig", "str None"),
        ("SlopeConfig", "shift int 3"),
        ("SlopeConfig", "train_data DataConfig"),
        ("SlopeConfig", "Now @train/inputs.DataConfig my.gin:7"),
        ("my_slope.SteepConfig", "sizes 1 2 str"),
        ("SteepConfig.slope", "SteepConfig.slope 2.0 steep"),
        (
            "DataConfig",
            "DataConfig YAML task.train_data train/ Model Garden's",
        ),
        ("DataConfig.global_batch_size", "Now train/ 7 my.gin:8"),
        (
            "DataConfig.seed",
            "Set --gin.train/DataConfig.seed=VALUE --params_override=task",
        ),
        ("slope", "SlopeConfig.slope 2.0 steep 3.0 my.gin:6"),
        ("TrainerConfig.train_steps", "Now my.gin:10"),
    ],
)
def test_a_task_of_ones_own_is_read_and_not_run(capsys, own_task, topic, said):
    says(shown(capsys, "--gin_file=my.gin", f"--help={topic}"), said)


def test_a_module_of_ones_own_needs_no_gin_file(capsys, own_task):
    assert "slope: float = 2.0" in shown(capsys, "--help=my_slope.SlopeConfig")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--help=TrainerConfig.train_steps"], "Now 2000 (experiments/digits.gin:"),
        (["--help=ImageData.global_batch_size"], "; validation/: 360 (experiments/digits.gin:"),
        (["--help=run.seed", "--gin.RunConfig.seed=5"], "Now 5 (--gin.RunConfig.seed=5)"),
        (["--help=run.seed", "--params_override=run.seed=6"], "Now 6 (--params_override"),
        (["--help=run.seed", "--config_file=a.yaml"], "Now 7 (a.yaml:2)."),
        (
            ["--help=ImageData.seed", "--params_override=task.train_data.seed=3"],
            "Now train/: 3 (--params_override",
        ),
        (["--help=run.seed", "--experiment=mine"], "What --experiment=mine sets: --print_config"),
    ],
)
def test_a_field_says_where_it_is_set(capsys, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(Path(__file__).parents[2])
    (tmp_path / "a.yaml").write_text("run:\n  seed: 7\n")
    arguments = [each.replace("a.yaml", str(tmp_path / "a.yaml")) for each in arguments]
    printed = shown(capsys, "--gin_file=digits.gin", *arguments)
    assert said in printed.replace(f"{tmp_path}/", "")


@pytest.mark.parametrize("name", ["digits.gin", "digits"])
def test_an_experiment_says_what_it_sets_and_how_it_is_run(capsys, name):
    printed = shown(capsys, f"--help={name}")
    says(printed, "Handwritten 1,797 8x8")
    assert "CosineLrConfig.initial_learning_rate = 0.005 (" in printed
    assert "Run it: runner --mode=train_and_eval --gin_file=digits.gin --model_dir=" in printed
    says(printed, "MLPConfig multi-layer")
    assert "base.gin:" not in printed


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("learning_rate", "ConstantLrConfig.learning_rate float 0.1"),
        ("learning_rate", "schedule's LrConfig.type"),
        ("early stopping", "RunConfig.early_stopping EarlyStoppingConfig"),
        ("patience", "EarlyStoppingConfig.patience 5 evaluations row"),
        ("gin_file", "--gin_file Repeatable order"),
        ("verify_resume", "--mode=verify_resume Kills resumes"),
    ],
)
def test_a_word_is_searched_for(capsys, word, said):
    says(shown(capsys, f"--help={word}"), said)


def test_help_as_a_word(capsys):
    assert shown(capsys, "help", "RunConfig.seed") == shown(capsys, "--help=RunConfig.seed")
    assert shown(capsys, "help") == shown(capsys, "--help")


def test_the_table_of_fields_is_that_of_the_classes():
    writer = runpy.run_path(str(ROOT / "scripts" / "write_fields.py"))
    assert facts.TABLE.read_text() == writer["render"](), "run: python scripts/write_fields.py"


def test_every_field_that_an_experiment_has_can_be_listed():
    kinds = from_classes.standard()
    assert {"RunConfig", "TrainerConfig", "CosineLrConfig", "EvaluationSetConfig"} <= {
        kind.__name__ for kind in kinds
    }
    for kind in kinds:
        names = [row.field for row in from_classes.facts(kind)]
        assert names == [field.name for field in dataclasses.fields(kind)]


def test_every_field_of_ours_says_what_it_means():
    ours = [kind for kind in from_classes.standard() if kind.__module__ == run_config.__name__]
    rows = [row for kind in ours for row in from_classes.facts(kind)]
    assert len(rows) > 60
    assert all(row.meaning for row in rows)
    assert config.Experiment in from_classes.standard()
