import pytest
from wording import says

from runner.run_directory.verification import diagnosis, tensors


def part(kind, *differences):
    return tensors.Part(kind, 10, differences)


def row(step, missing=False):
    return tensors.Difference(f"step {step}", "differs", step, missing=missing)


WEIGHT = tensors.Difference("model/kernel", "1 of 2 values differ", bits=1)
ABSENT = tensors.Difference("model/kernel", "only in the second run's checkpoint", missing=True)


def explain(*parts, obstacle=""):
    return diagnosis.explain(parts, 50, obstacle)


def test_the_earliest_row_comes_first_and_a_tensor_only_where_rows_agree():
    weights = part("weights", WEIGHT)
    late, early = part("training rows", row(80)), part("evaluations", row(60))
    assert diagnosis.first([weights, late, early]) == ("evaluations", row(60))
    assert diagnosis.first([part("slots"), weights]) == ("weights", WEIGHT)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([part("weights", WEIGHT), part("training rows", row(60))], "inputs resume"),
        ([part("weights", WEIGHT), part("generators", WEIGHT)], "drawn outside"),
        ([part("weights", WEIGHT), part("training rows", row(50))], "not repeatable"),
        ([part("slots", ABSENT)], "created restore"),
        ([part("slots", WEIGHT)], "slot created"),
        ([part("training rows", row(60))], "keeps sums"),
        ([part("evaluations", row(60))], "evaluations repeatable"),
        ([part("evaluations", row(60, missing=True))], "bug runner"),
        ([part("best checkpoint", WEIGHT)], "please report"),
    ],
)
def test_each_pattern_of_differences_has_its_cause(parts, said):
    says(explain(*parts), said)


def test_what_the_run_expects_itself_goes_first():
    assert explain(part("weights", WEIGHT), obstacle="it is eager") == "it is eager"
