import json

import pytest
from wording import saying

from runner.errors import ConfigError
from tasks.questions import made_up_questions, squad

CONTEXT = "Anna met Bo. Bo met Anna in Lund."


def document(*answers, **fields):
    item = {"id": "1", "question": "Who?", "answers": list(answers), **fields}
    return {"data": [{"paragraphs": [{"context": CONTEXT, "qas": [item]}]}]}


def answer(text, start):
    return {"text": text, "answer_start": start}


def place(*answers, wrong_offsets="skip"):
    return squad.place(squad.parse(document(*answers), "x"), wrong_offsets, "x")


def test_a_file_holds_contexts_and_questions(tmp_path):
    path = tmp_path / "questions.json"
    path.write_text(json.dumps(document(answer("Bo", 9))))
    read = squad.read(path)
    assert read.contexts == [CONTEXT]
    assert read.questions == [squad.Question("1", "Who?", 0, (("Bo", 9),), False)]


@pytest.mark.parametrize("answers", [[], None])
def test_plausible_answers_to_an_impossible_question_are_none(answers):
    fields = {"is_impossible": True, "plausible_answers": [answer("Bo", 9)], "answers": answers}
    assert squad.parse(document(**fields), "x").questions[0] == ("1", "Who?", 0, (), True)


def test_answers_to_an_impossible_question_are_kept_but_not_learned():
    read = squad.parse(document(answer("Bo", 9), is_impossible=True), "x")
    assert read.questions[0].answers == (("Bo", 9),)
    assert squad.place(read.to_learn(), "refuse", "x").spans == [None]
    possible = squad.parse(document(answer("Bo", 9)), "x")
    assert possible.to_learn() == possible


def test_a_question_may_come_without_answers():
    data = document()
    del data["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    assert squad.parse(data, "x").questions[0].answers == ()


def test_the_first_answer_in_place_is_the_one_learned_from():
    assert place(answer("Bo", 0), answer("Bo", 13), answer("Bo", 9)) == ([(13, 15)], 0, 1)


@pytest.mark.parametrize(
    ("wrong", "nearest"), [(("Anna", 17), (20, 24)), (("Anna", 3), (0, 4)), (("Bo", -5), (9, 11))]
)
def test_a_wrong_offset_is_mended_by_the_nearest_occurrence(wrong, nearest):
    assert place(answer(*wrong), wrong_offsets="mend") == ([nearest], 1, 0)


@pytest.mark.parametrize("wrong", [("Carl", 0), ("", 3), (" ", 4), ("Bo", 10**9)])
def test_what_stands_nowhere_is_skipped(wrong):
    assert place(answer(*wrong)) == ([None], 0, 1)


def test_a_text_that_stands_nowhere_cannot_be_mended():
    assert place(answer("Carl", 0), wrong_offsets="mend") == ([None], 0, 1)


def test_a_wrong_offset_can_be_refused():
    with pytest.raises(ConfigError, match=saying("question 1 Bo char 7")):
        place(answer("Bo", 7), wrong_offsets="refuse")


WRONG = {
    "a list": ([], "x has no list 'data'"),
    "no paragraphs": ({"data": [{}]}, r"x: data\[0\] has no list 'paragraphs'"),
    "no id": (document(id=None), r"x: data\[0\].paragraphs\[0\].qas\[0\] has no text 'id'"),
    "no question": (document(question=3), r"qas\[0\] has no text 'question'"),
    "answers no list": (document(answers={}), r"qas\[0\] has no list 'answers'"),
    "a question that is a text": (
        {"data": [{"paragraphs": [{"context": "", "qas": ["x"]}]}]},
        r"qas\[0\] has no text 'id'",
    ),
    "an offset that is no number": (
        document(answer("Bo", "9")),
        r"answers\[0\] has no whole number 'answer_start'",
    ),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG)
def test_another_layout_is_refused_with_the_place(data, message):
    with pytest.raises(ConfigError, match=message):
        squad.parse(data, "x")


def test_an_id_that_comes_twice_is_refused():
    data = document()
    data["data"] *= 2
    with pytest.raises(ConfigError, match=r"x: data\[1\].*: duplicate id '1'"):
        squad.parse(data, "x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"data": "\xff"}', "byte 10 UTF-8"),
        (b'{"data": [', "not JSON"),
        (b"", "not JSON"),
        (None, "no file"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, content, message):
    path = tmp_path / "questions.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=saying(message)):
        squad.read(path)


def test_made_up_questions_stand_where_they_say():
    made_up = squad.parse(made_up_questions.document(100, seed=3), "x")
    assert len(made_up.questions) == 100
    assert squad.place(made_up, "refuse", "x").skipped == 0


def test_fewer_made_up_questions_are_the_first_of_more():
    few, many = (
        squad.parse(made_up_questions.document(n, seed=3), "x").questions for n in (50, 60)
    )
    assert many[:50] == few
    assert squad.parse(made_up_questions.document(50, seed=4), "x").questions != few
