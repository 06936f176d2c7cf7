import pytest
from wording import saying, says

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


def test_what_is_refused_in_any_of_several_files_is_named_at_once(write):
    paths = [
        write("no mark\n" + FOOD, "a.seg"),
        write(FOOD, "b.seg"),
        write(FOOD * 2 + "$T$", "c.seg"),
    ]
    with pytest.raises(ConfigError) as refused:
        read(tuple(paths), bad_examples="refuse")
    first, second = (str(refused.value).index(f"{path}: 1 bad") for path in paths[::2])
    assert first < second
    assert paths[1] not in str(refused.value)


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


REPEATED = "$T$ or $T$ ? The $T$ !\nfood\n0\n"
TWITTER = REPEATED + FOOD


def test_of_repeated_marks_the_first_is_the_aspect_and_the_others_read_as_it(write, capsys):
    path = write(TWITTER)
    repeated, one = read(path)
    assert repeated == ("", "food", " or food ? The food !", "0", f"{path}:3")
    err = capsys.readouterr().err
    says(err, f"{path} 1 more $T$ first")
    assert err.count("$T$") == 1
    assert read(path, split="all") == [repeated, one]
    assert "$T$" not in capsys.readouterr().err
    assert read(path, repeated_marks="skip") == [one]
    says(capsys.readouterr().err, "1 bad $T$")
    with pytest.raises(ConfigError, match=r"1 bad(?s:.*)\$T\$"):
        read(path, repeated_marks="refuse")


BAD = (
    b"Good $T$\nPositive\n"  # 1: no aspect or polarity
    b"Bad $T$\nfood\n"  # 3: no polarity
    b"\n"  # which a blank line does not become
    b"Bad $T$\n \nNegative\n"  # 6: no aspect
    b"Bad food\nfood\nNegative\n"  # 9: no mark
    b"Bad food\nfood\nNegative\n"  # 12: nor here
    b"Caf\xe9 $T$\nbar\nPositive\n"  # 15: Latin-1
    b"A $T$\nbar\n-100\n"  # 18: not labelled
    b"one line too many\n"  # 21: no mark
    b"\n" + TWITTER.encode() + b"Bad $T$"  # 29: nothing after it
)


def test_of_what_makes_no_example_all_lines_are_named_and_the_rest_is_read(write, capsys):
    path = write(BAD)
    assert [example.place for example in read(path)] == [f"{path}:25", f"{path}:28"]
    err = capsys.readouterr().err
    for kind in (
        f"{path}: 9 skipped",
        "2 no polarity lines 1, 3",
        "2 no aspect lines 6, 29",
        "3 no $T$ lines 9, 12, 21",
        "1 UTF-8 line 15",
        "1 polarity -100 line 18",
    ):
        says(err, kind)
    with pytest.raises(ConfigError) as refused:
        read(path, bad_examples="refuse", repeated_marks="refuse")
    says(str(refused.value), "10 bad three")
    for lines in (
        "1, 3)",
        "6, 29)",
        "9, 12, 21",
        "line 15",
        "line 18",
        "more than one $T$ (line 23)",
    ):
        assert lines in str(refused.value)


def test_only_the_given_polarities_count_and_others_are_named_with_all_that_is_bad(write, capsys):
    path = write(FOOD + "So $T$\nfood\nconflict\n" + SERVICE + "Bad $T$\nfood\n")
    known = ("Negative", "Positive")
    assert [each.polarity for each in read(path, polarities=known)] == ["Positive", "Negative"]
    says(capsys.readouterr().err, "1 polarity conflict 4")
    with pytest.raises(ConfigError, match=r"2 bad(?s:.*)'conflict'(?s:.*)line 10"):
        read(path, polarities=known, bad_examples="refuse")


def test_a_file_of_windows_in_utf_16_is_refused(write):
    with pytest.raises(ConfigError, match=saying("x.seg UTF-16 save UTF-8")):
        read(write(FOOD.encode("utf-16")))


def test_a_split_without_a_sentence_is_refused(write):
    path = write(FOOD + SERVICE)
    with pytest.raises(ConfigError, match=saying("1 held_out=0.1 leaves split=")):
        read(path, split="validation", held_out=0.1)


@pytest.mark.parametrize("content", ["\n\n", "Bad $T$\nfood\n", "no\nmark\n"])
def test_a_file_without_an_example_is_refused(write, content):
    with pytest.raises(ConfigError, match=saying("x.seg three")):
        read(write(content))


def test_a_missing_file_is_refused_by_name():
    with pytest.raises(ConfigError, match=saying("file nowhere.seg")):
        read("nowhere.seg")


def test_numbers_may_be_the_names_of_polarities(write):
    examples = read(write("$T$\na\n1\n$T$\nb\n-1\n$T$\nc\n0\n"))
    known = aspect_data.polarities(examples)
    assert known == ("-1", "0", "1")
    assert aspect_data.numbers(examples, known).tolist() == [2, 0, 1]


def test_a_polarity_that_is_not_known_is_refused_with_its_line_and_those_that_are(write):
    examples = read(write(FOOD + SERVICE.replace("Negative", "negative")))
    with pytest.raises(ConfigError, match=saying("x.seg:6 negative Negative Positive")):
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
        ({"split": "test"}, "split='test' expected validation"),
        ({"bad_examples": "keep"}, "bad_examples='keep' expected skip"),
        ({"repeated_marks": "last"}, "repeated_marks='last' expected skip"),
        ({"held_out": 0.0}, "held_out=0.0 between 0 1"),
        ({"tfds_name": "imdb"}, "tfds_name='imdb' effect"),
        ({"num_examples": 3}, "num_examples=3 effect"),
    ],
)
def test_data_that_contradict_themselves_are_refused(fields, message):
    with pytest.raises(ConfigError, match=saying(message)):
        aspect_data.source_of(data(**fields))


def test_absent_files_are_fetched_before_they_are_counted(tmp_path, write):
    remote = fetching.RemoteFile(path=str(tmp_path / "here"), url=f"file://{write(FOOD)}")
    assert data(input_path=remote.path, fetch=(remote,)).size() == 1
