"""Synthetic questions in SQuAD's format, easy enough for any reader.

The old bridge was built by Anna Berg near Lund in 1872. It rained for days. ...
Who built the old bridge? Where was the old bridge built? When was the old bridge built?
"""

import random
from typing import Any

_THINGS = ("bridge", "tower", "mill", "school", "harbour", "theatre", "library", "station")
_ADJECTIVES = ("old", "red", "tall", "small", "grey", "famous")
_FIRST = ("Anna", "Bertil", "Clara", "David", "Elsa", "Frida", "Gustav", "Hanna", "Ivar", "Johan")
_LAST = ("Berg", "Dahl", "Ek", "Falk", "Holm", "Lind", "Nord", "Strand", "Vik", "Wall")
_PLACES = ("Lund", "Visby", "Falun", "New Kalmar", "Umea", "West Lidingo", "Ystad", "Sala")
_FILLERS = (
    "It rained for days.",
    "Many people came to see it.",
    "Nobody knows who paid for the stones.",
    "A storm took half of the roof.",
    "The town was proud, and the king was not.",
    "Children still sing about that summer.",
)


def document(count: int, *, seed: int) -> dict[str, Any]:
    """Returns `count` questions, three on each context, in the form that `json.load` returns.

    Equal arguments give equal questions. For the same seed, a smaller `count` gives a prefix.
    """
    paragraphs: list[dict[str, Any]] = []
    for number in range(-(-count // 3)):
        paragraphs.append(_paragraph(random.Random(f"{seed}/{number}"), f"{seed}-{number}"))
    paragraphs[-1]["qas"] = paragraphs[-1]["qas"][: count - 3 * (len(paragraphs) - 1)]
    return {"version": "1.1", "data": [{"title": "Made up", "paragraphs": paragraphs}]}


def _paragraph(draw: random.Random, name: str) -> dict[str, Any]:
    def one(of: tuple[str, ...]) -> str:
        return of[int(draw.random() * len(of))]  # unlike `choice`, the same in every Python version

    thing = f"the {one(_ADJECTIVES)} {one(_THINGS)}"
    answers = {
        f"Who built {thing}?": f"{one(_FIRST)} {one(_LAST)}",
        f"Where was {thing} built?": one(_PLACES),
        f"When was {thing} built?": str(1500 + int(draw.random() * 500)),
    }
    person, place, year = answers.values()
    before, after = ([one(_FILLERS) for _ in range(int(draw.random() * 3))] for _ in range(2))
    fact = f"{thing.capitalize()} was built by {person} near {place} in {year}."
    context = " ".join([*before, fact, *after])
    return {
        "context": context,
        "qas": [
            {
                "id": f"{name}-{number}",
                "question": question,
                "answers": [{"text": text, "answer_start": context.index(text)}],
            }
            for number, (question, text) in enumerate(answers.items())
        ],
    }
