"""A follower: a worker that builds the same objects as the chief and executes its commands.

It makes no decisions and does not write to the run's directory. TensorFlow needs all workers to
save a checkpoint, so a follower saves to a temporary directory, which is removed.
"""

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from runner.checkpoints import checkpoint_manager, restore, retention
from runner.core import closing, layout, signals
from runner.data import windows
from runner.devices import team
from runner.errors import RunnerError
from runner.evaluation import evaluation_sets, evaluator, metric_names
from runner.history import policies
from runner.models import learning_rate
from runner.runs import build, workers
from runner.runs.call import Call, Outcome
from runner.training import trainer

Work = Mapping[str, Callable[..., object]]


def train(call: Call, *, evaluates: bool) -> Outcome:
    """Follows a chief that trains, until it ends."""
    with _opened(call) as (folder, (step, source, reading)):
        plan = policies.of(call.config, evaluates=evaluates)
        evaluates = bool(plan.grid.evaluations)
        made = _Trained.build(call, folder, reading, step, evaluates=evaluates)
        made.begin(Path(source) if source else None)
        metric_names.check(call.config, made.trainer, call.model_dir, evaluates=evaluates)
        sets = _sets(call, made.trainer) if evaluates else {}
        with closing.closing(made.store):
            ended = _obey({**_evaluating(made.trainer, sets), **made.work()}, call.stop)
    return _outcome(call, ended, made.trainer)


def evaluate(call: Call) -> Outcome:
    """Follows a chief that evaluates checkpoints, until it ends."""
    with _opened(call) as (folder, _):
        built = build.build_evaluator(call, folder)
        metric_names.check(call.config, built, call.model_dir, evaluates=True)
        ended = _obey(_evaluating(built, _sets(call, built)), call.stop)
    return _outcome(call, ended, built)


def score(call: Call) -> evaluator.Logs:
    """Follows a chief that evaluates one checkpoint without recording it. Returns the results."""
    logs: evaluator.Logs = {}
    with _heard(call) as (folder, _):
        built = build.build_evaluator(call, folder)
        with built.strategy.scope():
            sets = {each.title: each for each in evaluation_sets.build(call.config, built)}

        def evaluate(batches: int) -> None:
            logs.update(built.evaluate(tf.constant(batches)))

        def evaluate_on(title: str, limit: int) -> None:
            one = sets[title]
            logs[one.name] = built.evaluate_on(one.dataset, title, limit=limit)

        work = {**_evaluating(built, {}), "evaluate": evaluate, "evaluate_on": evaluate_on}
        _obey(work, call.stop)
    return logs


@contextlib.contextmanager
def _opened(call: Call) -> Iterator[tuple[Path, Sequence[Any]]]:
    """Yields the same as `_heard`, after checking that the chief has locked the directory."""
    with _heard(call) as heard:
        if not (call.model_dir / layout.CLAIM).exists() and not any(
            (path / layout.CLAIM).exists() for path in layout.evaluators(call.model_dir)
        ):
            raise RunnerError(
                f"{call.model_dir} is not the chief's: all workers need one shared directory"
            )
        yield heard


@contextlib.contextmanager
def _heard(call: Call) -> Iterator[tuple[Path, Sequence[Any]]]:
    """Yields a directory for temporary files, and the chief's arguments for opening the run."""
    with (
        call.stop.deferred(checks=False),
        tempfile.TemporaryDirectory(prefix="runner-") as scratch,
    ):
        name, arguments = team.current().hear()
        if name == team.END:
            workers.as_chief(*arguments)
        yield Path(scratch), arguments


def _obey(work: Work, stop: signals.Stop) -> Mapping[str, Any]:
    """Executes the chief's commands until it ends. Returns how it ended."""
    mates, failed = team.current(), None
    while True:
        name, arguments = mates.hear()
        if name == team.OPEN:  # the chief's next operation
            mates.put_back(name, arguments)
            return {"said": "done"}
        if name == team.END:
            break
        failed = None
        try:
            work[name](*arguments)
        except RunnerError as error:  # the chief, which has the same error, may continue
            failed = error
    ended: Mapping[str, Any] = arguments[0]
    stop.step = ended.get("step")
    if failed and ended["code"] == failed.exit_code:
        raise failed
    workers.as_chief(ended)
    return ended


def _outcome(call: Call, ended: Mapping[str, Any], built: evaluator.Evaluator) -> Outcome:
    where = {"worker": team.current().index, "model_dir": str(call.model_dir)}
    return Outcome({"status": ended["said"], **where}, built)


def _sets(call: Call, built: evaluator.Evaluator) -> Mapping[str, Any]:
    """Returns the data of `Evaluator.evaluate_on`, by the names used there."""
    config, found = call.config, {}
    with built.strategy.scope():
        test = config.run.test.data
        if test is not None:
            found["TestConfig.data"] = evaluation_sets.dataset(
                config, built.task, test, "TestConfig.data"
            )
        for each in evaluation_sets.build(config, built):
            found[each.title] = each.dataset
    return found


def _evaluating(built: evaluator.Evaluator, sets: Mapping[str, Any]) -> Work:
    return {
        "restore": lambda path: built.restore(Path(path)),
        "initialize": lambda: built.initialize(whole=True),
        "evaluate": lambda batches: built.evaluate(tf.constant(batches)),
        "evaluate_on": lambda name, limit: built.evaluate_on(sets[name], name, limit=limit),
    }


class _Trained(NamedTuple):
    """The objects that a follower trains."""

    call: Call
    trainer: trainer.Trainer
    rate_scale: learning_rate.Scale
    store: checkpoint_manager.Checkpoints

    @classmethod
    def build(
        cls, call: Call, folder: Path, reading: Sequence[Any], step: int, *, evaluates: bool
    ) -> "_Trained":
        """Builds the same objects as the chief, in the same order."""
        inside = dataclasses.replace(call, model_dir=folder)
        built, scale = build.build_trainer(
            inside, step=step, evaluates=evaluates, reading=windows.Reading(*reading)
        )
        build.build_costs(call.config, built)
        store = checkpoint_manager.Checkpoints(
            built.checkpoint,
            folder,
            keep=retention.Keep(1, 0, lambda _: False),
            asynchronous=call.config.run.async_checkpoints,
        )
        return cls(call, built, scale, store)

    def begin(self, source: Path | None) -> None:
        if source is None:
            self.trainer.initialize()
        else:
            self.trainer.constants.since = restore.step_of(source)
            self._restore(source)
            self.trainer.put_back_extra_state(None)

    def work(self) -> Work:
        return {
            "run_loop": lambda length, timed: self.trainer.run_loop(length, timed=timed),
            "train_twice": self.trainer.train_twice,
            "read_metrics": self.trainer.read_metrics,
            "not_finite": self.trainer.not_finite,
            "scale": self.rate_scale.assign,
            "commit": self._commit,
            "go_back": self._go_back,
            "feed": self._feed,
        }

    def _commit(self, step: int) -> None:
        self.trainer.capture_extra_state()
        self.store.commit(step)

    def _go_back(self, step: int, path: str, reading: Sequence[Any], scale: float) -> None:
        self._restore(Path(path))
        self.rate_scale.assign(scale)
        self.trainer.put_back_extra_state()
        self._feed(step, reading)

    def _feed(self, step: int, reading: Sequence[Any]) -> None:
        run, config = self.trainer, self.call.config
        with run.strategy.scope():
            own = windows.Reading(*reading)
            run.feed(build.training_inputs(config, run.task, step, own, run.determinism))

    def _restore(self, path: Path) -> None:
        with self.trainer.constants.restored(restore.step_of(path)):
            self.store.restore(path)
