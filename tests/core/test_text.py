from runner.core import text


def test_durations():
    shown = [text.duration(seconds) for seconds in (7, 750, 10_930, 2 * 86_400 + 10_800)]
    assert shown == ["0:07", "12:30", "3:02:10", "2 d 03:00"]


def test_large_numbers_have_three_digits():
    assert [text.short(n) for n in (7, 999, 25_583_592, 10**18)] == [
        "7",
        "999",
        "25.6 M",
        "1e+03 P",
    ]
    assert [text.size(n) for n in (0, 999.7, 1_234_567_890)] == ["0 B", "1 kB", "1.23 GB"]


def test_nouns_are_counted():
    assert [text.counted(n, "row") for n in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]


def test_of_many_words_some_are_said():
    assert text.some(["a", "b", "c"]) == "a, b, c"
    assert text.some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
