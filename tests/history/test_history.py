import json
import math

import pytest
from wording import saying

from runner.errors import RunnerError
from runner.history import history, records


def row(step, **metrics):
    return records.Evaluation(step, metrics, seconds=0.5, time=1.0, checkpoint=f"ckpt-{step}")


def test_rows_come_back_from_disk_as_they_went(tmp_path):
    path = tmp_path / "history.jsonl"
    rows = history.History(path)
    rows.append(row(10, accuracy=0.5, loss=math.inf))
    rows.append(row(20, accuracy=0.75, loss=-1.0))

    again = history.History(path)

    assert again.evaluations == rows.evaluations
    assert again.has(20)
    assert not again.has(15)


def test_the_file_is_json_to_any_reader_even_with_nan(tmp_path):
    path = tmp_path / "history.jsonl"
    history.History(path).append(row(1, loss=math.nan))

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    [parsed] = [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]
    assert parsed["metrics"] == {"loss": "nan"}
    assert math.isnan(history.History(path).evaluations[0].metrics["loss"])


def test_a_last_line_cut_off_by_a_kill_is_left_out(tmp_path):
    path = tmp_path / "history.jsonl"
    history.History(path).append(row(1, loss=2.0))
    with path.open("a") as file:
        file.write('{"step": 2, "metr')

    assert [r.step for r in history.History(path).evaluations] == [1]


def test_a_row_after_a_cut_off_line_is_not_lost(tmp_path):
    path = tmp_path / "history.jsonl"
    history.History(path).append(row(1, loss=2.0))
    with path.open("a") as file:
        file.write('{"step": 2, "metr')

    history.History(path).append(row(3, loss=1.0))

    assert [r.step for r in history.History(path).evaluations] == [1, 3]


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('nonsense\n{"step": 2}\n')
    with pytest.raises(RunnerError, match=saying("history.jsonl:1 repair")):
        history.History(path)
    path.write_text('{"kind": "later", "step": 2}\n')
    with pytest.raises(RunnerError, match=saying("unknown later")):
        history.History(path)


@pytest.mark.parametrize(
    "wrong", [{"step": "two"}, {"metrics": None}, {"metrics": [1]}, {"checkpoint": 5}, {"kind": []}]
)
def test_a_row_with_something_else_in_a_field_is_said(tmp_path, wrong):
    path = tmp_path / "history.jsonl"
    path.write_text(json.dumps(row(2, loss=1.0).as_dict() | wrong) + "\n")
    with pytest.raises(RunnerError, match=saying("history.jsonl unknown kind")):
        history.History(path)


@pytest.mark.parametrize("line", ['{"a": 1}', "5", "[1]", '{"kind": "stop", "step": "x"}'])
def test_a_line_that_is_no_row_is_said(tmp_path, line):
    path = tmp_path / "history.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(RunnerError, match=saying("history.jsonl unknown kind")):
        history.History(path)


def test_what_is_wrong_in_a_file_that_another_process_writes_is_said(tmp_path):
    path = tmp_path / "history.jsonl"
    tail = history.Tail(path)
    path.write_text("nonsense\n")
    with pytest.raises(RunnerError, match=saying("history.jsonl:1 line JSON")):
        tail.take(None)


def test_a_history_without_rows_has_no_step(tmp_path):
    rows = history.History(tmp_path / "history.jsonl")
    assert not any(rows.has(step) for step in (-1, 0, 1))


def test_what_is_evaluated_again_or_is_another_runs_counts_for_nobody_who_reads_on(tmp_path):
    rows = history.History(tmp_path / "history.jsonl")
    tail = history.Tail(tmp_path / "history.jsonl")
    rows.append(records.Evaluation(10, {"loss": 1.0}, 0.1, 1.0, "ckpt-10"))
    assert [row.step for row in tail.take(None)] == [10]
    rows.append(records.Evaluation(50, {"loss": 0.1}, 0.1, 1.0, "/another/ckpt-50"))
    rows.append(records.Evaluation(10, {"loss": 1.0}, 0.1, 2.0, "ckpt-10"))
    rows.append(records.Evaluation(10, {"part/loss": 1.0}, 0.1, 2.0, "ckpt-10"))
    rows.append(records.Evaluation(20, {"loss": 0.5}, 0.1, 2.0, "ckpt-20"))
    found = [(row.step, *row.metrics) for row in tail.take(None)]
    assert found == [(10, "part/loss"), (20, "loss")]
    assert (list(rows.steps), rows.furthest) == ([10, 20], 20)


def test_every_kind_of_row_comes_back_as_it_went(tmp_path):
    path = tmp_path / "history.jsonl"
    given = [
        records.Evaluation(10, {"kind": 0.5, "time": math.inf}, 0.5, 2.0, "ckpt-10"),
        records.Rollback(10, 14, (13, 14), 0.5, "broke", 2.0),
        records.Stop(10, "side", "enough", 2.0),
        records.Drop(10, "side", 0.5, 2.0),
        records.Damaged(20, "ckpt-20", "damaged", 2.0),
        records.Test(10, "best", 10, {"loss": 1.0}, 0.5, 2.0, "ckpt-10"),
    ]
    rows = history.History(path)
    for each in given:
        rows.append(each)
    assert history.read(path) == given


def test_a_decision_that_is_dropped_is_gone_and_nothing_else(tmp_path):
    path = tmp_path / "history.jsonl"
    rows = history.History(path)
    stop = records.Stop(20, "cpu", "enough", 1.0)
    for each in (row(10, loss=1.0), stop, row(20, loss=2.0)):
        rows.append(each)
    rows.drop(stop)
    assert history.read(path) == [row(10, loss=1.0), row(20, loss=2.0)] == rows.evaluations
    assert not rows.of(records.Stop)


def test_a_history_knows_which_steps_have_been_evaluated(tmp_path):
    rows = history.History(tmp_path / "history.jsonl")
    assert rows.furthest == -1
    for step in (10, 30, 20, 20):
        rows.append(row(step, loss=1.0))
    assert (list(rows.steps), rows.furthest) == ([10, 20, 30], 30)
    rows.drop_after(20)
    assert (list(rows.steps), rows.furthest) == ([10, 20], 20)


def test_rows_after_the_restored_step_are_dropped(tmp_path):
    path = tmp_path / "history.jsonl"
    rows = history.History(path)
    for step in (10, 20, 30):
        rows.append(row(step, loss=1.0))

    rows.drop_after(20)

    assert [r.step for r in rows.evaluations] == [10, 20]
    assert [r.step for r in history.History(path).evaluations] == [10, 20]


def test_a_history_knows_the_batches_that_its_rollbacks_leave_out(tmp_path):
    rows = history.History(tmp_path / "history.jsonl")
    rows.append(records.Rollback(10, 14, (13, 14), 0.5, "broke", 2.0))
    rows.append(records.Rollback(20, 25, (25, 26), 0.5, "broke", 2.0))
    assert history.History(tmp_path / "history.jsonl").reading.skipped == [(13, 14), (25, 26)]


def test_the_digest_in_checkpoints_of_earlier_versions_still_fits(tmp_path):
    rows = history.History(tmp_path / "history.jsonl")
    rows.append(row(10, loss=1.0, accuracy=0.5))
    rows.append(row(20, loss=math.nan))
    assert rows.extent == history.Extent(2, 8107485280954076840, 0, 0)
