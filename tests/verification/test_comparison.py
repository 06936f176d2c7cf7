import pytest
import tensorflow as tf
from wording import saying, says

from runner.core import files
from runner.errors import RunnerError
from runner.history import history, records
from runner.run_directory.verification import comparison


@pytest.fixture
def make(tmp_path):
    """Makes the folder of a finished run of 40 steps, twice evaluated."""

    def run(name, *, weight=1.0, losses=(3.0, 2.0, 1.0, 0.5), evaluated=(20, 40), began=0.0):
        folder = tmp_path / name
        checkpoint = tf.train.Checkpoint(model=tf.Variable([weight, float("nan")]))
        manager = tf.train.CheckpointManager(
            checkpoint, str(folder), max_to_keep=3, checkpoint_name="ckpt"
        )
        manager.save(checkpoint_number=40)
        rows = [
            {"step": 10 * n, "training_loss": loss, "steps_per_second": began + n}
            for n, loss in enumerate(losses, start=1)
        ]
        files.write_json_lines(folder / "train.jsonl", rows)
        log = history.History(folder / "history.jsonl")
        for step in evaluated:
            log.append(
                records.Evaluation(
                    step, {"accuracy": step / 100}, began + 1, began + step, f"ckpt-{step}"
                )
            )
        keep_best(folder, 40, 0.4)
        return folder

    return run


def keep_best(folder, step, accuracy, weight=1.0):
    best = folder / "best"
    tf.train.Checkpoint(model=tf.Variable(weight)).write(str(best / f"ckpt-{step}"))
    info = {"accuracy": accuracy, "best_ckpt_global_step": step, "checkpoint": f"ckpt-{step}"}
    files.write_json(best / "info.json", info)


def found(*runs):
    """The differences in words, by kind."""
    parts = comparison.differing(comparison.compare(*runs))
    return {
        kind: [str(difference) for difference in part.differences] for kind, part in parts.items()
    }


def only(differences, kind):
    """The only difference, which is of this kind."""
    assert list(differences) == [kind]
    (line,) = differences[kind]
    return line


def test_runs_that_differ_in_times_alone_are_the_same(make):
    first, second = make("a"), make("b", began=1000.0)
    assert found(first, second) == {}
    counts = {part.kind: part.compared for part in comparison.compare(first, second)}
    assert counts == {"weights": 1, "training rows": 4, "evaluations": 2, "best checkpoint": 1}


def test_another_weight_is_found(make):
    says(only(found(make("a"), make("b", weight=1.5)), "weights"), "model 1 2 0.5")


def test_another_training_row_is_found_by_its_step_and_field(make):
    differences = found(make("a"), make("b", losses=(3.0, 2.0, 1.0000000000000002, 0.5)))
    says(only(differences, "training rows"), "step 30 training_loss 1.0 1.0000000000000002")


def test_a_missing_training_row_is_found(make):
    differences = found(make("a"), make("b", losses=(3.0, 2.0, 1.0)))
    says(only(differences, "training rows"), "step 40 only first")


@pytest.mark.parametrize(
    ("evaluated", "said"),
    [
        ((20, 20, 40), "step 20 twice second"),
        ((40,), "step 20 only first"),
        ((20, 30, 40), "step 30 only second"),
    ],
)
def test_a_lost_or_doubled_evaluation_is_found_and_counted(make, evaluated, said):
    runs = make("a"), make("b", evaluated=evaluated)
    says(only(found(*runs), "evaluations"), said)
    assert comparison.differing(comparison.compare(*runs))["evaluations"].missing == 1


def test_the_same_evaluations_in_another_order_are_found(make):
    says(only(found(make("a"), make("b", evaluated=(40, 20))), "evaluations"), "order")


def test_a_decision_that_only_one_run_took_is_found(make):
    first, second = make("a"), make("b")
    stop = records.Stop(20, "an evaluator", "no gain", 0.0)
    history.History(second / "history.jsonl").append(stop)
    says(only(found(first, second), "decisions"), "step 20 only second")


def test_another_best_checkpoint_is_found(make):
    first, second = make("a"), make("b")
    keep_best(second, 40, 0.4, weight=2.0)
    says(only(found(first, second), "best checkpoint"), "model 1 at most")
    keep_best(second, 20, 0.4)
    assert '"best_ckpt_global_step": 20' in found(first, second)["best checkpoint"][0]


def test_a_run_without_a_checkpoint_cannot_be_compared(make, tmp_path):
    with pytest.raises(RunnerError, match=saying("empty checkpoint")):
        comparison.compare(make("a"), tmp_path / "empty")


def test_the_table_has_a_line_for_each_kind_and_the_first_difference(make):
    second = make("b", weight=1.5, losses=(3.0, 2.5, 1.5, 0.5))
    table = comparison.render(comparison.compare(make("a"), second)).splitlines()
    assert table[0].split() == ["compared", "differ", "bits"]
    assert table[1].split() == ["weights", "1", "1", "1"]
    assert table[2].split() == ["training", "rows", "4", "2", "0"]
    says(table[-1], "training rows 20 training_loss 2.0")
