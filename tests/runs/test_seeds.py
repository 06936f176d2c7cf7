"""The seeds of the weights, of the order and of the random changes are separate."""

import numpy as np
import pytest
import toy
from resumed import state

import runner
from runner import inputs
from runner.data import pipeline


def examples(**seeds):
    """The examples and the random changes of the first batches."""
    config = inputs.DataConfig(is_training=True, global_batch_size=4, seed=None)

    class Task:
        def build_inputs(self, data, context=None):
            return inputs.place(
                16,
                lambda index: index,
                config=data,
                input_context=context,
                augment=lambda index, seeds: (index, inputs.uniform(seeds, 1)),
            )

    made = pipeline.training(Task(), config, **seeds)
    batches = [batch for batch, _ in zip(made, range(4), strict=False)]
    parts = zip(*batches, strict=True)
    return [np.concatenate([each.numpy() for each in part]) for part in parts]


def test_the_seed_of_changes_leaves_the_order():
    order, changes = examples(seed=1)
    other_order, other_changes = examples(seed=1, augmentation_seed=2)
    np.testing.assert_array_equal(order, other_order)
    assert not np.allclose(changes, other_changes)


def test_without_it_the_changes_follow_the_order():
    _, changes = examples(seed=1)
    _, same = examples(seed=1, augmentation_seed=1)
    np.testing.assert_array_equal(changes, same)


@pytest.mark.parametrize(("field", "changes"), [("seed", True), ("data_seed", False)])
def test_only_the_first_seed_changes_the_first_weights(tmp_path, field, changes):
    still = {"optimizer_config": {"learning_rate": {"constant": {"learning_rate": 0.0}}}}
    weights = []
    for value in (3, 4):
        run = {"seed": 3, field: value}
        made = toy.experiment({"trainer": {"train_steps": 1, **still}, "run": run})
        runner.run(made, tmp_path / str(value), "train")
        found = state(tmp_path / str(value), 1)
        names = [name for name in found if name.startswith("model/") and "SLOT" not in name]
        weights.append({name: found[name] for name in names})
    assert weights[0]
    assert (weights[0] != weights[1]) is changes
