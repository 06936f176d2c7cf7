import pytest

from runner.verification import diagnosis, tensors


def part(kind, *differences):
    return tensors.Part(kind, 10, differences)


def row(step, missing=False):
    return tensors.Difference(f"step {step}", "differs", step, missing=missing)


WEIGHT = tensors.Difference("model/kernel", "1 of 2 values differ", bits=1)
ABSENT = tensors.Difference("model/kernel", "only in the second run's checkpoint", missing=True)


def explain(*parts, said=""):
    return diagnosis.explain(parts, resumed=50, said=said)


def test_the_earliest_row_comes_first_and_a_tensor_only_where_rows_agree():
    weights = part("weights", WEIGHT)
    late, early = part("training rows", row(80)), part("evaluations", row(60))
    assert diagnosis.first([weights, late, early]) == ("evaluations", row(60))
    assert diagnosis.first([part("slots"), weights]) == ("weights", WEIGHT)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([part("weights", WEIGHT), part("training rows", row(60))], "inputs after a resume"),
        ([part("weights", WEIGHT), part("generators", WEIGHT)], "drawn outside training"),
        ([part("weights", WEIGHT), part("training rows", row(50))], "is not repeatable even"),
        ([part("slots", ABSENT)], "created only after the first restore"),
        ([part("slots", WEIGHT)], "a slot is created"),
        ([part("training rows", row(60))], "a training metric keeps some of its sums"),
        ([part("evaluations", row(60))], "evaluations are not repeatable"),
        ([part("evaluations", row(60, missing=True))], "a bug in the runner"),
        ([part("best checkpoint", WEIGHT)], "unknown: please report it"),
    ],
)
def test_each_pattern_of_differences_has_its_cause(parts, said):
    assert said in explain(*parts)


def test_what_the_run_says_itself_goes_first():
    said = (
        "resuming is not bit-exact, because the step draws from stateful random ops: A 'b'\n"
        "next line"
    )
    weights = part("weights", WEIGHT)
    assert explain(weights, said=said) == "the step draws from stateful random ops: A 'b'"
    assert explain(weights, said="resuming may not be bit-exact: the step runs eagerly") == (
        "the step runs eagerly"
    )
    assert "inputs after a resume" in explain(
        weights, said="resuming is bit-exact: inputs are indexed"
    )
