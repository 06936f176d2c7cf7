"""What a message says, whatever its wording: the options, names and key words in one line of it.

says(err, "TrainerConfig.train_steps 30 finite")
pytest.raises(ConfigError, match=saying("--select=0 more"))
"""

import re
from collections.abc import Iterable


def saying(words: str) -> str:
    """A pattern for a line with all words, in any order; a number counts only as a whole."""
    return "(?m)^" + "".join(f"(?=.*{_pattern(word)})" for word in words.split())


def says(text: str | Iterable[str], words: str) -> None:
    """Fails unless a line of the text, or one of several texts, has all the words."""
    text = text if isinstance(text, str) else "\n".join(text)
    assert re.search(saying(words), text), f"no line has all of {words!r}:\n{text}"


def each_says(lines: Iterable[str], *words: str) -> None:
    """Fails unless there are as many lines as words, and each line has all of its words."""
    lines = list(lines)
    assert len(lines) == len(words), "\n".join(lines)
    for line, expected in zip(lines, words, strict=True):
        says(line, expected)


def _pattern(word: str) -> str:
    before = r"(?<![\w.])" if word[0].isdigit() else ""
    after = r"(?!\w|[.,]\d)" if word[-1].isdigit() else ""
    return before + re.escape(word) + after
