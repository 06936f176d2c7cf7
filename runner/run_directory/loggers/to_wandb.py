"""Weights & Biases: logs each run as a W&B run. A study is a group: its trials and its own run.

W&B's own environment variables configure it (`WANDB_MODE`, `WANDB_PROJECT`, `WANDB_ENTITY`,
`WANDB_BASE_URL` ...). Its files are in our run's directory unless `WANDB_DIR` is set.
"""

import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.core import layout
from runner.errors import RunnerError
from runner.run_directory.loggers import facts as facts_
from runner.run_directory.loggers import ledger as ledger_
from runner.run_directory.loggers.rows import Row
from runner.run_directory.state import State

_STEP = "step"  # the training step's name, the x axis of all charts
_TABLES = (".csv", ".parquet")
_RUN, _SESSION, _COUNT = "run", "session", "count"


def target() -> str:
    """Returns the mode and the server.

    Raises:
        RunnerError: W&B is disabled, so no data would be logged.
    """
    mode = os.environ.get("WANDB_MODE", "online")
    if mode == "disabled" or os.environ.get("WANDB_DISABLED", "").lower() in ("true", "1"):
        raise RunnerError("W&B is disabled by the environment: nothing is logged")
    return f"{mode} {os.environ.get('WANDB_BASE_URL', 'https://api.wandb.ai')}"


class Logger:
    """One W&B run, new or continued.

    The data of a session are recorded when it has been finished, since only then they are certain
    to have arrived. After a kill they are sent again with the same numbers. W&B counts rows itself,
    and a server skips the rows that it already has. The unfinished files of an offline session are
    removed.

    Args:
        facts: The facts about our run.
        ledger: The record of sent rows.
    """

    def __init__(self, facts: facts_.Facts, ledger: ledger_.Ledger) -> None:
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        self._library = wandb
        self._ledger = ledger
        self._facts = facts
        self._pending: list[ledger_.Entry] = []
        self._given: set[tuple[str, str, Any]] = set()
        self._id = str(ledger.get(_RUN, "id") or uuid.uuid4().hex[:12])
        ledger.put([(_RUN, "id", self._id)])
        self._remove_unfinished()
        self._count = int(ledger.get(_COUNT) or 0)
        self._made = self._session()
        self._made.define_metric(_STEP, hidden=True)
        self._made.define_metric("*", step_metric=_STEP)
        ledger.put([(_SESSION, "open", Path(self._made.dir).parent.name)])

    @property
    def place(self) -> str:
        """The run's id."""
        return self._id

    def _session(self) -> Any:
        facts, trial = self._facts, self._facts.study
        kind = "study" if facts.is_study else "trial" if trial else "run"
        group = trial or (facts.folder if facts.is_study else None)
        return self._library.init(
            id=self._id,
            project=os.environ.get("WANDB_PROJECT") or facts.group,
            name=facts.name,
            group=os.environ.get("WANDB_RUN_GROUP") or (group.resolve().name if group else None),
            job_type=kind,
            notes=facts.notes or None,
            tags=list(facts.labels) or None,
            dir=str(self._folder),
            resume=None if self._is_offline else "allow",
            settings=self._library.Settings(
                console="off",
                silent=True,
                disable_git=True,
                x_disable_stats=True,
                x_disable_meta=True,
            ),
        )

    @property
    def _folder(self) -> Path:
        return Path(os.environ.get("WANDB_DIR") or self._facts.folder / layout.LOGGERS)

    @property
    def _is_offline(self) -> bool:
        return os.environ.get("WANDB_MODE") in ("offline", "dryrun")

    def _remove_unfinished(self) -> None:
        """Removes the files of a killed offline session, whose data are sent again."""
        left = str(self._ledger.get(_SESSION, "open") or "")
        if left.startswith("offline-run-") and left.endswith(self._id):
            shutil.rmtree(self._folder / "wandb" / left, ignore_errors=True)

    def describe(self, facts: facts_.Facts) -> None:
        """Sets the configuration, including the tags."""
        self._facts = facts
        if facts.entry in self._given:
            return
        self._made.config.update({**facts.parameters, **facts.tags}, allow_val_change=True)
        self._note(facts.entry)

    def log(self, rows: Sequence[Row]) -> None:
        """Logs rows."""
        for row in rows:
            if row.entry in self._given:
                continue
            self._made.log({**row.named, _STEP: row.step}, step=self._count)
            self._count += 1
            self._note(row.entry)

    def keep(self, path: Path, digest: str) -> None:
        """Stores a file, or the files of a directory, as an artifact, unless it is there."""
        entry = ("artifact", path.name, digest)
        if self._ledger.has(entry) or entry in self._given:
            return
        kind = "model" if path.name == layout.BEST else "file"
        name = path.name if path.suffix in _TABLES else path.stem  # trials.csv, trials.parquet
        made = self._library.Artifact(f"{name}-{self._id}", type=kind)
        made.add_dir(str(path)) if path.is_dir() else made.add_file(str(path))
        self._made.log_artifact(made)
        self._note(entry)

    def close(self) -> None:
        """Ends the session, after which W&B has all its data."""
        failed = self._facts.state in (State.FAILED, State.DIVERGED)
        self._made.finish(exit_code=1 if failed else 0)
        closed = (_SESSION, "open", "")
        self._ledger.put([*self._pending, (_COUNT, "", self._count), closed])

    def _note(self, entry: ledger_.Entry) -> None:
        self._pending.append(entry)
        self._given.add(entry)
