from runner.core import growing_file


def test_whole_lines_come_once_and_in_order(tmp_path):
    path = tmp_path / "rows.jsonl"
    reader = growing_file.GrowingFile(path)
    assert reader.take() == []
    path.write_text("one\ntw")
    assert (reader.take(), reader.first, reader.restarted) == ([b"one\n"], 1, True)
    assert reader.take() == []
    path.write_text("one\ntwo\nthree\n")
    assert (reader.take(), reader.first, reader.restarted) == ([b"two\n", b"three\n"], 2, False)


def test_a_file_that_is_cut_or_written_anew_comes_whole(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("one\ntwo\n")
    reader = growing_file.GrowingFile(path)
    reader.take()
    for text in ("one\n", "new\ntwo, longer\n"):
        path.write_text(text)
        assert b"".join(reader.take()).decode() == text
        assert (reader.restarted, reader.first) == (True, 1)
    path.unlink()
    assert reader.take() == []
    path.write_text("again\n")
    assert (reader.take(), reader.first) == ([b"again\n"], 1)
