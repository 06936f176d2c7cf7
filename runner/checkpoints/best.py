"""The best checkpoints so far, kept in folders of their own."""

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
    """A folder that holds the best checkpoints so far by one rule, and info.json about them.

    It follows from the evaluations alone, so after a crash `update` repairs it. At any moment
    info.json names whole checkpoints. It has Model Garden's keys about the very best one, which is
    also TensorFlow's latest in the folder: its metrics and `best_ckpt_global_step`. Ours are
    `checkpoint`, the name of its files, and, if several are kept, `checkpoints`: the best first,
    each with its step, the value of the rule's first metric and the name of its files.

    The weights are those that were evaluated. If these are averages, the checkpoint that training
    can go on from is in the folder `training` below.

    Args:
        folder: `best` in the run's or the evaluator's folder.
        rule: What decides.
        keep: How many are kept.
        write_averages: From a training checkpoint to a path; None if there are no averages.
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
        self._keep = keep
        self._write_averages = write_averages

    def update(
        self,
        rows: Sequence[records.Evaluation],
        source: Path,
        commit: Callable[[], object] | None = None,
    ) -> records.Evaluation | None:
        """Makes the folder hold the best of `rows` whose checkpoints exist.

        If there are none, as after a change of the rule, it names none.

        Args:
            rows: The evaluations.
            source: The checkpoint of the newest evaluation. An older one that the folder has lost
                is looked for beside it.
            commit: Makes `source` if it does not exist and is among the best.

        Returns:
            The best row; None if there is none yet.

        Raises:
            RunnerError: the folder cannot be written; what it held before is kept.
        """
        ranked = self.rule.ranked(rows)
        wanted = self._wanted(ranked, source, commit)
        try:
            if wanted:
                self._hold(wanted, source)
            elif rows:
                self._disown()
        except checkpoint_files.UNWRITABLE as error:
            kept = "the previous best is kept" if self._named() else "there is no previous best"
            path = self._folder / (wanted[0].checkpoint if wanted else layout.INFO)
            raise checkpoint_files.not_written(path, error, kept=kept) from error
        return next(iter(ranked), None)

    def _wanted(
        self,
        ranked: Sequence[records.Evaluation],
        source: Path,
        commit: Callable[[], object] | None,
    ) -> list[records.Evaluation]:
        """The best few, one a step, whose checkpoint exists, or can be made."""
        places = (self._folder, self._folder / TRAINING, source.parent)
        present = {name for place in places for name in checkpoint_files.names(place)}
        wanted: dict[int, records.Evaluation] = {}
        for row in ranked:
            if len(wanted) == self._keep:
                break
            if commit and row.checkpoint == source.name and source.name not in present:
                commit()
                present.add(source.name)
            if row.checkpoint in present:
                wanted.setdefault(row.step, row)
        return list(wanted.values())

    def _hold(self, wanted: Sequence[records.Evaluation], source: Path) -> None:
        """Makes the folder hold exactly the checkpoints of `wanted`."""
        for folder in (self._folder, self._folder / TRAINING):
            recovery.clear_leftovers(folder)
        named = self._named()
        for row in wanted:
            if row.checkpoint not in named:
                with contextlib.suppress(FileNotFoundError):  # training removed it meanwhile
                    self._take(source.with_name(row.checkpoint))
        if held := [row for row in wanted if _has(self._folder, row)]:
            self._write(held)
            self._prune()

    def _take(self, path: Path) -> None:
        """Puts the evaluated weights of a training checkpoint into the folder."""
        if self._write_averages is None:
            checkpoint_files.link(path, self._folder / path.name)
            return
        resumable = self._folder / TRAINING / path.name
        places = (path, resumable, self._folder / path.name)  # the last is of earlier versions
        found = next((place for place in places if checkpoint_files.exists(place)), path)
        if found != resumable:
            checkpoint_files.link(found, resumable)
        self._write_averages(resumable, self._folder / path.name)

    def _disown(self) -> None:
        """Makes the folder name no checkpoint; the files stay, in case the rule changes back."""
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
        except RunnerError:  # damaged: it will be rewritten
            return {}
        return info if isinstance(info, dict) else {}

    def _named(self) -> set[str]:
        """The checkpoints that info.json names and that exist."""
        info = self._info()
        entries = info.get("checkpoints", [info])  # earlier versions named averages beside it
        names = {each.get("checkpoint") for each in entries if "averaged_weights" not in each}
        return {name for name in names if name and checkpoint_files.exists(self._folder / name)}

    def _prune(self) -> None:
        """Removes what info.json does not name: an older best, or leftovers of a crash.

        What Model Garden has exported there stays: its checkpoints have other names.
        """
        named = self._named()
        for file in (*self._folder.iterdir(), *self._folder.glob(f"{TRAINING}/*")):
            part = re.fullmatch(r"(.+)\.(index|data-\d{5}-of-\d{5})", file.name)
            if part and part[1] not in named and not part[1].startswith(_MODEL_GARDENS):
                files.remove(file)


class BestCheckpoints:
    """Several of these folders, each by a metric of its own; the first is the run's."""

    def __init__(self, folders: Sequence[BestCheckpoint]) -> None:
        self._folders = tuple(folders)

    def update(
        self,
        rows: Sequence[records.Evaluation],
        source: Path,
        commit: Callable[[], object] | None = None,
    ) -> records.Evaluation | None:
        """Updates each folder as `BestCheckpoint.update` does; returns the first one's best row."""
        best = [folder.update(rows, source, commit) for folder in self._folders]
        return best[0] if best else None


def _has(folder: Path, row: records.Evaluation) -> bool:
    """Whether the row's checkpoint, not another run's of that name, is in `folder`."""
    return row.is_own and checkpoint_files.exists(folder / row.checkpoint)
