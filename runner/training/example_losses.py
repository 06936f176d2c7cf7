"""The loss of each example of a batch, with the example's identity."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from runner.core import user_code
from runner.data import batches, order, windows
from runner.data.sources.source import Identity
from runner.training import trainer


class ExampleLoss(NamedTuple):
    """An example and its loss.

    Attributes:
        identity: Identifies the example.
        loss: Computed as in validation: without dropout, with batch normalization's averages.
    """

    identity: Identity
    loss: float


def examples_of(
    built: trainer.Trainer, step: int, skipped: Sequence[windows.Window]
) -> list[Identity]:
    """The examples that a step is trained on, in the order of the batch. Empty if unknown.

    Args:
        built: The trainer whose inputs are used.
        step: The step, from 1.
        skipped: The batches that no step is trained on.
    """
    placement = _placement(built)
    return placement.identities(windows.batch_of(step - 1, skipped)) if placement else []


def _placement(built: trainer.Trainer) -> order.Placement | None:
    known = built.determinism.placements
    return known[0] if known and built.config.run.limit_train == 0 else None


def largest_first(
    built: trainer.Trainer, batch: Any, identities: list[Identity]
) -> tuple[list[ExampleLoss], str]:
    """The loss of each example of a batch. Losses that are not finite come first, then by size.

    Returns:
        The losses, and the reason if there are none.
    """
    devices = built.strategy

    @tf.function
    def loss(row: Any) -> Any:
        def one(row: Any) -> tf.Tensor:
            return built.task.validation_step(row, built.model)[built.task.loss]

        return devices.experimental_local_results(devices.run(one, args=(row,)))[0]

    try:
        losses = [
            float(tf.reduce_mean(loss(batches.part(part, number, 1))))
            for part in devices.experimental_local_results(batch)
            for number in range(batches.size(part))
        ]
    except Exception as error:  # raised by the task's code, which may need whole batches
        return [], f"the task's validation_step fails for one example: {user_code.summary(error)}"
    if len(losses) != len(identities):
        return [], f"the batch has {len(losses)} rows for {len(identities)} examples"
    found = [ExampleLoss(*pair) for pair in zip(identities, losses, strict=True)]
    return sorted(found, key=_size, reverse=True), ""


def _size(each: ExampleLoss) -> float:
    return each.loss if math.isfinite(each.loss) else float(np.inf)
