"""The best checkpoint so far, kept in a folder of its own."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from runner import checkpoint_files, files, history, restoring, rules


class BestCheckpoint:
    """A folder that holds the best checkpoint so far, and info.json about it.

    It follows from the evaluations alone, so after a crash `update` puts it right. At any moment
    info.json names a checkpoint that is whole. It has Model Garden's keys: the metrics and
    `best_ckpt_global_step`; `checkpoint` and `averaged_weights` are ours and name files beside it.

    Args:
        folder: `best` in the run's or the evaluator's folder.
        rule: The metric that decides.
        write_averages: Writes the averaged model-only weights to a path, where there are any.
    """

    def __init__(
        self,
        folder: Path,
        rule: rules.BestRule,
        *,
        write_averages: Callable[[Path], None] | None = None,
    ) -> None:
        self._folder = folder
        self.rule = rule
        self._write_averages = write_averages

    def update(self, rows: Iterable[history.Row], source: Path) -> history.Row | None:
        """Makes the folder hold the best of `rows`.

        Args:
            rows: The evaluations.
            source: The checkpoint that the newest of them evaluated, and whose averages are at
                hand. An older one is looked for beside it, where it is the best and the folder
                lost it; it comes without averages.

        Returns:
            The best row, None while there is none.

        Raises:
            RunnerError: the folder cannot be written; what it held before is still there.
        """
        row = rules.best(rows, self.rule)
        if row is None:
            return None
        best = source.with_name(row.checkpoint)
        if self._held() != row.step and checkpoint_files.exists(best):
            try:
                self._export(row, best, with_averages=best == source)
            except checkpoint_files.UNWRITABLE as error:
                kept = "the one before it is kept" if self._info() else "there is none before it"
                path = self._folder / best.name
                raise checkpoint_files.not_written(path, error, kept=kept) from error
        self._prune()
        return row

    def _info(self) -> dict[str, Any]:
        """What info.json says, where what it names is there."""
        info = files.read_json(self._folder / "info.json") or {}
        name = info.get("checkpoint")
        return info if name and checkpoint_files.exists(self._folder / name) else {}

    def _held(self) -> int | None:
        info = self._info()
        return int(info["best_ckpt_global_step"]) if info else None

    def _export(self, row: history.Row, best: Path, *, with_averages: bool) -> None:
        checkpoint_files.link(best, self._folder / best.name)
        info: dict[str, Any] = {
            **history.plain(row.metrics),
            "best_ckpt_global_step": float(row.step),
            "checkpoint": best.name,
        }
        if self._write_averages and with_averages:
            info["averaged_weights"] = f"averaged-{row.step}"
            self._write_averages(self._folder / info["averaged_weights"])
        checkpoint_files.list_committed(self._folder, [best.name])
        files.write_json(self._folder / "info.json", info)

    def _prune(self) -> None:
        """Removes what info.json does not name: an older best, and what a crash left."""
        info = self._info()
        if not info:
            return
        restoring.clear_leftovers(self._folder)
        kept = (info["checkpoint"], info.get("averaged_weights"))
        for file in self._folder.iterdir():
            part = re.fullmatch(r"(.+)\.(index|data-\d{5}-of-\d{5})", file.name)
            if part and part[1] not in kept:
                file.unlink(missing_ok=True)
