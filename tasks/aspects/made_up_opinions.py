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


def examples() -> list[Example]:
    """Returns each opinion alone, then together with opinions of other things."""
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
        other, elsewhere, _ = others[draw % len(others)]
        if draw >> 32 & 1:
            left, right = "the ", f" was {opinion} , but the {other} was {elsewhere} ."
        else:
            left, right = f"the {other} was {elsewhere} , but the ", f" was {opinion} ."
        made.append(Example(left, thing, right, polarity, "made up"))
    return made
