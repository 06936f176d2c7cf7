"""The mode `predict`: writes one checkpoint's outputs for each example of a data set to a file."""

import contextlib
import functools
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from official.core import config_definitions as cfg

from runner.checkpoints import restore, selection
from runner.config import Experiment
from runner.core import background, closing, console, layout, text
from runner.core.spelling import did_you_mean
from runner.data import batches, order
from runner.data.determinism import Determinism
from runner.errors import ConfigError, RunnerError
from runner.evaluation import evaluation_sets, evaluator
from runner.evaluation.prediction import made_of, partial, predictor, recorder, rows, writers
from runner.history import policies
from runner.run_config import EvaluationSetConfig
from runner.run_directory import claim
from runner.runs import build
from runner.runs.call import Call, Outcome
from runner.storage import display_names

_VALIDATION, _TRAIN, _TEST = "validation", "train", "test"
_AHEAD = 4  # groups of batches that wait to be written


class NamedData(NamedTuple):
    """The data to predict: their name, their configuration, and their evaluation set, if any."""

    name: str
    config: cfg.DataConfig
    part_of: EvaluationSetConfig | None = None


class _Plan(NamedTuple):
    """A plan for predictions.

    Attributes:
        data: The data to predict.
        checkpoint: The source of the weights.
        step: Their step.
        output: The file.
        writer: Its format.
    """

    data: NamedData
    checkpoint: Path
    step: int
    output: Path
    writer: writers.Writer


def predict(
    call: Call, checkpoint: str, data: str, output: Path | None, *, overwrite: bool
) -> Outcome:
    """Predicts each example once. Continues where an earlier attempt of the same command ended.

    Args:
        call: The call of the mode.
        checkpoint: See `runner.checkpoints.selection`.
        data: `validation`, `train`, `test` or the name of an evaluation set. An empty text selects
            `validation`.
        output: The file to write. None selects one in the run's directory.
        overwrite: Whether the file is replaced, complete or not.

    Raises:
        ConfigError: there is no such checkpoint or data set. The output exists, or was started with
            other inputs.
        RunnerError: there is no example.
        Interrupted: a signal arrived, and the predictions so far are kept.
    """
    plan = _plan(call, checkpoint, data, output)
    target = partial.Partial(plan.output)
    target.check(overwrite=overwrite)
    built = _restored(call, plan)
    with built.averages_in_force():
        origin = made_of.describe(
            call.config, built, plan.checkpoint, plan.data.name, plan.data.config
        )
        lines = made_of.differences(target.made_of, origin, call.config, begun=target.is_begun)
        if lines and not overwrite:
            raise _made_of_something_else(target, lines)
        if target.results and not overwrite:
            console.say(f"{display_names.of(plan.output)} is already complete")
            return Outcome(target.results, built)
        with _claimed(target):
            if lines:
                target.clear()
            results = _write(call, plan, built, target, origin)
    return Outcome(results, built)


def rehearse(
    call: Call, checkpoint: str, data: str, output: Path | None, *, overwrite: bool
) -> Outcome:
    """Predicts one batch, shows its first row, and writes no file."""
    plan = _plan(call, checkpoint, data, output)
    partial.Partial(plan.output).check(overwrite=overwrite)
    built = _restored(call, plan)
    with built.averages_in_force():
        batch = next(predictor.Predictor(built).batches(_inputs(call.config, built, plan)), None)
    if batch is None:
        raise _empty(plan)
    made = rows.Rows(built.task, plan.data.config)
    tables = (made.add(columns) for columns in batch.columns())
    for table in itertools.islice(filter(None, tables), 1):
        (row,) = writers.json_rows(table.slice(0, 1).to_batches()[0]).to_pylist()
        console.say(f"first row: {row}")
    console.say(f"dry run: {display_names.of(plan.output)} was not written")
    return Outcome({"status": "rehearsed", "model_dir": str(call.model_dir)}, built)


def _plan(call: Call, checkpoint: str, name: str, output: Path | None) -> _Plan:
    config, model_dir = call.config, call.model_dir
    data = named_data(config, name or _VALIDATION)
    paths = selection.select(model_dir, checkpoint, best=list(policies.of(config).best_folders))
    if len(paths) > 1:
        raise ConfigError(
            f"{{checkpoint}} names {len(paths)} checkpoints; predict takes one",
            checkpoint=checkpoint,
        )
    initial = config.task.init_checkpoint
    if not paths and not initial:
        raise ConfigError(f"there is no checkpoint to predict with in {model_dir}")
    step = restore.step_of(paths[0]) if paths else 0
    output = output or model_dir / layout.PREDICTIONS / f"step-{step}-{data.name}.jsonl"
    return _Plan(data, paths[0] if paths else Path(initial), step, output, writers.of(output))


def named_data(config: Experiment, name: str) -> NamedData:
    """Returns the data of this name.

    Raises:
        ConfigError: there are none.
    """
    task, sets = config.task, {each.name: each for each in config.run.evaluation_sets}
    if name == _VALIDATION:
        found = task.validation_data
    elif name == _TRAIN:
        found = _once(task.train_data)
    elif name == _TEST:
        found = config.run.test.data
    elif name in sets:
        return NamedData(name, sets[name].data, sets[name])
    else:
        known = [_VALIDATION, _TRAIN, _TEST, *sets]
        raise ConfigError(
            f"{{data}}: no such data; there are {', '.join(known)} "
            f"(RunConfig.evaluation_sets names more){did_you_mean(name, known)}",
            data=name,
        )
    if found is None:
        raise ConfigError(f"--data={name}: the experiment has no {name} data")
    return NamedData(name, found)


def _once(data: cfg.DataConfig) -> cfg.DataConfig:
    """Returns training data as evaluation data, which only their own method `once` can do."""
    if not hasattr(data, "once"):
        raise ConfigError(
            f"--data=train: {type(data).__name__} has no method once() that returns its "
            "configuration for one pass in order; an evaluation set can have the same files "
            "(RunConfig.evaluation_sets)"
        )
    return data.once()


def _restored(call: Call, plan: _Plan) -> evaluator.Evaluator:
    """Builds the model and restores its weights."""
    console.announce("building the model ...")
    built = build.build_evaluator(call, plan.output.parent, evaluates=False)
    if plan.checkpoint == Path(call.config.task.init_checkpoint or ""):
        built.initialize(whole=True)
    else:
        built.restore(plan.checkpoint)
    weights = "averaged weights" if built.averages else "weights"
    source = display_names.of(plan.checkpoint)
    console.say(f"predicting the {plan.data.name} data with the {weights} of {source}")
    return built


def _inputs(config: Experiment, built: evaluator.Evaluator, plan: _Plan, start: int = 0) -> Any:
    """Returns an iterator over the data from batch `start` on."""
    name, data, part_of = plan.data
    evaluated = Determinism.of_evaluations()
    with built.strategy.scope():
        examples = evaluation_sets.portion(part_of, built.task) if part_of else None
        dataset = evaluation_sets.dataset(
            config, built.task, data, f"{name} data", examples, evaluated, start
        )
    if batches.is_endless(dataset):
        raise ConfigError(
            f"the {name} data are endless, and predictions are of each example once: end them in "
            "the task's build_inputs, where is_training is False"
        )
    return evaluated.begin(dataset)


def _made_of_something_else(target: partial.Partial, lines: list[str]) -> ConfigError:
    said = "".join(f"\n  {line}" for line in lines)
    return ConfigError(
        f"{target.folder if target.is_begun else target.output} was made of something else:{said}\n"
        "choose another {output}, or replace it with {overwrite}",
        output=None,
        overwrite=True,
    )


@contextlib.contextmanager
def _claimed(target: partial.Partial) -> Iterator[None]:
    """Locks the parts for this process within the block."""
    with (
        partial.removed_if_empty(target.folder),
        claim.claimed(target.folder, note=console.say, instead="--output"),
    ):
        yield


def _write(
    call: Call,
    plan: _Plan,
    built: evaluator.Evaluator,
    target: partial.Partial,
    origin: dict[str, Any],
) -> dict[str, Any]:
    """Predicts the remaining examples, and writes the file. Returns the results."""
    begin, start = target.progress, time.perf_counter()
    if begin.parts:
        done = text.counted(begin.rows, "row")
        console.say(f"continuing after {done} in {display_names.of(target.folder)}")
    with order.recorded() as placements:
        iterator = _inputs(call.config, built, plan, begin.batch)
    made = rows.Rows(
        built.task,
        plan.data.config,
        begin=begin.first + begin.done,
        complete=not plan.data.part_of,
        source=placements[0].source if placements else None,
    )
    made.strange, made.example = begin.strange, begin.example
    recorded = recorder.Recorder(target, made, begin, origin)
    call.stop.step = plan.step
    with call.stop.deferred(), closing.closing(background.Background(_AHEAD)) as work:
        for group in predictor.groups(predictor.Predictor(built).batches(iterator)):
            work.do(functools.partial(recorded.take, group))
            if call.stop.requested:
                break
        work.wait()
        if call.stop.requested:
            recorded.commit()
    console.end(keep=False)
    call.stop.check()
    end = recorded.finish()
    if not end.rows:
        raise _empty(plan)
    target.join(plan.writer)
    seconds = time.perf_counter() - start
    if end.strange:
        said = f"of {end.rows:,} predictions are not finite; the first: {end.example}"
        console.say(f"{end.strange:,} {said}", style="yellow")
    rate = recorded.examples / seconds
    results = {
        "status": "done",
        "step": plan.step,
        "output": display_names.of(plan.output),
        "examples": end.first + end.done,
        "predictions": end.rows,
        "not_finite": end.strange,
        "seconds": round(seconds, 3),
        "examples_per_second": round(rate, 1),
        "model_dir": display_names.of(call.model_dir),
    }
    target.complete(results)
    console.say(f"{text.counted(end.rows, 'prediction')} in {results['output']}")
    return results


def _empty(plan: _Plan) -> RunnerError:
    return RunnerError(f"there is nothing to predict: the {plan.data.name} data are empty")
