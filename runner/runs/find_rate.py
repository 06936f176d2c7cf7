"""`--mode=find_rate`: a learning-rate range test of the experiment, without lasting effects."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import tensorflow as tf

from runner import config
from runner.configuration import sections
from runner.core import console, files
from runner.errors import DivergedError
from runner.models import learning_rate
from runner.reporting import rate_curve
from runner.runs import build, compiled_model
from runner.runs.call import Call
from runner.training import trainer

_REHEARSED_STEPS = 10


def find_rate(call: Call, output: Path | None = None, *, dry_run: bool = False) -> dict[str, Any]:
    """Trains a few steps from the start, each at a higher learning rate than the one before.

    Everything else is the experiment's own: model, data from the first batch on, optimizer, groups
    of variables. The rates replace its schedule and its warm-up.

    Args:
        call: The call of the mode.
        output: A file for the results, or None.
        dry_run: Train a few steps only.

    Returns:
        For JSON: the `suggestion`, None if the loss never falls, and the curve.

    Raises:
        ConfigError: the configuration cannot be trained, or `output` cannot be written.
        DivergedError: the loss of the first step is not finite.
    """
    options = call.config.run.find_rate
    steps = min(options.steps, _REHEARSED_STEPS) if dry_run else options.steps
    swept = _swept(call.config, steps)
    compiled_model.bring_optimizer(swept)
    config.validate(swept, trains=True, evaluates=False)
    with tempfile.TemporaryDirectory(prefix="runner-") as scratch:
        folder = Path(scratch)
        console.announce("building the model ...")
        inside = dataclasses.replace(call, config=swept, model_dir=folder)
        built, _ = build.build_trainer(inside, step=0, evaluates=False)
        built.initialize()
        curve = _sweep(built, steps, call)
    found = {"status": "rehearsed" if dry_run else "done", **curve.as_dict()}
    console.say(curve.render())
    console.say(_verdict(curve))
    if output is not None and not dry_run:
        _write(output, curve, found)
    return found


def _swept(experiment: config.Experiment, steps: int) -> config.Experiment:
    """Returns the experiment with an exponential schedule from the lowest to the highest rate."""
    options = experiment.run.find_rate
    made = sections.unlocked(experiment)
    schedule = {
        "initial_learning_rate": options.lowest,
        "decay_steps": steps - 1,
        "decay_rate": options.highest / options.lowest,
        "staircase": False,
        "offset": 0,
    }
    made.trainer.override(
        {
            "train_steps": steps,
            "summary_interval": 1,
            "recovery_max_trials": -1,  # only the sweep limits the loss
            "optimizer_config": {
                "learning_rate": {"type": "exponential", "exponential": schedule},
                "warmup": {"type": None},
            },
        }
    )
    return made


def _sweep(built: trainer.Trainer, steps: int, call: Call) -> rate_curve.RateCurve:
    options = call.config.run.find_rate
    curve = rate_curve.RateCurve(smoothing=options.smoothing, divergence=options.divergence)
    for step, rate in enumerate(learning_rate.rates(built.optimizer, range(steps)), 1):
        loss = float(built.train(tf.constant(1))["training_loss"])
        call.stop.check(saved=False)
        curve.add(rate, loss)
        if not curve.losses:
            raise DivergedError(
                f"the loss of the first step is {loss:g}, at FindRateConfig.lowest = {rate:g}"
            )
        if curve.ended:
            break
        if console.STDERR.is_live:
            console.show(f"step {step}/{steps}  rate {rate:.2e}  loss {loss:.4g}")
    console.end(keep=False)
    curve.ended = curve.ended or f"FindRateConfig.highest = {options.highest:g} was reached"
    return curve


def _verdict(curve: rate_curve.RateCurve) -> str:
    after = f"{len(curve.rates)} steps; {curve.ended}"
    if curve.suggestion:
        return f"suggestion: {curve.suggestion:.3g}, where the loss falls fastest ({after})"
    return (
        f"no suggestion: the loss does not fall ({after}); look at FindRateConfig.lowest, highest "
        "and steps"
    )


def _write(output: Path, curve: rate_curve.RateCurve, found: dict[str, Any]) -> None:
    """Writes the curve as JSON, and also as a plot unless `output` is a .json file."""
    if output.suffix != ".json":
        curve.draw(output)
        console.say(f"wrote the plot to {output}")
    files.write_json(output.with_suffix(".json"), found)
