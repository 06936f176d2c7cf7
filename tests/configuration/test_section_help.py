"""`--help=RunConfig`: what can be set, from the fields themselves."""

import dataclasses

import pytest

from runner import config, main, run_config
from runner.configuration import section_help


def shown(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main.main(arguments)
    assert end.value.code == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("RunConfig", "seed: int = 0 Seeds the weights"),
        ("RunConfig", "It must be 0 or more and below 4294967296."),
        ("RunConfig", "mean of the global norms"),
        ("EarlyStoppingConfig", "patience: int = 5 This many evaluations in a row"),
        ("EarlyStoppingConfig", "A resume may change it: a run may end earlier or later."),
        ("run_config.EvaluatorConfig", "It must be 'latest' or 'every'."),
        ("TrainerConfig", "max_to_keep: int = 5 Max checkpoints to keep. It must be 1 or more."),
        ("TrainerConfig", "TrainerConfig (in YAML: trainer)"),
        ("RuntimeConfig", "num_gpus: int = 0 The number of GPUs to use, if any. A resume may"),
        ("OptimizerConfig", "adam: AdamConfig = AdamConfig() Adam optimizer config."),
        ("DataConfig", "tfds_name: str or Config = '' The name of the tensorflow dataset"),
        ("runner.inputs.DataConfig", "num_examples: int = 0 How many examples there are"),
        ("tasks.image_classification.ImageClassificationConfig", "in [0, 1] (Szegedy et al.,"),
    ],
)
def test_a_section_is_shown_with_types_defaults_and_meanings(capsys, name, said):
    assert said in shown(capsys, f"--help={name}")


def test_a_section_of_a_task_is_found_by_what_the_gin_file_imports(capsys):
    out = shown(capsys, "--gin_file=digits.gin", "--help=ImageClassificationConfig")
    assert "label_smoothing: float = 0.0 The fraction of each label's weight" in out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("RunConfg", "unknown name RunConfg; did you mean 'RunConfig'?"),
        ("MyConfig", "--help=my_module.MyConfig, or with its --gin_file"),
        ("run_config.RetentonConfig", "did you mean 'run_config.RetentionConfig'?"),
        (
            "tasks.image_clasification.X",
            "there is no module tasks.image_clasification; did you mean 'image_classification'?",
        ),
        (
            "mode",
            "no such topic; did you mean 'modes'?; there are modes, experiments, and sections",
        ),
    ],
)
def test_a_misspelt_section_is_answered_with_what_was_meant(capsys, name, said):
    assert main.main([f"--help={name}"]) == 2
    assert said in capsys.readouterr().err


def test_every_field_that_an_experiment_has_can_be_listed():
    kinds = section_help.standard()
    assert {"RunConfig", "TrainerConfig", "CosineLrConfig", "EvaluationSetConfig"} <= {
        kind.__name__ for kind in kinds
    }
    for kind in kinds:
        names = [row.field for row in section_help.facts(kind)]
        assert names == [field.name for field in dataclasses.fields(kind)]


def test_every_field_of_ours_says_what_it_means():
    ours = [kind for kind in section_help.standard() if kind.__module__ == run_config.__name__]
    rows = [row for kind in ours for row in section_help.facts(kind)]
    assert len(rows) > 60
    assert all(row.meaning for row in rows)
    assert config.Experiment in section_help.standard()
