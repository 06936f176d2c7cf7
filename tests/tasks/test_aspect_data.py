import pytest

from runner.errors import ConfigError
from tasks.aspects import aspect_data
from tasks.files import fetching

FOOD = "The $T$ was good , the service was not .\nfood\nPositive\n"
SERVICE = "The food was good , the $T$ was not .\nservice\nNegative\n"


def data(**fields):
    return aspect_data.AspectData(**{"is_training": False, "global_batch_size": 8, **fields})


def read(path, **fields):
    return aspect_data.read(aspect_data.source_of(data(input_path=path, **fields)))


@pytest.fixture
def write(tmp_path):
    def write(content, name="x.seg"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def test_three_lines_are_a_sentence_its_aspect_and_its_polarity(write):
    path = write(FOOD + SERVICE)
    first, second = read(path)
    assert first == ("The ", "food", " was good , the service was not .", "Positive", f"{path}:3")
    assert (second.left, second.aspect, second.right) == (
        "The food was good , the ",
        "service",
        " was not .",
    )
    assert first.sentence == second.sentence


def test_several_files_are_read_as_one(write):
    paths = [write(FOOD, "a.seg"), write(SERVICE, "b.seg")]
    assert [example.aspect for example in read(tuple(paths))] == ["food", "service"]
    assert data(input_path=tuple(paths)).size() == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text + b"\n \r\n\n",
        lambda text: text.rstrip(),
    ],
    ids=["byte order mark", "CRLF", "blank lines at the end", "no last line break"],
)
def test_what_editors_leave_in_files_changes_nothing(write, change):
    path = write(change((FOOD + SERVICE).encode()))
    assert read(path) == read(write(FOOD + SERVICE))


THREE = "three lines make an example"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Good $T$\nPositive\nBad $T$\nNegative\n", rf"x\.seg:3: a sentence .* polarity .*{THREE}"),
        (FOOD + "Bad $T$\nfood\n", r"x\.seg:6: nothing where the polarity is expected"),
        (FOOD + "Bad $T$\n", r"x\.seg:5: nothing where the aspect is expected"),
        ("Bad $T$\nGood $T$\nfood\n", r"x\.seg:2: a sentence with \$T\$ where the aspect"),
        (FOOD + "Bad $T$\n \nNegative\n", r"x\.seg:5: nothing where the aspect is expected"),
        (FOOD + "Bad food\nfood\nNegative\n", r"x\.seg:4: \$T\$ occurs 0 times instead of once"),
        ("$T$ and $T$\nfood\nNegative\n", r"x\.seg:1: \$T\$ occurs 2 times"),
        (FOOD.encode() + b"Caf\xe9 $T$\nbar\nPositive\n", r"x\.seg:4: not UTF-8"),
        ("\n\n", r"x\.seg is empty"),
    ],
)
def test_a_file_that_is_not_as_it_should_be_is_refused_with_its_line(write, content, message):
    with pytest.raises(ConfigError, match=message):
        read(write(content))


def test_a_missing_file_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"there is no file nowhere\.seg"):
        read("nowhere.seg")


def test_numbers_may_be_the_names_of_polarities(write):
    examples = read(write("$T$\na\n1\n$T$\nb\n-1\n$T$\nc\n0\n"))
    known = aspect_data.polarities(examples)
    assert known == ("-1", "0", "1")
    assert aspect_data.numbers(examples, known).tolist() == [2, 0, 1]


def test_a_polarity_that_is_not_known_is_refused_with_its_line_and_those_that_are(write):
    examples = read(write(FOOD + SERVICE.replace("Negative", "negative")))
    with pytest.raises(
        ConfigError, match=r"x\.seg:6: .*'negative'; expected one of Negative, Positive"
    ):
        aspect_data.numbers(examples, ("Negative", "Positive"))


def test_a_share_of_the_sentences_is_held_out_once_and_for_all_with_all_their_aspects():
    parts = {split: read("", split=split) for split in ("train", "validation", "all")}
    assert [len(part) for part in parts.values()] == [639, 161, 800]
    assert sorted(parts["train"] + parts["validation"]) == sorted(parts["all"])
    sentences = [{e.sentence for e in parts[split]} for split in ("train", "validation")]
    assert not sentences[0] & sentences[1]
    assert len(read("", split="validation", held_out=0.5)) == pytest.approx(400, abs=20)


def test_made_up_examples_are_parted_by_their_use_and_files_are_used_whole(write):
    assert len(read("")) < len(read("", is_training=True)) < 800
    assert len(read(write(FOOD), is_training=True)) == len(read(write(FOOD))) == 1


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ({"split": "train"}, {"split": "validation"}, False),
        ({"split": "train"}, {"split": "all"}, True),
        ({"split": "train"}, {"split": "validation", "held_out": 0.3}, True),
        ({"input_path": "a"}, {"input_path": "b"}, False),
        ({"input_path": "a"}, {"input_path": "a"}, True),
        ({"input_path": "a"}, {"input_path": ("b", "a")}, True),
        ({"input_path": "a", "split": "train"}, {"input_path": "a", "split": "validation"}, False),
        ({"input_path": "a"}, {"split": "all"}, False),
    ],
)
def test_sources_tell_whether_they_share_examples(one, other, overlap):
    sources = [aspect_data.source_of(data(**fields)) for fields in (one, other)]
    assert sources[0].overlaps(sources[1]) == sources[1].overlaps(sources[0]) == overlap


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"is_training": None}, "is_training"),
        ({"split": "test"}, "split='test': expected one of train, validation, all"),
        ({"held_out": 0.0}, "held_out=0.0: a share between 0 and 1"),
        ({"tfds_name": "imdb"}, "tfds_name='imdb' has no effect"),
        ({"num_examples": 3}, "num_examples=3 has no effect"),
    ],
)
def test_data_that_contradict_themselves_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        aspect_data.source_of(data(**fields))


def test_absent_files_are_fetched_before_they_are_counted(tmp_path, write):
    remote = fetching.RemoteFile(path=str(tmp_path / "here"), url=f"file://{write(FOOD)}")
    assert data(input_path=remote.path, fetch=(remote,)).size() == 1
