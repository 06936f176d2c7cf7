import pytest
import yaml
from wording import saying

from runner.configuration import yaml_files
from runner.errors import ConfigError


def override(text):
    return yaml_files.read_override(text).values


@pytest.mark.parametrize("text", ["1.5e4", "1e3", "+2E-3", "-1.e+2", "1_000e1"])
def test_a_number_with_an_exponent_is_a_number(text):
    assert override(f"{{a: {text}}}") == {"a": float(text)}
    assert override(f"a={text}") == {"a": float(text)}


def test_switches_are_true_and_false_and_off_is_a_name():
    assert override("{a: true, b: False, c: off, d: yes, e: .inf, f: 1.5, g: 12}") == {
        "a": True,
        "b": False,
        "c": "off",
        "d": "yes",
        "e": float("inf"),
        "f": 1.5,
        "g": 12,
    }


@pytest.mark.parametrize("text", ["1e", "e3", "12e5x", "2026-11-21", "gs://bucket/a=b", "1.2.3"])
def test_what_only_looks_like_a_number_stays_text(text):
    assert override(f"{{a: '{text}'}}") == override(f"{{a: {text}}}") == {"a": text}


def test_pairs_nest_hold_lists_and_fill_arrays():
    found = override("a.b=1, a.c=[1, [2, x]], a.d={e: true}, f[0]=1, f[1]=2.5, g='x, y=z'")
    assert found == {
        "a": {"b": 1, "c": [1, [2, "x"]], "d": {"e": True}},
        "f": [1, 2.5],
        "g": "x, y=z",
    }


def test_json_is_yaml():
    assert override('{"a": {"b": [1, null, "x"]}}') == {"a": {"b": [1, None, "x"]}}


def test_a_path_with_an_equals_sign_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=0.1.yaml").write_text("a: {b: 1}")
    assert yaml_files.read_override("lr=0.1.yaml").places["a.b"] == "lr=0.1.yaml:1"
    assert override("name=runs/lr=0.1") == {"name": "runs/lr=0.1"}


def test_every_value_has_its_place(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("base: &base\n  x: 1\nother:\n  <<: *base\n  list:\n    - y: 2\n    - z: 3\n")
    layer = yaml_files.read_file(path)
    assert layer.values["other"] == {"x": 1, "list": [{"y": 2}, {"z": 3}]}
    assert layer.places["other.x"] == f"{path}:2"  # where it is written, if not where it counts
    assert layer.places["other.list[1].z"] == f"{path}:7"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: [1\n", "x.yaml:3 YAML"),
        ("a: 1\n\tb: 2\n", "x.yaml:2 YAML"),
        ("- 1\n", "x.yaml:1 expected"),
        ("a:\n  b: 1\n  b: 2\n", "x.yaml:3 a.b twice line 2"),
        ("a: !!python/object:os.system x\n", "x.yaml:1 YAML"),
    ],
)
def test_what_is_no_configuration_is_refused_with_its_line(tmp_path, text, said):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=saying(said)):
        yaml_files.read_file(path)


def test_a_missing_file_and_bytes_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no\.yaml: No such file"):
        yaml_files.read_file(tmp_path / "no.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(ConfigError, match=r"b\.yaml: not text"):
        yaml_files.read_file(tmp_path / "b.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("missing.yaml", "expected existing"),
        ("a=1,b", "'b' form name=value"),
        ("a=[1", "1 value"),
        ("a=1,a.b=2", "a.b value"),
        ("a[1]=2", "values missing"),
    ],
)
def test_an_override_that_cannot_be_read_says_why(text, said):
    with pytest.raises(ConfigError, match=saying(said)):
        yaml_files.read_override(text)


def test_an_empty_file_gives_nothing(tmp_path):
    (tmp_path / "e.yaml").write_text("# nothing\n")
    assert yaml_files.read_file(tmp_path / "e.yaml").values == {}


def test_what_is_dumped_reads_back_as_it_was(tmp_path):
    values = {"a": "1e3", "b": 1e3, "c": "off", "d": True, "e": None, "f": "true", "g": [1e-07, ""]}
    path = tmp_path / "a.yaml"
    path.write_text(yaml_files.dump(values))
    assert yaml_files.read_file(path).values == values
    assert yaml.safe_load(path.read_text()) == values
