import io

import pytest
import terminals
from wording import each_says, says

from runner.core import console
from runner.history import best_evaluation, records
from runner.reporting import progress


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def Progress(*args, stream, **kwargs):  # noqa: N802
    return progress.Progress(*args, screen=console.Console(stream), **kwargs)


def row(step, **metrics):
    return records.Evaluation(step, metrics, seconds=2.0, time=0.0, checkpoint=f"ckpt-{step}")


def test_the_live_line_says_where_the_run_is(monkeypatch):
    stream, clock = terminals.Terminal(), Clock()
    line = Progress(1000, metric=best_evaluation.BestRule("accuracy"), stream=stream, clock=clock)
    line.evaluated(row(400, accuracy=0.9), row(400, accuracy=0.9))
    line.evaluated(row(450, accuracy=0.8), row(400, accuracy=0.9))
    line.training(500, 100, 2.0, lambda: 0.25)

    shown = stream.getvalue().split("\r")[-1]

    assert "step 500/1,000 50%" in shown
    assert "50.0 steps/s" in shown
    assert "ETA 0:10" in shown
    assert "loss 0.25" in shown
    assert "accuracy 0.8 (best 0.9 @400)" in shown


def test_the_line_says_epochs_where_lengths_are_given_so_and_the_time_since_the_start():
    stream, clock = terminals.Terminal(), Clock()
    line = Progress(1000, epochs=10, stream=stream, clock=clock)
    clock.now += 75
    line.training(520, 100, 2.0, lambda: 0.25)
    says(stream.getvalue(), "52% 5.2/10 steps/s ETA elapsed")


def test_the_line_says_what_the_rate_makes_of_the_devices_where_that_is_known():
    stream = terminals.Terminal()
    line = Progress(1000, utilization=lambda rate: rate / 200, stream=stream, clock=Clock())
    line.training(520, 100, 2.0, lambda: 0.25)
    assert "50.0 steps/s  MFU 25%  ETA" in stream.getvalue()


def test_the_live_line_below_an_evaluation_shows_its_metric():
    stream = terminals.Terminal()
    line = Progress(1000, metric=best_evaluation.BestRule("accuracy"), stream=stream, clock=Clock())
    line.training(500, 100, 2.0, lambda: 0.25)
    line.evaluated(row(500, accuracy=0.9), row(500, accuracy=0.9))
    line.evaluated(row(600, other=0.5), row(500, accuracy=0.9))  # of another set
    shown = stream.getvalue().split("\n")
    assert "accuracy 0.9" in shown[-1]
    says(shown[-1], "500/1,000 50% steps/s ETA elapsed")


def test_of_several_metrics_that_decide_each_is_shown_now_and_at_the_best(monkeypatch):
    stream, rule = (
        terminals.Terminal(),
        best_evaluation.BestRule("accuracy", or_higher=("f1",), or_lower=("loss",)),
    )
    line = Progress(1000, metric=rule, stream=stream, clock=Clock())
    line.training(500, 100, 2.0, lambda: 0.25)
    line.evaluated(row(400, accuracy=0.9, f1=0.5), row(400, accuracy=0.9, f1=0.5))
    assert stream.lines[-1].endswith("  accuracy 0.9, f1 0.5 (best 0.9, 0.5 @400)")
    line.evaluated(row(500, loss=2.0), row(500, loss=2.0))
    assert stream.lines[-1].endswith("  accuracy 0.9, f1 0.5, loss 2 (best -, -, 2 @500)")


def test_the_eta_right_after_a_resume_comes_from_this_start_alone():
    stream = terminals.Terminal()
    line = Progress(1_000_000, stream=stream, clock=Clock())
    line.training(999_900, 100, 1.0, lambda: 0.0)
    assert "ETA 0:01" in stream.getvalue()


def test_the_eta_counts_evaluations_still_to_come():
    stream = terminals.Terminal()
    line = Progress(200, evaluations_left=lambda step: 3, stream=stream, clock=Clock())
    line.evaluated(row(100), None)
    line.training(100, 100, 10.0, lambda: 0.0)
    assert "ETA 0:16" in stream.getvalue()


def test_elsewhere_a_plain_line_is_printed_now_and_then():
    stream, clock = io.StringIO(), Clock()
    line = Progress(1000, stream=stream, clock=clock)
    for step in range(10, 500, 10):
        clock.now += 1.0
        line.training(step, 10, 1.0, lambda: 0.0)

    lines = stream.getvalue().splitlines()

    assert len(lines) == 2
    assert "\r" not in stream.getvalue()
    assert lines[0].startswith("step 10/1,000")
    assert lines[1].startswith("step 310/1,000")


def test_the_loss_is_read_only_to_be_shown():
    clock, read = Clock(), []
    line = Progress(1000, stream=io.StringIO(), clock=clock)
    for step in range(1, 100):
        line.training(step, 1, 0.01, lambda: read.append(1) or 0.0)
    assert len(read) == 1


def test_an_evaluation_is_printed_once_and_the_best_is_marked():
    stream = io.StringIO()
    line = Progress(10, metric=best_evaluation.BestRule("accuracy"), stream=stream)
    line.evaluated(row(5, accuracy=0.5), row(5, accuracy=0.5))
    line.evaluated(row(10, accuracy=0.25), row(5, accuracy=0.5))
    each_says(
        stream.getvalue().splitlines(),
        "evaluated 5 2.0 accuracy 0.5",
        "evaluated 10 2.0 accuracy 0.25",
    )


def test_another_thread_may_read_the_loss_and_redraw_the_line():
    stream, handed = terminals.Terminal(), []
    line = Progress(1000, stream=stream, hand_over=handed.append, clock=Clock())
    line.training(500, 100, 2.0, lambda: 0.25)
    assert stream.getvalue() == ""
    handed.pop()()
    assert "step 500/1,000" in stream.getvalue()


@pytest.mark.parametrize(
    ("columns", "shown"), [(60, "..."), (80, "a_metric 0.125, b_metric 0.125 ...")]
)
def test_a_line_that_is_too_long_for_the_terminal_ends_between_two_values(
    monkeypatch, columns, shown
):
    monkeypatch.setenv("COLUMNS", str(columns))
    stream, rule = terminals.Terminal(columns), best_evaluation.BestRule("f1")
    line = Progress(1000, metric=rule, stream=stream, clock=Clock())
    metrics = {f"{letter}_metric": 0.125 for letter in "abcdefgz"}
    line.evaluated(row(500, f1=0.5, **metrics), row(500, f1=0.5))
    (said,) = stream.lines
    says(said, "step 500 f1 0.5 (best)")
    assert said.endswith(f" {shown}")


FIELDS = (
    "step 500/1,000",
    "50%",
    "50.0 steps/s",
    "ETA 0:10",
    "elapsed 0:00",
    "loss 0.25",
    "f1 0.5",
)


@pytest.mark.parametrize(
    ("columns", "dropped"),
    [
        (100, {}),
        (80, {"50.0 steps/s"}),
        (70, {"50.0 steps/s", "elapsed 0:00"}),
        (55, {"50.0 steps/s", "elapsed 0:00", "ETA 0:10"}),
        (45, {"50.0 steps/s", "elapsed 0:00", "ETA 0:10", "step 500/1,000"}),
    ],
)
def test_a_narrow_terminal_shows_the_metric_that_decides_before_the_rest(
    monkeypatch, columns, dropped
):
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = terminals.Terminal(columns)
    rule = best_evaluation.BestRule("f1")
    line = Progress(1000, epochs=10, metric=rule, stream=stream, clock=Clock())
    line.evaluated(row(500, f1=0.5), row(500, f1=0.5))
    line.training(500, 100, 2.0, lambda: 0.25)
    assert len(stream.lines) == 2
    assert [each for each in FIELDS if each not in stream.lines[-1]] == [
        each for each in FIELDS if each in dropped
    ]


def test_where_several_metrics_do_not_fit_the_first_one_is_shown_with_its_best(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    rule = best_evaluation.BestRule("validation/mean_f1_score", or_higher=("validation/accuracy",))
    scores = {"validation/mean_f1_score": 0.75, "validation/accuracy": 0.875}
    stream = terminals.Terminal(80)
    line = Progress(100_000, metric=rule, stream=stream, clock=Clock())
    line.evaluated(row(50_000, **scores), row(50_000, **scores))
    line.training(51_000, 1000, 2.0, lambda: 0.25)
    assert stream.lines[-1] == "51%  loss 0.25  validation/mean_f1_score 0.75 (best 0.75 @50,000)"


def test_elsewhere_a_line_has_all_metrics_those_that_decide_first():
    stream, rule = io.StringIO(), best_evaluation.BestRule("f1", or_higher=("em",))
    line = Progress(10, metric=rule, deciding=["perplexity", "f1", "recall"], stream=stream)
    metrics = {"accuracy": 0.5, "em": 0.25, "f1": 0.75, "perplexity": 2.0, "x" * 200: 1.0}
    line.evaluated(row(5, **metrics), None)
    says(stream.getvalue(), f"5 f1 0.75, em perplexity accuracy 0.5, {'x' * 200}")


def test_the_line_below_an_evaluation_is_of_the_newest_step():
    stream, clock = terminals.Terminal(), Clock()
    line = Progress(1000, stream=stream, clock=clock)
    line.training(500, 100, 2.0, lambda: 0.25)
    clock.now += 0.1  # too soon to be drawn
    line.training(600, 100, 2.0, lambda: 0.125)
    assert stream.lines[-1].startswith("step 500/1,000")
    line.evaluated(row(600, accuracy=0.9), None)
    assert stream.lines[-1].startswith("step 600/1,000")
    assert "loss 0.125" in stream.lines[-1]


def test_the_line_shows_the_learning_rate_and_how_long_the_last_epoch_took():
    stream = terminals.Terminal()
    line = Progress(1000, epochs=10, stream=stream, clock=Clock())
    line.training(500, 100, 2.0, lambda: 0.25, rate=lambda: 0.00125, epoch_seconds=75.0)
    assert "epoch 5.0/10 (1:15 each)  50.0 steps/s" in stream.getvalue()
    assert "lr 0.00125  loss 0.25" in stream.getvalue()


def test_at_80_columns_the_loss_and_the_best_are_left(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    stream, rule = terminals.Terminal(80), best_evaluation.BestRule("part/exact_match")
    line = Progress(123_456, metric=rule, epochs=100, stream=stream, clock=Clock())
    line.evaluated(row(99_000, **{"part/exact_match": 0.51}), row(400, **{"part/exact_match": 0.6}))
    line.training(100_000, 100, 2.0, lambda: 1.2345, rate=lambda: 0.00125, epoch_seconds=75.0)
    shown = stream.lines[-1]
    assert len(shown) < 80
    assert shown.endswith("loss 1.234  part/exact_match 0.51 (best 0.6 @400)")
