"""Configurations made to do harm, or damaged at random: each loads or is refused in a few lines."""

import json
import random
from pathlib import Path

import pytest

from runner import config, main
from runner.configuration import gin_parser
from runner.core import sizes
from runner.errors import ConfigError
from runner.inspection.expression import Expression
from runner.studies import space

LONGEST_MESSAGE = 20_000  # characters
BASE = "include 'digits.gin'\n"


def loaded(**sources):
    """What is said of a configuration; empty if it loads."""
    given = {"gin_files": ["digits.gin"], "gin_params": [], **sources}
    said = refusal(lambda: config.load(given.pop("gin_files"), given.pop("gin_params"), **given))
    assert len(said) < LONGEST_MESSAGE
    return said


def refusal(read):
    """Why something is refused; empty if it is not."""
    try:
        read()
    except ConfigError as error:
        return str(error) or "refused"
    return ""


def of_gin(text):
    Path("hostile.gin").write_text(BASE + text, encoding="utf-8", errors="surrogatepass")
    return loaded(gin_files=["hostile.gin"])


def of_yaml(text):
    Path("hostile.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
    return loaded(config_files=["hostile.yaml"])


def aliases(first, head):
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{n}: &a{n} {head}[{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    return "\n".join(lines) + "\n"


MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n}\n  <<: [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)
MACROS = "m0 = 1\n" + "".join(f"m{n} = ({','.join([f'%m{n - 1}'] * 10)})\n" for n in range(1, 10))

LARGE_YAML = {
    "aliases nine levels deep": (aliases("[x]", ""), "more than"),
    "merges nine levels deep": (MERGES, "more than"),
    "five million values": (f"task: [{'1,' * 5_000_000}]", "longer than"),
    "many short values": (f"task: [{'1,' * 100_000}]", "more than"),
    "many lines": ("task:\n" + "- 1\n" * 100_000, "more than"),
    "brackets": ("[" * 20_000, "nested"),
    "closed brackets": ("[" * 20_000 + "]" * 20_000, "nested"),
    "braces": ("{a: " * 20_000, "nested"),
    "a list in a list": ("- " * 5_000 + "1", "nested"),
    "a list in itself": ("task: &a [*a]", "nested"),
    "a section in itself": ("task: &a {model: *a}", "nested"),
    "JSON in JSON": ('{"a":' * 5_000 + "1" + "}" * 5_000, "nested"),
    "a name of 10 MB": ("a" * 10_000_000 + ": 1", "longer than"),
}
LARGE_GIN = {
    "parentheses": (f"RunConfig.tags = {'(' * 2_000}{')' * 2_000}", "nested"),
    "open brackets": (f"RunConfig.tags = {'[' * 20_000}", "nested"),
    "signs": (f"RunConfig.seed = {'-' * 20_000}1", "cannot"),
    "five million values": (f"RunConfig.tags = [{'1,' * 5_000_000}]", "longer than"),
    "many values": (f"RunConfig.tags = [{'1,' * 100_000}]", "more than"),
    "macros nine levels deep": (f"{MACROS}RunConfig.tags = %m9", "more than"),
    "a chain of macros": (
        "RunConfig.seed = %m0\n"
        + "".join(f"m{n} = %m{n + 1}\n" for n in range(3000))
        + "m3000 = 1",
        "RunConfig.seed",
    ),
    "many bindings": ("RunConfig.seed = 1\n" * 20_000, "more than"),
    "many unknown names": ("".join(f"Foo{n}.a = 1\n" for n in range(4_000)), "Foo0"),
    "a name of 10 MB": ("A" * 10_000_000 + ".a = 1", "longer than"),
    "a long name": ("A" * 200_000 + ".a = 1", "200,000 characters"),
    "a long field": ("RunConfig." + "a" * 200_000 + " = 1", "200,000 characters"),
    "a long value": (f"RunConfig.seed = '{'a' * 200_000}'", "200,000 characters"),
    "a long module": ("import " + "a" * 200_000, "200,000 characters"),
    "a long include": (f"include '{'a' * 200_000}'", "200,000 characters"),
    "no path": ("include 'a\\0b'", "no gin file"),
}  # fmt: skip


@pytest.mark.parametrize("kind", LARGE_YAML)
def test_yaml_that_is_too_large_is_refused(kind):
    text, word = LARGE_YAML[kind]
    assert word in of_yaml(text)


@pytest.mark.parametrize("kind", LARGE_GIN)
def test_gin_that_is_too_large_is_refused(kind):
    text, word = LARGE_GIN[kind]
    assert word in of_gin(text)


NUMBERS = ["1" + "0" * 400, "1" + "0" * 5_000, str(2**63), str(-(2**70)), "1e999", ".nan", "1j"]
TEXTS = [
    "'\\ud800'",
    '"\\ud800"',
    '"\\U00110000"',
    "'\\x00'",
    "{[]: 1}",
    "!!int x",
    "!!timestamp x",
]
TEXTS += ["!!binary ä", "!!python/object:os.system x", "? [a]\n: b", "2020-13-45", "b'x'", "..."]


@pytest.mark.parametrize("value", [*NUMBERS, *TEXTS])
def test_values_that_cannot_be_are_refused(value):
    assert of_yaml(f"trainer:\n  train_steps: {value}")
    assert of_gin(f"TrainerConfig.train_steps = {value}")
    assert loaded(gin_params=[f"TrainerConfig.train_steps={value}"])
    assert loaded(overrides=[f"trainer.train_steps={value}"])
    of_yaml(f"run: {{notes: {value}}}")
    of_yaml(f"run: {{rollback_rate: {value}}}")


def test_text_that_no_file_can_hold_is_refused(capsys):
    for flag in (
        "--gin.RunConfig.notes='\udcff'",
        "--model_dir=a\udcff",
        "--params_override=\udcff",
    ):
        assert main.main(["--mode=train", "--gin_file=digits.gin", "--model_dir=a", flag]) == 2
        assert "UTF-8" in capsys.readouterr().err
    assert "Unicode" in loaded(overrides=['{"run": {"notes": "\\ud800"}}'])


def test_an_endless_file_is_refused():
    assert "longer than" in loaded(config_files=["/dev/zero"])


def test_files_that_include_each_other_are_named(capsys):
    Path("a.gin").write_text("include 'sub/b.gin'\n")
    Path("sub").mkdir()
    Path("sub/b.gin").write_text("\ninclude 'c.gin'\n")
    Path("sub/c.gin").write_text("# nothing\n\ninclude 'a.gin'\n")
    assert main.main(["--mode=train", "--gin_file=a.gin", "--model_dir=run"]) == 2
    said = capsys.readouterr().err
    assert "a.gin -> b.gin -> c.gin -> a.gin" in said
    assert "sub/c.gin:3" in said
    Path("d.gin").write_text("include 'digits.gin'\ninclude 'd.gin'\n")
    assert "d.gin -> d.gin" in loaded(gin_files=["d.gin"])


def test_a_file_may_be_included_twice():
    Path("one.gin").write_text("RunConfig.seed = 3\n")
    Path("two.gin").write_text("include 'one.gin'\n")
    assert of_gin("include 'one.gin'\ninclude 'two.gin'\n") == ""


def test_includes_without_end_are_refused():
    for number in range(3_000):
        Path(f"f{number}.gin").write_text(f"include 'f{number + 1}.gin'\n")
    Path("f3000.gin").write_text(BASE)
    assert str(sizes.DEEPEST) in loaded(gin_files=["f0.gin"])


def test_flags_that_are_too_large_are_refused():
    for name in ("x" * 400_000, "x" * 10_000_000, ".".join(["a"] * 50_000)):
        assert loaded(gin_params=[f"RunConfig.{name}=1"])
        assert loaded(overrides=[f"trainer.{name}=1"])
    for text in (f"A.b={'(' * 3_000}1{')' * 3_000}", f"A.b=[{'1,' * 5_000_000}]", "A.b={1,2}"):
        with pytest.raises(ConfigError) as refused:
            space.parse([text])
        assert len(str(refused.value)) < LONGEST_MESSAGE
    for end in ("1" + "0" * 400, "1e999", str(2**64)):
        with pytest.raises(ConfigError):
            space.parse([f"A.b=uniform(0, {end})"])


@pytest.mark.parametrize(
    "text",
    ["not " * 2_000 + "a", "(" * 300 + "a" + ")" * 300, "-" * 5_000 + "1", ".".join("a" * 4_000)],
)
def test_expressions_that_are_too_deep_are_refused(text):
    with pytest.raises(ConfigError, match="where"):
        Expression(text)


def _mutated(text, rng):
    """A text with a few parts removed, doubled, moved or replaced by signs."""
    signs = "()[]{}'\"\\%@#=:,.&*!|>-?<\n\t \0\ud800é0123456789e_/"
    words = [
        "1e999",
        "10**9",
        "None",
        "nan",
        "%a",
        "@B()",
        "include ",
        "import ",
        "<<: ",
        "&a ",
        "*a ",
    ]
    for _ in range(rng.randint(1, 6)):
        start = rng.randrange(len(text) + 1)
        end = min(start + rng.choice((0, 1, 1, 5, 30)), len(text))
        new = rng.choice(
            (
                "",
                rng.choice(signs),
                rng.choice(words),
                text[start:end] * 3,
                rng.choice(signs) * rng.choice((2, 500)),
                text[rng.randrange(len(text) + 1) :][:20],
            )
        )
        text = text[:start] + new + text[end:]
    return text


GIN = """RunConfig.seed = 3
RunConfig.tags = ('a', "b")
TrainerConfig:
  train_steps = 20
  validation_interval = 10  # text
macro = {'a': [1, 2.5e-3, None, True]}
RunConfig.notes = "words"
train/ImageData.global_batch_size = 16
"""
YAML = """run: {seed: 3, tags: [a, "b"], notes: &n 'words'}
trainer:
  train_steps: 20
  validation_interval: 1e1   # text
  optimizer_config: {optimizer: {type: adam, adam: {beta_1: 0.9}}}
"""


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("seed", range(2))
def test_damaged_configurations_load_or_are_refused(seed):
    rng = random.Random(seed)
    said = []
    for _ in range(8):
        gin, yaml = _mutated(GIN, rng), _mutated(YAML, rng)
        text = json.dumps({"run": {"seed": 1, "notes": "a"}, "trainer": {"train_steps": 5}})
        said += [of_gin(gin), of_yaml(yaml), of_yaml(_mutated(text, rng))]
        said.append(loaded(gin_params=[_mutated("RunConfig.notes='words'", rng)]))
        said.append(loaded(overrides=[_mutated("run.seed=3,run.tags=[a, b],trainer.x=1", rng)]))
    assert any(said)


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("seed", range(2))
def test_damaged_flags_of_studies_and_tables_are_read_or_refused(seed):
    rng = random.Random(seed)
    for _ in range(150):
        for read, text in (
            (lambda text: space.parse([text]), "A.b=1, 2.5,(3, 4),'x' if B.c=1"),
            (lambda text: space.parse([text]), "A.b=log(1e-4, 0.1)"),
            (_judged, "best.accuracy > 0.9 and (seed in [1, 2] or not notes == 'x')"),
            (lambda text: list(gin_parser.read([], [text])), "RunConfig.notes='words'"),
        ):
            said = refusal(lambda read=read, text=text: read(_mutated(text, rng)))
            assert len(said) < LONGEST_MESSAGE


def _judged(text):
    values = {"best.accuracy": 0.95, "seed": 1, "notes": None}
    Expression(text).holds(values.get)
