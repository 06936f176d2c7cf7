import copy
import dataclasses
import json

from wording import says

import runner
from runner import config, main
from runner.configuration import origins, unused_values
from tasks import image_classification


def loaded(*params):
    experiment = runner.load("digits.gin", params)
    return experiment, unused_values.Reads(experiment, config.origins(experiment))


def test_a_value_is_unread_until_something_reads_it():
    experiment, reads = loaded()
    assert "trainer.train_steps" in reads.unread()
    assert experiment.trainer.train_steps == 2000
    assert "trainer.train_steps" not in reads.unread()
    with reads:
        assert type(experiment.trainer) is not experiment.trainer.__class__
    assert type(experiment.trainer) is experiment.trainer.__class__


def test_a_counted_section_passes_for_what_it_is():
    experiment, _ = loaded()
    assert isinstance(experiment.task, image_classification.ImageClassificationConfig)
    assert experiment.task.__class__ is image_classification.ImageClassificationConfig
    assert experiment.trainer == runner.load("digits.gin").trainer


def test_an_exported_section_is_read_whole():
    experiment, reads = loaded()
    assert "trainer.steps_per_loop" in reads.unread()
    experiment.trainer.as_dict()
    assert not any(path.startswith("trainer.steps") for path in reads.unread())


def test_a_read_of_a_copy_counts():
    experiment, reads = loaded()
    data = experiment.task.train_data.replace(start_step=7)
    assert copy.deepcopy(data).global_batch_size == 64
    assert "task.train_data.global_batch_size" not in reads.unread()
    _ = dataclasses.asdict(experiment.task.model.mlp)
    assert "task.model.mlp.dropout" not in reads.unread()


def test_reads_are_counted():
    experiment, reads = loaded()
    for _ in range(3):
        _ = experiment.trainer.validation_steps  # a default
    assert reads.counts() == {"trainer.validation_steps": 3}
    experiment.runtime.as_dict()
    assert reads.counts()["runtime.num_gpus"] == 1


def test_a_binding_for_several_sections_is_read_where_one_of_them_is():
    experiment, reads = loaded("ImageData.held_out = 0.3")  # train/ and validation/
    both = {"task.train_data.held_out", "task.validation_data.held_out"}
    assert both <= set(reads.unread())
    assert experiment.task.train_data.held_out == 0.3
    assert not both & set(reads.unread())


def menu(tmp_path, like="digits.gin"):
    """A gin file with a value for an optimizer that it does not choose."""
    file = tmp_path / "menu.gin"
    file.write_text(f"include {like!r}\nSGDConfig.momentum = 0.5\n")
    return file


def test_alternatives_that_a_file_offers_share_a_line(tmp_path):
    experiment = runner.load(menu(tmp_path, "questions_tiny.gin"))
    with unused_values.Reads(experiment, config.origins(experiment)) as reads:
        said = reads.complaints()
    (line,) = (line for line in said if "bidaf" in line)
    assert "questions_tiny.gin: task.model.type = 'match_lstm': " in line
    says(line, "fusion_net mnemonic r_net")
    (alone,) = (line for line in said if "sgd" in line)
    assert "menu.gin:2: " in alone


def test_a_run_says_what_had_no_effect_once_and_where_it_was_given(tmp_path, capsys):
    params = ["TrainerConfig.train_steps = 200"]
    experiment = runner.load(menu(tmp_path), params)  # which trains with Adam
    runner.run(experiment, tmp_path, "train_and_eval")
    path = "trainer.optimizer_config.optimizer.sgd.momentum"
    said = f"menu.gin:2: {path} had no effect"
    err = capsys.readouterr().err
    assert said in err
    assert err.count("had no effect") == 1
    (start,) = json.loads((tmp_path / "run.json").read_text())["starts"]
    assert start["unread"] == [path]
    counts = start["reads"]
    assert path not in counts
    assert 0 < counts["trainer.train_steps"] < 200  # not at each step
    assert counts["task.train_data.global_batch_size"] > 0
    assert main.main(["--print_config=reads", f"--model_dir={tmp_path}"]) == 0
    shown = [line.split("  # ") for line in capsys.readouterr().out.splitlines()]
    shown = [[part.strip() for part in line] for line in shown]
    assert ["train_steps: 200", f"read {counts['trainer.train_steps']} times"] in shown
    assert any(line[1:] == ["not read"] for line in shown)
    assert type(experiment.trainer) is experiment.trainer.__class__
    runner.run(
        runner.load(menu(tmp_path), params), tmp_path, "train"
    )  # resumed, evaluating nothing
    assert said not in capsys.readouterr().err  # no loop, no report


def test_a_resumed_run_says_what_had_no_effect_too(tmp_path, capsys):
    params = ["TrainerConfig.train_steps = 200"]
    for actions in ([lambda logs: "enough for now"], []):
        made = runner.load(menu(tmp_path), params)
        runner.run(made, tmp_path, "train", train_actions=actions)
        assert capsys.readouterr().err.count("had no effect") == 1


def test_what_another_mode_reads_is_not_said_to_have_had_no_effect():
    given = [
        "trainer.train_steps",
        "run.early_stopping.lower",
        "trainer.validation_interval",
        "task.validation_data.seed",
        "run.evaluator.policy",
        "task.init_checkpoint",
    ]
    experiment = runner.load("digits.gin")
    origins.remember(experiment, dict.fromkeys(given, "mine.gin"))
    assert list(unused_values.concerned(experiment, evaluates=True)) == given[:4]
    assert list(unused_values.concerned(experiment, evaluates=False)) == given[:2]
