"""The result of `runner.fit`: that of a run, with the history in Keras's form. No TensorFlow."""

import functools
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.run_directory.run import Columns, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOSS = "loss"
_WIDTH, _HEIGHT = 4.5, 3.2  # of a plot, in inches


class FitResult(dict[str, Any]):
    """The results of `runner.run`, with the evaluations as Keras's `History` has them.

    Args:
        results: The content of the command's last line.
        params: The arguments of `fit`, as in Keras's `History`.

    Attributes:
        model_dir: The run's directory.
        params: The arguments of `fit`.
    """

    def __init__(self, results: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        super().__init__(results)
        self.model_dir = Path(results.get("model_dir", ""))
        self.params = dict(params)

    def __repr__(self) -> str:
        best = self.best or {}
        values = ", ".join(f"{name} {value:.4g}" for name, value in _numbers(best.get("metrics")))
        shown = f", best {values} at step {best['step']:,}" if values else ""
        return f"<{self['status']} at step {self['step']:,}{shown}, in {str(self.model_dir)!r}>"

    @functools.cached_property
    def history(self) -> Columns:
        """A value for each evaluation: `loss`, `accuracy`, `val_loss`, `val_accuracy` and so on.

        Without validation data, a value for each training summary. `pandas.DataFrame(history)`
        converts it to a table.
        """
        return _history(self._run)

    @functools.cached_property
    def epoch(self) -> list[int]:
        """The numbers of the rows of `history`, from 0."""
        return list(range(len(next(iter(self.history.values()), []))))

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The best evaluation, with its `step` and its `metrics`, or None without evaluations."""
        best: Mapping[str, Any] | None = self.get("best")
        return best

    def plot(self) -> "Figure":
        """Draws the loss and each metric by step, in training and in validation.

        Returns:
            A figure, which a notebook shows. `figure.savefig("curves.png")` writes it.
        """
        from matplotlib.figure import Figure

        class Shown(Figure):
            """A figure that a notebook shows as an image, without pyplot."""

            def _repr_png_(self) -> bytes:
                image = io.BytesIO()
                self.savefig(image, format="png")
                return image.getvalue()

        steps, columns = _rows(self._run)
        names = [name for name in columns if not name.startswith("val_") and name != "step"]
        names += [name[4:] for name in columns if name[:4] == "val_" and name[4:] not in names]
        figure = Shown(figsize=(_WIDTH * max(len(names), 1), _HEIGHT), layout="constrained")
        axes = figure.subplots(1, max(len(names), 1), squeeze=False)[0]
        for axis, name in zip(axes, names, strict=False):
            for column, label in ((name, "training"), (f"val_{name}", "validation")):
                if column in columns:
                    axis.plot(steps, columns[column], marker=".", label=label)
            axis.set(title=name, xlabel="step")
            axis.legend()
        return figure

    @functools.cached_property
    def _run(self) -> Run:
        return Run(self.model_dir, strict=False)


def _history(run: Run) -> Columns:
    return _rows(run)[1]


def _rows(run: Run) -> tuple[list[int], Columns]:
    """The steps of a run's evaluations, and the columns of `FitResult.history`."""
    trained = _training(run)
    if not run.evaluations:
        steps = list(trained)
        return steps, _columns([trained[step] for step in steps])
    rows = []
    for row in run.evaluations:
        scores = {f"val_{_renamed(name)}": value for name, value in row.metrics.items()}
        rows.append({**trained.get(row.step, {}), **scores})
    return [row.step for row in run.evaluations], _columns(rows)


def _training(run: Run) -> dict[int, dict[str, Any]]:
    """The loss and the metrics of training, by step."""
    aside = ("step", "steps_per_second", "seconds", "epoch_seconds")
    columns = {name: values for name, values in run.training.items() if name not in aside}
    return {
        step: {_renamed(name): values[place] for name, values in columns.items()}
        for place, step in enumerate(run.training.get("step", ()))
    }


def _renamed(name: str) -> str:
    return _LOSS if name in ("training_loss", "validation_loss") else name


def _columns(rows: list[dict[str, Any]]) -> Columns:
    """The columns of rows, with the loss first. A missing value is None."""
    names = sorted({name: None for row in rows for name in row}, key=lambda name: name != _LOSS)
    return {name: [row.get(name) for row in rows] for name in names}


def _numbers(metrics: Any) -> list[tuple[str, float]]:
    values = dict(metrics or {})
    return [(name, value) for name, value in values.items() if isinstance(value, int | float)][:3]
