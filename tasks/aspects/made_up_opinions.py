"""Synthetic sentences. Most hold two opinions, so a model has to find the one about the aspect."""

import numpy as np

from tasks.aspects.three_lines import Example

_COUNT = 800
_POLARITIES = ("negative", "neutral", "positive")
_OPINIONS = {
    "food": ("stale", "edible", "tasty"),
    "service": ("slow", "usual", "quick"),
    "wine": ("sour", "local", "superb"),
    "music": ("loud", "recorded", "lovely"),
    "staff": ("rude", "uniformed", "friendly"),
    "bread": ("dry", "sliced", "crisp"),
    "view": ("grim", "northern", "splendid"),
    "bill": ("outrageous", "itemised", "modest"),
}


def examples(*, every_aspect: bool = False) -> list[Example]:
    """Returns each opinion alone, then together with opinions of other things.

    Args:
        every_aspect: whether sentences with two opinions make an example for each of them, not
            only for the first.
    """
    said = [
        (thing, opinion, polarity)
        for thing, opinions in _OPINIONS.items()
        for opinion, polarity in zip(opinions, _POLARITIES, strict=True)
    ]
    made = [Example("the ", t, f" was {o} .", p, "made up") for t, o, p in said]
    draws = np.random.Philox(key=0).random_raw(_COUNT - len(said)).tolist()
    for number, draw in enumerate(draws):
        thing, opinion, polarity = said[number % len(said)]
        others = [example for example in said if example[0] != thing]
        other, elsewhere, feeling = others[draw % len(others)]
        pair = [(thing, opinion, polarity), (other, elsewhere, feeling)]
        (one, said_one, _), (two, said_two, _) = pair if draw >> 32 & 1 else pair[::-1]
        parts = {
            one: ("the ", f" was {said_one} , but the {two} was {said_two} ."),
            two: (f"the {one} was {said_one} , but the ", f" was {said_two} ."),
        }
        for aspect, _, feeling in pair if every_aspect else pair[:1]:
            left, right = parts[aspect]
            made.append(Example(left, aspect, right, feeling, "made up"))
    return made
