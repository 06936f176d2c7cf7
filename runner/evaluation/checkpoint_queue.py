"""An evaluator's queue of checkpoints, each kept until it has been evaluated.

Checkpoints are in three places: the run's directory, the evaluator's queue, where training puts
those it removes (`runner.evaluation.handover`), and the evaluator's own directory. The evaluator
links a checkpoint there before it reads it, because training may remove the original.
"""

from collections.abc import Iterable
from pathlib import Path

from runner import run_config
from runner.checkpoints import checkpoint_files, recovery
from runner.core import files, layout
from runner.evaluation import handover
from runner.history import history
from runner.run_directory import watch


class CheckpointQueue:
    """The checkpoints of a run that an evaluator has not evaluated yet.

    Args:
        model_dir: The run's directory, which need not exist yet.
        folder: The evaluator's own directory.
        evaluated: The checkpoints it has evaluated, or left out as damaged.
        options: Select the checkpoints to evaluate.
    """

    def __init__(
        self,
        model_dir: Path,
        folder: Path,
        evaluated: history.History,
        options: run_config.EvaluatorConfig,
    ) -> None:
        self._model_dir = model_dir
        self._folder = folder
        self._evaluated = evaluated
        self._options = options
        self._glance = watch.Glance(model_dir / layout.CHECKPOINT)
        self._committed: list[Path] = []
        recovery.clear_leftovers(folder)

    def next(self) -> Path | None:
        """The next checkpoint to evaluate, safe from removal by others, or None."""
        while due := self._due():
            path = due[0] if self._options.policy == "every" else due[-1]
            if path.parent != self._model_dir:
                return path
            pin = self._folder / path.name
            try:
                checkpoint_files.link(path, pin)
            except FileNotFoundError:  # training has removed it, perhaps into the queue
                checkpoint_files.remove(pin)
                continue
            return pin
        return None

    def clear(self) -> None:
        """Empties the queue, which will not be evaluated."""
        files.remove_folder(self._folder / layout.QUEUE)

    def close(self) -> None:
        """Removes this evaluator's links. Other copies of unevaluated checkpoints remain."""
        for path in checkpoint_files.there(self._folder):
            checkpoint_files.remove(path)

    def _due(self) -> list[Path]:
        """The checkpoints to evaluate, oldest first. Removes copies that are not needed.

        The copy in the queue is preferred: `close` removes the other one, which a killed evaluator
        may have left.
        """
        if self._glance.changed():
            listed = checkpoint_files.committed(self._model_dir)
            self._committed = [self._model_dir / path.name for path in listed]
        kept = [*checkpoint_files.there(self._folder), *handover.queued(self._folder)]
        steps = {checkpoint_files.step_in(path.name): path for path in (*self._committed, *kept)}
        due = self._lacking(step for step in steps if step is not None)
        wanted = [steps[step] for step in due]
        for path in kept:
            if path not in wanted:
                checkpoint_files.remove(path)
        return [path for path in wanted if checkpoint_files.exists(path)]

    def _lacking(self, steps: Iterable[int]) -> list[int]:
        """Selects the `steps` to evaluate. Under the policy `latest`, only newer ones."""
        left_out = {row.step for row in self._evaluated.left_out}
        first = self._options.from_step
        if self._options.policy == "latest":
            first = max(first, 1 + max({self._evaluated.furthest, *left_out}))
        later = (step for step in steps if step >= first)
        return sorted(step for step in later if not (step in left_out or self._evaluated.has(step)))
