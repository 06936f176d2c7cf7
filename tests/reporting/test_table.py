from runner.history import records
from runner.reporting import table


def row(step, **metrics):
    return records.Evaluation(step, metrics, 1.26, 0.0, f"ckpt-{step}")


def test_cells_stand_below_each_other():
    lines = table.aligned([["name", "n"], ["a", "1,000"]], left=1)
    assert lines == ["name      n", "a     1,000"]


def test_a_line_a_checkpoint_with_its_metrics_and_the_best_marked():
    rows = [row(1000, loss=0.25), row(20, accuracy=0.5, loss=float("nan"))]
    unreadable = [records.Damaged(300, "ckpt-300", "cut short", 0.0)]
    assert table.evaluations(rows, unreadable, best=rows[0]).plain.splitlines() == [
        " step  accuracy  loss  seconds",
        "   20       0.5   nan      1.3",
        "  300  cut short",
        "1,000         -  0.25      1.3  best",
    ]


def test_without_any_evaluation_the_reasons_are_left():
    unreadable = [records.Damaged(3, "ckpt-3", "gone", 0.0)]
    assert table.evaluations([], unreadable).plain.splitlines() == [
        "step  seconds",
        "   3  gone",
    ]


def test_the_metrics_that_decide_come_first_and_the_others_as_they_fit():
    rows = [row(1000, accuracy=0.5, brier_score=0.25, f1=0.75, loss=0.125)]
    assert table.evaluations(rows, best=rows[0], first=("f1", "absent")).plain.splitlines() == [
        " step    f1  accuracy  brier_score   loss  seconds",
        "1,000  0.75       0.5         0.25  0.125      1.3  best",
    ]
    for width, head in (
        (60, " step    f1  accuracy  brier_score   loss  seconds"),
        (54, " step    f1  accuracy  brier_score  ...  seconds"),
        (41, " step    f1  accuracy  ...  seconds"),
        (20, " step    f1  ...  seconds"),
    ):
        lines = table.evaluations(rows, best=rows[0], first=("f1",), width=width).plain.splitlines()
        assert lines[0] == head
        assert max(map(len, lines)) <= max(width, 31)


def test_a_terminal_shows_the_best_in_its_colour():
    rows = [row(10, loss=0.25), row(20, loss=0.5)]
    made = table.evaluations(rows, best=rows[0])
    assert [str(span.style) for span in made.spans] == ["not bold green", "not bold"]


def test_cells_are_cut_to_fit_a_terminal_and_whole_elsewhere():
    lines = [["layer", "n"], ["a" * 50, "1,000"], ["[b]", "2"]]
    cut = table.aligned(lines, left=1, width=30)
    assert [len(line) for line in cut] == [30, 30, 30]
    assert cut[1].endswith("…  1,000")
    assert cut[2].startswith("[b] ")
    assert table.aligned(lines, left=1)[1] == f"{'a' * 50}  1,000"
