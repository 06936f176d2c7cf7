"""Checks that the project trains and that its network has the right shapes. Run with `pytest`."""

from pathlib import Path

import pictures

import runner

SHORT = [
    "TrainerConfig.train_steps = 4",
    "TrainerConfig.steps_per_loop = 2",
    "TrainerConfig.summary_interval = 2",
    "TrainerConfig.validation_interval = 4",
    "TrainerConfig.checkpoint_interval = 4",
]
GIN = Path(__file__).with_name("images.gin")


def test_training_and_evaluation_finish(tmp_path):
    results = runner.run(runner.load(GIN, SHORT), tmp_path / "run", "train_and_eval")
    assert results["status"] == "done"
    assert {"validation_loss", "accuracy"} <= set(results["metrics"])


def test_the_network_predicts_each_example():
    task = pictures.PicturesTask(runner.load(GIN).task)
    examples, _ = next(iter(task.build_inputs(task.task_config.validation_data)))
    assert task.build_model()(examples).shape == (len(examples), len(pictures.CLASSES))


def test_training_and_evaluation_data_do_not_overlap():
    learnt, _ = pictures.load_pictures(is_training=True)
    others, _ = pictures.load_pictures(is_training=False)
    assert not {each.tobytes() for each in learnt} & {each.tobytes() for each in others}
