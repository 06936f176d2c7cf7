"""Plots of a classifier's results: the confusion matrix and the reliability diagram."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from matplotlib import colors, figure
from matplotlib.axes import Axes

_DPI = 120
_MOST_COUNTS = 20  # classes whose cells have room for numbers
_MOST_NAMES = 100  # above this, only every n-th class is named
_BLUE, _RED, _GREEN, _GREY = "#4878a8", "#d1605e", "#6a9f58", "#8a8a8a"


def confusion_matrix(counts: np.ndarray, names: Sequence[str] = ()) -> np.ndarray:
    """Draws a confusion matrix, whose shades show fractions of a row and whose numbers are counts.

    The shades follow the square root of the fraction, so that rare mistakes are visible.

    Args:
        counts: [classes, classes], with true classes in rows and predicted classes in columns.
        names: the classes' names. If empty, the classes are numbered.

    Returns:
        uint8 [height, width, 3].
    """
    classes = len(counts)
    examples = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, examples, out=np.zeros(counts.shape), where=examples > 0)
    side = float(np.clip(0.45 * classes, 3.5, 9))
    drawing, (axes,) = _drawing(side + 1.9, side + 1.1)
    shown = axes.imshow(shares, cmap="Blues", norm=colors.PowerNorm(0.5, vmin=0, vmax=1))
    if classes <= _MOST_COUNTS:
        for row, column in np.argwhere(counts > 0):
            axes.text(
                column,
                row,
                _short(counts[row, column]),
                ha="center",
                va="center",
                fontsize=8,
                color="white" if shares[row, column] > 0.36 else "black",
            )
    _name_classes(axes, names or [str(number) for number in range(classes)], side)
    axes.set(xlabel="predicted", ylabel="true")
    total = counts.sum()
    axes.set_title(f"accuracy {np.trace(counts) / total:.4f} of {total:,.0f}", fontsize=11)
    ticks = (0, 0.01, 0.05, 0.2, 0.5, 1)
    bar = drawing.colorbar(shown, ax=axes, fraction=0.046, pad=0.03, ticks=ticks, format="{x:.0%}")
    bar.set_label("share of the true class", fontsize=9)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    return _pixels(drawing)


def reliability(bins: np.ndarray) -> np.ndarray:
    """Draws a reliability diagram: accuracy against confidence, with the examples in each bin.

    Args:
        bins: [bins, 3], over equal parts of [0, 1]: the number of examples, the sum of their
            confidences, and the number of correct predictions.

    Returns:
        uint8 [height, width, 3].
    """
    count, sure, right = bins.T
    filled = count > 0
    width = 1 / len(bins)
    middles = (np.arange(len(bins)) + 0.5)[filled] * width
    accuracy, confidence = right[filled] / count[filled], sure[filled] / count[filled]
    error = np.abs(right - sure).sum() / count.sum()

    drawing, (axes, below) = _drawing(5, 5.6, heights=(3, 1))
    axes.bar(middles, accuracy, 0.92 * width, color=_BLUE, label="accuracy")
    for gap, start, color, label in (
        (confidence - accuracy, accuracy, _RED, "overconfident"),
        (accuracy - confidence, confidence, _GREEN, "underconfident"),
    ):
        axes.bar(middles, gap.clip(0), 0.92 * width, bottom=start, color=color, label=label)
    axes.plot([0, 1], [0, 1], color="black", linewidth=1, linestyle=":")
    axes.set(ylim=(0, 1), ylabel="accuracy")
    drawing.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    axes.set_title(f"expected calibration error {error:.4f}", fontsize=11)
    below.bar(middles, count[filled] / count.sum(), 0.92 * width, color=_GREY)
    below.set(xlim=(0, 1), xlabel="confidence", ylabel="share of\nexamples")
    for each in (axes, below):
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(labelsize=9)
    return _pixels(drawing)


def _drawing(
    width: float, height: float, heights: Sequence[int] = (1,)
) -> tuple[figure.Figure, list[Axes]]:
    """Makes a figure, sized in inches, without pyplot. Returns it and its axes, top to bottom."""
    drawing = figure.Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
    axes = drawing.subplots(len(heights), sharex=True, squeeze=False, height_ratios=heights)
    return drawing, list(axes[:, 0])


def _name_classes(axes: Axes, names: Sequence[str], side: float) -> None:
    """Names rows and columns, or every n-th if there are too many. `side` is in inches."""
    places = range(0, len(names), -(-len(names) // _MOST_NAMES))
    shown = [names[place] for place in places]
    size = min(9.0, 55 * side / len(shown))
    turned: dict[str, Any] = {}
    if len(shown) > _MOST_COUNTS:
        turned = {"rotation": 90}
    elif max(map(len, shown)) > 3:
        turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(places, shown, fontsize=size, **turned)
    axes.set_yticks(places, shown, fontsize=size)
    axes.tick_params(length=0)


def _short(count: float) -> str:
    """A count in at most four characters."""
    return f"{count:.0f}" if count < 10_000 else f"{count / 1000:.0f}k"


def _pixels(drawing: figure.Figure) -> np.ndarray:
    """Renders the figure as uint8 [height, width, 3], enlarged to fit long names."""
    encoded = io.BytesIO()
    drawing.savefig(encoded, format="png", bbox_inches="tight", pad_inches=0.15)
    return tf.io.decode_png(encoded.getvalue(), channels=3).numpy()
