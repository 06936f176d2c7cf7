"""`--mode=replay`: trains steps of a run again and inspects them, up to one that failed.

    runner --mode=replay --steps=1190:1201 --model_dir=runs/mine

The replay starts from a checkpoint before these steps in a separate directory, with the same
batches in the same order. It stops before the last step, whose batch is saved.
"""

import dataclasses
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from runner import config, run_config
from runner.checkpoints import checkpoint_files
from runner.configuration import multitask, sections
from runner.core import closing, console, files, layout
from runner.data.sources.source import Identity
from runner.errors import ConfigError
from runner.history import history, policies, records
from runner.reporting import table
from runner.run_directory.run import Run
from runner.run_directory.verification import tensors
from runner.runs import open_run, training_run
from runner.runs.call import Call
from runner.storage import display_names
from runner.training import example_losses, observer

_ROWS = "steps.jsonl"
_SHOWN = 10  # examples of a batch


def replay(
    call: Call, steps: tuple[int, int], output: Path | None = None, *, overwrite: bool = False
) -> dict[str, Any]:
    """Trains steps of a run again.

    Args:
        call: The call of the mode.
        steps: The first and the last step.
        output: The directory to write. None selects one in the run's directory.
        overwrite: Whether the contents of that directory are replaced.

    Returns:
        For JSON: the first tensor that is not finite (None if all are), whether the replay matched
        the run (as far as its checkpoints show), and the output path.

    Raises:
        ConfigError: the directory holds no run, or not these steps.
    """
    first, last = steps
    experiment = _as_it_was(call.model_dir, first, last)
    output = output or call.model_dir / layout.REPLAY / f"{first}-{last}"
    if output.exists() and any(output.iterdir()) and not overwrite:
        raise ConfigError(f"{output} already exists; {{overwrite}} replaces it", overwrite=True)
    with tempfile.TemporaryDirectory(prefix="runner-") as scratch:
        folder = Path(scratch)
        past = _history(call.model_dir, first, last)
        source = _copied(call.model_dir, experiment, folder, past, before=first)
        said = f"step {source:,}" if source else "the start (no earlier checkpoint is left)"
        console.say(f"replaying steps {first:,} to {last:,} from {said}")
        inside = dataclasses.replace(call, config=experiment, model_dir=folder)
        run = open_run.open_run(inside, policies.of(experiment, evaluates=False))
        with closing.closing(run):
            replayed = _Replay(run, call.model_dir, [row for row in past if row.step > source])
            replayed.train_to(first - 1)
            rows = [replayed.step(step, apply=step < last) for step in range(first, last + 1)]
            output.mkdir(parents=True, exist_ok=True)
            replayed.keep(output, last)
    (output / _ROWS).unlink(missing_ok=True)
    files.append_json_lines(output / _ROWS, rows)
    console.say(_table(rows))
    for line in _examples(rows[-1]):
        console.say(line)
    for line in (*replayed.verdicts, *_broken(rows)):
        console.say(line)
    console.say(f"written: {display_names.of(output)}")
    broken = next((row for row in rows if row["not_finite"]), None)
    return {
        "status": "done",
        "not_finite": broken and {name: broken[name] for name in ("step", "not_finite", "op")},
        "same_as_the_run": replayed.is_same,
        "output": str(output),
        "model_dir": str(call.model_dir),
    }


class _Replay:
    """Trains a run's steps again in a separate directory.

    Args:
        run: The run in the separate directory.
        model_dir: The directory of the run that it repeats.
        ahead: The rows of that run after the step at which `run` starts.

    Attributes:
        verdicts: The comparisons of its weights with the run's own checkpoints, in words.
        is_same: Whether they were all equal, or None without any comparison.
    """

    def __init__(
        self, run: training_run.TrainingRun, model_dir: Path, ahead: Iterable[records.Record]
    ) -> None:
        self._state = run.state
        self._trainer = run.state.trainer
        self._own = {
            checkpoint_files.step_in(path.name): path for path in checkpoint_files.there(model_dir)
        }
        self._ahead = sorted(ahead, key=lambda row: row.step)
        self._batch: Any = None
        self.verdicts: list[str] = []
        self.is_same: bool | None = None

    def train_to(self, step: int) -> None:
        """Trains without inspection, as the run did."""
        for end in sorted({step, *(row.step for row in self._ahead if row.step < step)}):
            if left := end - self._trainer.step:
                self._trainer.brake.sound.assign(True)
                self._trainer.train(tf.constant(left))
            self._decide()
        self._compare(step)

    def _decide(self) -> None:
        """Takes the decisions that the run took at this step."""
        now = [row for row in self._ahead if row.step <= self._trainer.step]
        if now:
            self._ahead = self._ahead[len(now) :]
            self._state.repeat(now)

    def step(self, step: int, *, apply: bool) -> dict[str, Any]:
        """Inspects a step. Trains it only if `apply`."""
        self._decide()
        built = self._trainer
        self._batch = built.draw()
        rate = self._state.learning_rate(step - 1)
        self._state.save()
        seen = observer.observe(built, self._batch)
        op = ""
        if broken := seen.first_broken:
            self._state.put_back(step - 1)
            op = observer.first_op(built, self._batch)
        self._state.put_back(step - 1)
        losses = self._losses(step)
        if apply:
            built.train_step(iter([self._batch]))
            self._compare(step)
        return {
            "step": step,
            "loss": seen.loss,
            "learning_rate": rate,
            "gradient_norm": seen.gradient_norm,
            "not_finite": broken,
            "op": op,
            "examples": [{**each.identity._asdict(), "loss": each.loss} for each in losses],
            "outputs": {name: each._asdict() for name, each in seen.outputs.items()},
            "gradients": {
                name: {"norm" if key == "mean" else key: value for key, value in entries}
                for name, each in seen.gradients.items()
                for entries in [each._asdict().items()]
            },
        }

    def _losses(self, step: int) -> list[example_losses.ExampleLoss]:
        """Returns the losses of the batch's examples, largest first, or none if unknown."""
        skipped = self._state.history.reading.skipped
        identities = example_losses.examples_of(self._trainer, step, skipped)
        if not identities:
            return []
        losses, why = example_losses.largest_first(self._trainer, self._batch, identities)
        if why:
            self.verdicts.append(f"step {step:,}: no losses of single examples: {why}")
        return losses

    def keep(self, output: Path, step: int) -> None:
        """Writes the batch of the step that was not trained, and the state before it."""
        checkpoint_files.link(self._state.store.path(step - 1), output / f"ckpt-{step - 1}")
        checkpoint_files.list_committed(output, [f"ckpt-{step - 1}"])
        local = self._trainer.strategy.experimental_local_results
        parts = local(self._batch)
        for number, part in enumerate(parts):
            suffix = f"-replica{number}" if len(parts) > 1 else ""
            arrays: Any = dict(_named(part))
            np.savez(output / f"batch-{step}{suffix}.npz", **arrays)

    def _compare(self, step: int) -> None:
        """Compares the weights with the run's own checkpoint of this step, if it still exists."""
        own = self._own.get(step)
        if own is None:
            return
        parts = tensors.compare(own, self._state.save())
        parts = [each for each in parts if each.kind in ("weights", "slots", "averages")]
        differing, count = sum(each.differing for each in parts), sum(p.compared for p in parts)
        self.is_same = self.is_same is not False and not differing
        same = f"{differing} of {count} tensors differ" if differing else "bit-identical"
        self.verdicts.append(f"step {step:,} compared with {own.name} of the run: {same}")


def _as_it_was(model_dir: Path, first: int, last: int) -> config.Experiment:
    """Returns the run's experiment without external outputs, as long as it needs to be."""
    written = model_dir / layout.GIN
    if not written.exists():
        raise ConfigError(f"{model_dir} has no {layout.GIN}, which says what was trained")
    made = sections.unlocked(config.load([str(written)], trains=True, evaluates=False))
    multitask.check_one(made.task, "{mode}", mode="replay")
    steps = made.trainer.train_steps
    if last > steps:
        raise ConfigError(f"{{steps}}: the run has {steps:,} steps", steps=f"{first}:{last}")
    quiet = {"tensorboard": False, "writers": (), "actions": (), "notify": "", "system_seconds": 0}
    made.override({"run": {**quiet, "pause_at": 0, "async_checkpoints": False}})
    made.trainer.recovery_max_trials = min(made.trainer.recovery_max_trials, 0)
    made.run.early_stopping = run_config.EarlyStoppingConfig()
    return made


def _history(model_dir: Path, first: int, last: int) -> list[records.Record]:
    """Returns the rows that the run had when it first trained these steps."""
    return [
        row
        for row in Run(model_dir).history
        if row.step < last and not (isinstance(row, records.Rollback) and row.found > first)
    ]


def _copied(
    model_dir: Path,
    experiment: config.Experiment,
    folder: Path,
    rows: Iterable[records.Record],
    *,
    before: int,
) -> int:
    """Links the newest checkpoint before a step into `folder`, with its logs. Returns its step."""
    best = list(policies.of(experiment).best_folders)
    there = {step: path for path in _checkpoints(model_dir, best) if (step := _step(path)) < before}
    step = max(there, default=0)
    if there:
        copied = folder / there[step].name
        checkpoint_files.link(there[step], copied)
        checkpoint_files.unshare(copied)
        checkpoint_files.list_committed(folder, [there[step].name])
    for name in (layout.TRAINING_ROWS, layout.MODEL):
        if (model_dir / name).exists():
            files.copy(model_dir / name, folder / name)
    copy = history.History(folder / layout.HISTORY)
    for row in rows:
        if row.step <= step:
            copy.append(row)
    if evaluator := experiment.run.plateau.source:
        layout.evaluator(folder, evaluator).mkdir()  # else the log would say that it is missing
    return step


def _checkpoints(model_dir: Path, best: list[str]) -> list[Path]:
    trained = [model_dir / name / checkpoint_files.TRAINING for name in best]
    folders = [*(folder for folder in trained if folder.is_dir()), model_dir]
    return [path for folder in folders for path in checkpoint_files.there(folder)]


def _step(path: Path) -> int:
    return checkpoint_files.step_in(path.name) or 0


def _named(batch: Any, *path: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yields each array of a nested batch, by the names and numbers that lead to it: `0.image`."""
    if isinstance(batch, Mapping):
        parts = [*batch.items()]
    elif isinstance(batch, (list, tuple)):
        parts = [*enumerate(batch)]
    else:
        yield ".".join(path) or "batch", np.asarray(batch)
        return
    for name, part in parts:
        yield from _named(part, *path, str(name))


def _table(rows: list[dict[str, Any]]) -> str:
    """Returns a line for each step."""
    lines: list[list[str]] = [
        ["step", "loss", "gradient norm", "largest output", "of", "not finite"]
    ]
    for row in rows:
        outputs = {name: each["largest"] for name, each in row["outputs"].items()}
        name = max(outputs, key=lambda each: np.nan_to_num(outputs[each], nan=np.inf), default="")
        largest = f"{outputs[name]:.4g}" if name else ""
        numbers = [f"{row['step']:,}", f"{row['loss']:.6g}", f"{row['gradient_norm']:.4g}"]
        lines.append([*numbers, largest, name, row["not_finite"]])
    return "\n".join(table.aligned(lines, left=0, width=console.STDERR.width))


def _examples(row: Mapping[str, Any]) -> Iterator[str]:
    """Yields the examples of a step with the largest losses."""
    examples = row["examples"]
    if examples:
        yield f"step {row['step']:,}: the examples of the batch with the largest losses"
    for each in examples[:_SHOWN]:
        named = {name: each[name] for name in Identity._fields if name in each}
        yield f"  {each['loss']:.6g}  {Identity(**named)}"
    if len(examples) > _SHOWN:
        yield f"  and {len(examples) - _SHOWN} more, in {_ROWS}"


def _broken(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        if row["not_finite"]:
            op = f"; the first op is {row['op']}" if row["op"] else ""
            yield f"step {row['step']:,}: first not finite: {row['not_finite']}{op}"
            return
    yield "every tensor is finite"
