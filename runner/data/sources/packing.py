"""Packs sequences into rows of a fixed length by best fit, the longest first.

Each sequence goes into the row with the least room that is enough, or into a new row. Krell et al.
("Efficient sequence packing without cross-contamination", 2021) compare such heuristics.
"""

import bisect
import math
from collections.abc import Sequence

import numpy as np


def rows(lengths: np.ndarray, limits: Sequence[int]) -> list[list[int]]:
    """Returns the sequences of each row, in ascending order, as the rows themselves.

    Args:
        lengths: [n, features] int64, at most `limits`. All features of an example stay together.
        limits: The length of a row, for each feature.
    """
    scale = [math.lcm(*limits) // limit for limit in limits]
    totals = lengths @ np.array(scale)
    total, needs = totals.tolist(), lengths.tolist()
    packed: list[list[int]] = []
    rooms: list[list[int]] = []
    order: list[tuple[int, int]] = []  # the rows, by the sum of their rooms
    for each in np.argsort(-totals, kind="stable").tolist():
        need = needs[each]
        at = bisect.bisect_left(order, (total[each], -1))
        while at < len(order) and any(map(int.__gt__, need, rooms[order[at][1]])):
            at += 1
        if at == len(order):
            room, row = math.lcm(*limits) * len(limits), len(packed)
            packed.append([])
            rooms.append(list(limits))
        else:
            room, row = order.pop(at)
        packed[row].append(each)
        rooms[row] = list(map(int.__sub__, rooms[row], need))
        bisect.insort(order, (room - total[each], row))
    return sorted(sorted(row) for row in packed)
