"""The best checkpoints so far, kept in separate directories."""

import contextlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runner.checkpoints import checkpoint_files, recovery
from runner.checkpoints.checkpoint_files import TRAINING
from runner.core import files, layout
from runner.errors import RunnerError
from runner.history import best_evaluation, records

_MODEL_GARDENS = "best_ckpt-"


class BestCheckpoint:
    """A directory that holds the best checkpoints so far by one rule, and info.json about them.

    The contents depend only on the evaluations, so `update` repairs the directory after a crash. At
    any moment info.json names complete checkpoints. It has these keys:

    - Model Garden's keys for the best checkpoint, which is also TensorFlow's latest in the
      directory: its metrics and `best_ckpt_global_step`.
    - `checkpoint`: The name of its files.
    - `checkpoints`, if several are kept: A list, best first, with the step of each, the value of
      the rule's first metric and the name of the files.

    The weights are those that were evaluated. If these are averages, the subdirectory `training`
    contains the checkpoint from which training can continue.

    Args:
        folder: `best` in the directory of the run or evaluator.
        rule: Ranks the evaluations.
        keep: The number of checkpoints to keep.
        write_averages: Writes a training checkpoint's averages to a path. None without averages.
    """

    def __init__(
        self,
        folder: Path,
        rule: best_evaluation.BestRule,
        *,
        keep: int = 1,
        write_averages: Callable[[Path, Path], None] | None = None,
    ) -> None:
        self._folder = folder
        self.rule = rule
        self._ranking = best_evaluation.Ranking(rule)
        self._keep = keep
        self._write_averages = write_averages

    def update(
        self,
        rows: Sequence[records.Evaluation],
        source: Path,
        commit: Callable[[], object] | None = None,
    ) -> records.Evaluation | None:
        """Makes the directory contain the best of `rows` whose checkpoints exist.

        If there are none, for example after a change of the rule, it removes info.json and the list
        of checkpoints, but keeps the files.

        Args:
            rows: The evaluations.
            source: The checkpoint of the newest evaluation. If the directory lacks an older
                checkpoint, this method looks for it next to this one.
            commit: Creates `source` if it does not exist and is among the best.

        Returns:
            The best row, or None if there is none yet.

        Raises:
            RunnerError: the directory cannot be written. Its previous content is kept.
        """
        self._ranking.update(rows)
        wanted = self._wanted(source, commit)
        try:
            if wanted:
                self._hold(wanted, source)
            elif rows:
                self._disown()
        except checkpoint_files.UNWRITABLE as error:
            kept = "the previous best is kept" if self._named() else "there is no previous best"
            path = self._folder / (wanted[0].checkpoint if wanted else layout.INFO)
            raise checkpoint_files.not_written(path, error, kept=kept) from error
        return next(iter(self._ranking), None)

    def _wanted(
        self,
        source: Path,
        commit: Callable[[], object] | None,
    ) -> list[records.Evaluation]:
        """The best rows, one per step, whose checkpoint exists or can be created."""
        places = (self._folder, self._folder / TRAINING, source.parent)
        present = {name for place in places for name in checkpoint_files.names(place)}
        wanted: dict[int, records.Evaluation] = {}
        for row in self._ranking:
            if len(wanted) == self._keep:
                break
            if commit and row.checkpoint == source.name and source.name not in present:
                commit()
                present.add(source.name)
            if row.checkpoint in present:
                wanted.setdefault(row.step, row)
        return list(wanted.values())

    def _hold(self, wanted: Sequence[records.Evaluation], source: Path) -> None:
        """Makes the directory hold exactly the checkpoints of `wanted`."""
        for folder in (self._folder, self._folder / TRAINING):
            recovery.clear_leftovers(folder)
        named = self._named()
        for row in wanted:
            if row.checkpoint not in named:
                with contextlib.suppress(FileNotFoundError):  # training has removed it
                    self._take(source.with_name(row.checkpoint))
        if held := [row for row in wanted if _has(self._folder, row)]:
            self._write(held)
            self._prune()

    def _take(self, path: Path) -> None:
        """Puts the evaluated weights of a training checkpoint into the directory."""
        if self._write_averages is None:
            checkpoint_files.link(path, self._folder / path.name)
            return
        resumable = self._folder / TRAINING / path.name
        places = (path, resumable, self._folder / path.name)  # earlier versions used the last
        found = next((place for place in places if checkpoint_files.exists(place)), path)
        if found != resumable:
            checkpoint_files.link(found, resumable)
        self._write_averages(resumable, self._folder / path.name)

    def _disown(self) -> None:
        """Removes all names of checkpoints. The files stay, in case the rule changes back."""
        files.remove(self._folder / layout.INFO)
        checkpoint_files.list_committed(self._folder, [])

    def _write(self, held: Sequence[records.Evaluation]) -> None:
        """Makes the file `checkpoint` and info.json name the checkpoints of `held`."""
        info = self._describe(held)
        names = [row.checkpoint for row in reversed(held)]
        listed = [path.name for path in checkpoint_files.committed(self._folder)]
        if info != self._info() or names != listed:
            checkpoint_files.list_committed(self._folder, names)
            files.write_json(self._folder / layout.INFO, info)

    def _describe(self, held: Sequence[records.Evaluation]) -> dict[str, Any]:
        best = held[0]
        info: dict[str, Any] = {
            **records.plain(best.metrics),
            **records.nested(best.metrics),
            "best_ckpt_global_step": float(best.step),
            "checkpoint": best.checkpoint,
        }
        if self._keep > 1:
            info["checkpoints"] = [
                {"step": row.step, **self._value(row), "checkpoint": row.checkpoint} for row in held
            ]
        return info

    def _value(self, row: records.Evaluation) -> dict[str, float | str]:
        value = row.metrics.get(self.rule.metric)  # another metric of the rule may have decided
        return {} if value is None else records.plain({"value": value})

    def _info(self) -> dict[str, Any]:
        try:
            info = files.read_json(self._folder / layout.INFO)
        except RunnerError:  # damaged, but will be rewritten
            return {}
        return info if isinstance(info, dict) else {}

    def _named(self) -> set[str]:
        """The checkpoints that info.json names and that exist."""
        info = self._info()
        entries = info.get("checkpoints", [info])  # earlier versions also named averages in it
        names = {each.get("checkpoint") for each in entries if "averaged_weights" not in each}
        return {name for name in names if name and checkpoint_files.exists(self._folder / name)}

    def _prune(self) -> None:
        """Removes checkpoints that info.json does not name: an older best, or leftovers of a crash.

        Model Garden's exports stay, because their checkpoints have other names.
        """
        named = self._named()
        for file in (*self._folder.iterdir(), *self._folder.glob(f"{TRAINING}/*")):
            part = re.fullmatch(r"(.+)\.(index|data-\d{5}-of-\d{5})", file.name)
            if part and part[1] not in named and not part[1].startswith(_MODEL_GARDENS):
                files.remove(file)


class BestCheckpoints:
    """Several of these directories, each for a separate metric. The first is the run's."""

    def __init__(self, folders: Sequence[BestCheckpoint]) -> None:
        self._folders = tuple(folders)

    def update(
        self,
        rows: Sequence[records.Evaluation],
        source: Path,
        commit: Callable[[], object] | None = None,
    ) -> records.Evaluation | None:
        """Updates each directory like `BestCheckpoint.update`. Returns the first's best row."""
        best = [folder.update(rows, source, commit) for folder in self._folders]
        return best[0] if best else None


def _has(folder: Path, row: records.Evaluation) -> bool:
    """Whether `folder` contains the row's checkpoint, not another run's with the same name."""
    return row.is_own and checkpoint_files.exists(folder / row.checkpoint)
