"""Wrong configurations, each from a gin file, a gin parameter, a YAML file and an override."""

from pathlib import Path

import pytest
from wording import says

from runner import main

# Path; its name in gin; a value in YAML; the same in gin; what is said of it.
MISTAKES = {
    "a field": ("trainer.train_stepz", "TrainerConfig.train_stepz", "5", "5", "train_steps"),
    "its case": ("trainer.Train_Steps", "TrainerConfig.Train_Steps", "5", "5", "train_steps"),
    "ours": ("run.sed", "RunConfig.sed", "1", "1", "mean seed"),
    "a rule's": (
        "run.early_stopping.patiense", "EarlyStoppingConfig.patiense", "3", "3", "patience",
    ),
    "a task's": ("task.label_smothing", "ImageClassificationConfig.label_smothing", "0.1", "0.1",
                 "mean label_smoothing"),
    "a model's": ("task.model.mlp.hiden", "MLPConfig.hiden", "[3]", "(3,)", "hidden"),
    "an optimizer's": ("trainer.optimizer_config.optimizer.adam.beta1", "AdamConfig.beta1", "0.5",
                       "0.5", "mean beta_1"),
    "text for a count": ("trainer.train_steps", "TrainerConfig.train_steps", "many", "'many'",
                         "expected str many"),
    "a part of a step": ("trainer.train_steps", "TrainerConfig.train_steps", "1.5", "1.5",
                         "expected float 1.5"),
    "a switch for a count": ("trainer.max_to_keep", "TrainerConfig.max_to_keep", "true", "True",
                             "bool True"),
    "a list for a number": ("run.rollback_rate", "RunConfig.rollback_rate", "[1]", "[1]",
                            "float list [1]"),
    "text for metrics": ("run.retention.lower", "RetentionConfig.lower", "loss", "'loss'",
                         "expected tuple loss"),
    "text for a switch": ("run.deterministic", "RunConfig.deterministic", "'no'", "'no'",
                          "bool no"),
    "no loop": ("trainer.steps_per_loop", "TrainerConfig.steps_per_loop", "-1", "-1",
                "must 1"),
    "no checkpoint ever": ("trainer.checkpoint_interval", "TrainerConfig.checkpoint_interval", "0",
                           "0", "must 1"),
    "no training": ("trainer.train_steps", "TrainerConfig.train_steps", "0", "0",
                    "1 train"),
    "a negative count": ("trainer.validation_steps", "TrainerConfig.validation_steps", "-2", "-2",
                         "1 -1 data"),
    "a direction": ("trainer.best_checkpoint_metric_comp",
                    "TrainerConfig.best_checkpoint_metric_comp", "hihger", "'hihger'",
                    "mean higher"),
    "an optimizer": ("trainer.optimizer_config.optimizer.type", "OptimizerConfig.type", "adan",
                     "'adan'", "mean adam"),
    "a schedule": ("trainer.optimizer_config.learning_rate.type", "LrConfig.type", "cosin",
                   "'cosin'", "mean cosine"),
    "a rate that rises": ("run.rollback_rate", "RunConfig.rollback_rate", "2.0", "2.0",
                          "above 0 1"),
    "a policy": ("run.evaluator.policy", "EvaluatorConfig.policy", "evry", "'evry'",
                 "mean every"),
    "no patience": ("run.early_stopping.patience", "EarlyStoppingConfig.patience", "0", "0",
                    "must 1"),
    "a rule on nothing": ("run.plateau.tolerance", "PlateauConfig.tolerance", "7", "7",
                          "effect PlateauConfig.higher lower"),
    "a loop that is no graph": ("trainer.train_tf_function", "TrainerConfig.train_tf_function",
                                "false", "False", "needs train_tf_while_loop False"),
    "epochs and steps": ("run.epochs.train", "EpochsConfig.train", "3", "3", "set one"),
    "a negative length": ("run.epochs.train", "EpochsConfig.train", "-3", "-3", "0 more"),
}  # fmt: skip


def gin_file(path, name, value, spelt):
    Path("mine.gin").write_text(f"include 'digits.gin'\n\n{name} = {spelt}\n")
    return ["--gin_file=mine.gin"], "mine.gin:3"


def gin_param(path, name, value, spelt):
    return ["--gin_file=digits.gin", f"--gin.{name}={spelt}"], f"{name}={spelt}"


def yaml_file(path, name, value, spelt):
    *sections, field = path.split(".")
    lines = [f"{'  ' * depth}{section}:" for depth, section in enumerate(sections)]
    lines.append(f"{'  ' * len(sections)}{field}: {value}")
    Path("mine.yaml").write_text("\n".join(lines))
    return ["--gin_file=digits.gin", "--config_file=mine.yaml"], f"mine.yaml:{len(lines)}"


def override(path, name, value, spelt):
    pair = f"{path}={value}"
    return ["--gin_file=digits.gin", f"--params_override={pair}"], f'--params_override "{pair}"'


@pytest.mark.parametrize("source", [gin_file, gin_param, yaml_file, override])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_its_place_wherever_it_was_made(capsys, source, mistake):
    *where, said = MISTAKES[mistake]
    flags, place = source(*where)
    code = main.main(["--mode=train_and_eval", "--model_dir=run", *flags])
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    says(err, said)
    assert place in err
    assert "Traceback" not in err


def test_mistakes_of_all_sources_are_named_at_once(capsys):
    Path("mine.yaml").write_text("trainer:\n  max_to_kep: 3\nrun: {seed: x}\n")
    code = main.main([
        "--mode=train",
        "--model_dir=run",
        "--gin_file=digits.gin",
        "--gin.TrainerConfig.train_stepz=1",
        "--gin.TrainerConfig.steps_per_loop=-1",
        "--config_file=mine.yaml",
        "--config_file=absent.yaml",
        "--params_override=trainer.summary_interval=-1,runtime.num_gpuz=1",
    ])  # fmt: skip
    err = capsys.readouterr().err
    assert code == 2
    for said in (
        "train_stepz",
        "steps_per_loop -1",
        "mine.yaml:2 max_to_kep 'max_to_keep'",
        "mine.yaml:3 run.seed expected int 'x'",
        "absent.yaml file",
        "trainer.summary_interval -1",
        "num_gpuz 'num_gpus'",
    ):
        says(err, said)
    assert len(err.splitlines()) == 7


def test_what_comes_later_counts(capsys):
    Path("mine.gin").write_text(
        "include 'digits.gin'\nTrainerConfig.train_steps = 1\nRunConfig.seed = 1\n"
    )
    Path("mine.yaml").write_text(
        "trainer: {train_steps: 3}\nrun: {seed: 3}\ntask: {label_smoothing: 0.3}\n"
    )
    base = ["--mode=train", "--gin_file=mine.gin", "--print_config=changed"]
    param = "--gin.TrainerConfig.train_steps=2"
    yaml, text = "--config_file=mine.yaml", "--params_override=trainer.train_steps=4,runtime.tpu=a"

    def shown(*flags, code=0):
        assert main.main([*base, *flags]) == code
        lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
        return {line.split(":")[0]: line.split(None, 1)[1] for line in lines if " # " in line}

    assert shown()["train_steps"].split() == ["1", "#", "mine.gin:2"]
    assert shown(param)["train_steps"].startswith("2 ")
    found = shown(param, yaml)
    assert found["train_steps"].split() == ["3", "#", "mine.yaml:1"]
    assert found["seed"].startswith("3 ")
    assert found["label_smoothing"].startswith("0.3 ")
    found = shown(text, yaml, param, "--tpu=b", code=2)  # which has no effect
    assert found["train_steps"].startswith("4 ")
    assert found["tpu"].split() == ["b", "#", "--tpu=b"]
    assert "tpu" not in shown()  # not given is not None
