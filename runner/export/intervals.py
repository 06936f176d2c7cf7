"""95 % intervals of an exported file's metrics: a bootstrap over parts of the validation data.

Most metrics are computed from sums over examples. What each of a hundred or more small parts of the
data adds to these sums is kept while the file is scored, so a metric of parts drawn at random, some
of them twice, takes no further call of the file.
"""

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from official.core import base_task, config_definitions
from scipy import sparse, stats

from runner.configuration import sections
from runner.data import batches
from runner.evaluation import evaluator
from runner.export.stand_in import StandIn

Interval: TypeAlias = tuple[float, float]

DRAWS = 999
_PARTS = 128  # at least, where there are as many examples
_FEWEST = 10
_UNCUT = (tf.errors.OpError, ValueError, TypeError, KeyError, AttributeError)  # a task's own steps


class PartsEvaluator(evaluator.Evaluator):
    """Evaluates as usual and keeps what small parts of each batch add to the metrics.

    The stand-in runs on whole batches; for the parts, its outputs are cut.

    Args:
        config: As for `Evaluator`.
        task: Likewise.
        model: Takes the model's place.
        options: Further ones of `Evaluator`.
    """

    def __init__(
        self,
        config: config_definitions.ExperimentConfig,
        task: base_task.Task,
        model: StandIn,
        **options: Any,
    ) -> None:
        in_python = sections.unlocked(config)
        in_python.trainer.eval_tf_function = False  # so that `score` has the arrays
        super().__init__(in_python, task, model, None, **options)
        self._stand_in = model
        self._score_whole = tf.function(super().score)
        self._sums_of_part = tf.function(self._add, reduce_retracing=True)
        self._parts: _Parts | None = None

    def eval_begin(self) -> None:
        """Resets the metrics, and forgets the parts."""
        super().eval_begin()
        self._parts = _Parts()

    def score(self, inputs: Any) -> Any:
        """Adds one batch to the metrics, and its parts to what is kept of them."""
        outputs = self._score_whole(inputs)
        if self._parts:
            try:
                self._keep(inputs, self._parts)
            except _UNCUT:  # a step that takes whole batches only
                self._parts = None
        return outputs

    def intervals(self, found: Mapping[str, float]) -> dict[str, Interval]:
        """The 95 % intervals of what the last evaluation has found, by metric.

        BCa intervals (Efron, "Better bootstrap confidence intervals", 1987). A metric is left out
        if it is not computed from sums, or does not vary.
        """
        known = {metric.name: metric for metric in self._metrics}
        metrics = [known[name] for name in found if name in known]
        if not metrics or not self._parts or len(self._parts.rows) < _FEWEST:
            return {}
        sums, result = self._sums_of(metrics), tf.function(_results(metrics), autograph=False)

        def drawn(parts: np.ndarray) -> np.ndarray:
            times = np.bincount(parts, minlength=sums.shape[0]).astype(np.float64)
            return np.asarray(result(tf.constant(times @ sums)))

        every = np.arange(sums.shape[0])
        whole, (low, high) = drawn(every), _bootstrap(every, drawn)
        return {
            metric.name: (float(low[n]), float(high[n]))
            for n, metric in enumerate(metrics)
            if np.isclose(whole[n], found[metric.name], rtol=1e-3, atol=1e-6)
            and np.isfinite([low[n], high[n]]).all()
        }

    @property
    def _metrics(self) -> list[Any]:
        return [*self.validation_metrics, self.validation_loss]

    def _keep(self, inputs: Any, parts: "_Parts") -> None:
        """Scores the parts of a batch; then the metrics are as they were."""
        model, begin = self._stand_in, 0
        run, examples, outputs = model.run, model.examples, model.outputs
        variables = [each for metric in self._metrics for each in metric.variables]
        before = [each.numpy() for each in variables]
        try:
            while begin < batches.size(inputs):
                cut = slice(begin, begin + parts.size)
                model.run = functools.partial(_cut, outputs, cut)
                parts.add(self._sums_of_part(batches.part(inputs, begin, parts.size)).numpy())
                begin = cut.stop
        finally:
            model.run, model.examples = run, examples
            for variable, value in zip(variables, before, strict=True):
                variable.assign(value)

    def _add(self, inputs: Any) -> tf.Tensor:
        """What a part adds to the variables of all metrics, in one vector."""
        super().eval_begin()
        super().score(inputs)
        variables = (each for metric in self._metrics for each in metric.variables)
        return tf.concat([tf.reshape(tf.cast(each, tf.float64), [-1]) for each in variables], 0)

    def _sums_of(self, metrics: Sequence[Any]) -> sparse.csr_array:
        """What each part [parts, sums] adds to the variables of some metrics."""
        assert self._parts
        wanted = [np.full(_size(metric), metric in metrics) for metric in self._metrics]
        return sparse.vstack(self._parts.rows).tocsc()[:, np.concatenate(wanted)].tocsr()


def _bootstrap(
    parts: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the intervals of several results; NaN of one that does not vary."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = stats.bootstrap((parts,), statistic, n_resamples=DRAWS, vectorized=False, rng=0)
    return made.confidence_interval.low, made.confidence_interval.high


def _results(metrics: Sequence[Any]) -> Callable[[tf.Tensor], tf.Tensor]:
    """From sums to the metrics computed from them; NaN for one without a single result."""
    variables = [each for metric in metrics for each in metric.variables]

    def results(sums: tf.Tensor) -> tf.Tensor:
        parts = tf.split(sums, [each.shape.num_elements() for each in variables])
        for variable, part in zip(variables, parts, strict=True):
            variable.assign(tf.cast(tf.reshape(part, variable.shape), variable.dtype))
        return tf.stack([_result(metric) for metric in metrics])

    return results


def _result(metric: Any) -> tf.Tensor:
    try:
        return tf.reshape(tf.cast(metric.result(), tf.float64), [])
    except _UNCUT:
        return tf.constant(np.nan, tf.float64)


def _cut(
    outputs: Mapping[str, np.ndarray], part: slice, _: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    return {name: array[part] for name, array in outputs.items()}


def _size(metric: Any) -> int:
    return sum(each.shape.num_elements() for each in metric.variables)


class _Parts:
    """What parts add to the metrics.

    Attributes:
        rows: Of each part [1, sums]; histograms have zeros almost everywhere.
        size: How many examples a part has.
    """

    def __init__(self) -> None:
        self.rows: list[sparse.csr_array] = []
        self.size = 1

    def add(self, sums: np.ndarray) -> None:
        """Adds a part; where there are many, neighbours become one."""
        self.rows.append(sparse.csr_array(sums[np.newaxis]))
        if len(self.rows) == 2 * _PARTS:
            pairs = zip(self.rows[::2], self.rows[1::2], strict=True)
            self.rows, self.size = [one + other for one, other in pairs], 2 * self.size
