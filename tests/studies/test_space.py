import pytest
from wording import saying

from runner.errors import ConfigError
from runner.studies import space


def test_values_are_lists_or_ranges_and_may_depend_on_others():
    kind, momentum, rate, size, hidden = space.parse(
        [
            "OptimizerConfig.type='adam','sgd'",
            "SGDConfig.momentum=uniform(0, 0.9) if OptimizerConfig.type='sgd'",
            "CosineLrConfig.initial_learning_rate=log(1e-4, 1)",
            "MLPConfig.layers=int(1, 4)",
            "MLPConfig.hidden=(64,),(64, 32)",
        ]
    )
    assert (kind.kind, kind.values) == ("list", ("adam", "sgd"))
    assert (momentum.kind, momentum.when) == ("uniform", ("OptimizerConfig.type", "sgd"))
    assert (rate.kind, rate.values) == ("log", (1e-4, 1.0))
    assert (size.kind, size.values) == ("int", (1, 4))
    assert hidden.values == ((64,), (64, 32))


def test_a_value_is_shown_as_typed_and_a_drawn_one_shortened():
    typed = [0.1, 0.99996, 1e-5, 1e30, 2.0, 0.1 + 0.2, "a", 7]
    shown = ["0.1", "0.99996", "1e-05", "1e+30", "2", "0.3", "a", "7"]
    assert [*map(space.shown, typed)] == shown
    assert space.described({"A.rate": 0.99999}) == "rate=0.99999"


def test_a_grid_has_every_combination_once():
    varied = space.parse(["A.x='p','q'", "A.y=1,2", "A.z=7,8 if A.x='q'"])
    found = space.grid(varied)
    assert len(found) == 2 + 4
    assert {"A.x": "p", "A.y": 1} in found
    assert {"A.x": "q", "A.y": 2, "A.z": 8} in found


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["x=1"], "expected Name.parameter=VALUES"),
        (["A.b=foo(1, 2)"], "uniform log"),
        (["A.b=adam"], "quotes adam"),
        (["A.b=1,1"], "value twice"),
        (["A.b=log(0, 1)"], "above 0"),
        (["A.b=int(1.5, 2)"], "two integers"),
        (["A.b=uniform(2, 1)"], "must below"),
        (["A.b=1", "A.b=2"], "A.b varies"),
        (["A.c=1 if A.b=2"], "A.b vary"),
        (["A.b=1,2", "A.c=1 if A.b=3"], "A.b never 3"),
    ],
)
def test_what_makes_no_sense_is_refused(texts, said):
    with pytest.raises(ConfigError, match=saying(said)):
        space.parse(texts)


def test_all_mistakes_are_told_at_once():
    with pytest.raises(ConfigError, match=r"(?s)A\.b=x: .*A\.c=y: "):
        space.parse(["A.b=x", "A.c=y"])


def test_a_grid_has_an_end():
    tenfold = [f"A.b{n}={','.join(map(str, range(10)))}" for n in range(9)]
    with pytest.raises(ConfigError, match="1,000,000,000 combinations"):
        space.grid(space.parse(tenfold))
    with pytest.raises(ConfigError, match=saying("needs lists")):
        space.grid(space.parse(["A.b=uniform(0, 1)"]))


def test_bindings_are_those_that_were_written_after_a_way_through_json():
    assert space.gin("MLPConfig.hidden", [64, 32]) == "MLPConfig.hidden = (64, 32)"
    assert space.gin("A.b", "text") == "A.b = 'text'"
    assert space.gin("A.b", "@mine.C()") == "A.b = @mine.C()"
