"""MLflow: logs each run as an MLflow run, and a study as a parent run, with our times and steps.

MLflow's own environment variables configure the server and the requests (`MLFLOW_TRACKING_URI`,
`MLFLOW_EXPERIMENT_NAME` ...).
"""

import os
import posixpath
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from runner.core import secrets
from runner.errors import RunnerError
from runner.run_directory.loggers import facts as facts_
from runner.run_directory.loggers import ledger as ledger_
from runner.run_directory.loggers.rows import Row
from runner.run_directory.state import State

NAME = "mlflow"
_MOST_METRICS = 1000  # per request, MLflow's limit, as are the next two
_MOST_PARAMETERS = 100
_LONGEST_NAME = 250
_LONGEST_PARAMETER = 6000
_LONGEST_TAG = 5000
_IN_TURN = 200  # rows that are recorded together
_DEFAULTS = {  # to notice a missing server within a minute instead of half an hour
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
_STATES = {
    State.RUNNING: "RUNNING",
    State.PAUSED: "SCHEDULED",
    State.PREEMPTED: "KILLED",
    State.STOPPED: "FINISHED",
    State.DONE: "FINISHED",
}
_RUN, _NAME, _PARAMETER, _TAG = "run", "name", "parameter", "tag"
_ID = "runner.id"


def target() -> str:
    """Returns the server's URI without passwords."""
    _prepare()
    import mlflow

    uri = mlflow.get_tracking_uri()
    scheme, slashes, path = uri.partition(":///")
    if scheme == "sqlite" and slashes and not path.startswith("/"):
        uri = f"{scheme}:///{Path(path).absolute()}"
    return secrets.masked(uri)


class Logger:
    """One MLflow run, new or continued.

    Args:
        facts: The facts about our run.
        ledger: The record of sent rows.
    """

    def __init__(self, facts: facts_.Facts, ledger: ledger_.Ledger) -> None:
        _prepare()
        from mlflow import MlflowClient

        self._client = MlflowClient()
        self._facts = facts
        self._ledger = ledger
        self._id = self._found() or self._made()

    @property
    def place(self) -> str:
        """The run's id."""
        return self._id

    def describe(self, facts: facts_.Facts) -> None:
        """Logs new parameters and tags. MLflow's parameters never change."""
        from mlflow.entities import Param, RunTag

        self._facts = facts
        new = []
        for name, value in facts.parameters.items():
            entry = (_PARAMETER, self._named(name), _cut(str(value), _LONGEST_PARAMETER))
            if self._ledger.get(*entry[:2]) is None:
                new.append(entry)
        for part in _parts(new, _MOST_PARAMETERS):
            parameters = [Param(name, value) for _, name, value in part]
            self._client.log_batch(self._id, params=parameters)
            self._ledger.put(part)
        tags = {**facts.tags, "mlflow.note.content": facts.notes}
        tags |= dict.fromkeys(facts.labels, "true")
        tags["mlflow.source.git.commit"] = facts.tags.get("runner.commit", "")
        tags["mlflow.source.name"] = facts.tags.get("runner.command", "")
        named = {self._named(name): _cut(value, _LONGEST_TAG) for name, value in tags.items()}
        entries = [(_TAG, name, value) for name, value in named.items() if value]
        entries = [entry for entry in entries if not self._ledger.has(entry)]
        for part in _parts(entries, _MOST_PARAMETERS):
            self._client.log_batch(self._id, tags=[RunTag(*entry[1:]) for entry in part])
            self._ledger.put(part)
        self._ledger.put([facts.entry])

    def log(self, rows: Sequence[Row]) -> None:
        """Logs rows. MLflow itself drops a repeated number with the same time and step."""
        from mlflow.entities import Metric

        for part in _parts(rows, _IN_TURN):
            metrics = [
                Metric(self._named(name), value, int(row.time * 1000), row.step)
                for row in part
                for name, value in row.named.items()
            ]
            for some in _parts(metrics, _MOST_METRICS):
                self._client.log_batch(self._id, metrics=some)
            self._ledger.put(row.entry for row in part)

    def keep(self, path: Path, digest: str) -> None:
        """Stores a file, or the files of a directory, as artifacts, unless they are already there.

        Args:
            path: The file or directory.
            digest: A digest of its contents.
        """
        entry = ("artifact", path.name, digest)
        if self._ledger.has(entry):
            return
        if path.is_dir():
            self._client.log_artifacts(self._id, str(path), path.name)
        else:
            self._client.log_artifact(self._id, str(path))
        self._ledger.put([entry])

    def close(self) -> None:
        """Records how our run ended."""
        state = _STATES.get(self._facts.state, "FAILED")
        if state in ("RUNNING", "SCHEDULED"):
            self._client.update_run(self._id, status=state)
        else:
            self._client.set_terminated(self._id, status=state)

    def _found(self) -> str:
        """Returns the existing run, or an empty text if there is none."""
        key, found = self._ledger.get(_RUN, "key"), self._ledger.get(_RUN, "id")
        if key and not found:  # killed while it was created
            runs = self._client.search_runs([self._experiment()], f"tags.`{_ID}` = '{key}'")
            found = runs[0].info.run_id if runs else ""
            self._ledger.put([(_RUN, "id", found)] if found else [])
        if found:
            self._check(found)
            self._client.update_run(found, status="RUNNING")
        return found or ""

    def _check(self, run: str) -> None:
        """Raises RunnerError if a run is gone."""
        from mlflow.exceptions import MlflowException

        gone = False
        try:
            gone = self._client.get_run(run).info.lifecycle_stage == "deleted"
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            gone = True
        if gone:
            path = ledger_.path(self._facts.folder, NAME)
            raise RunnerError(f"run {run} was deleted there; to log it again, remove {path}")

    def _made(self) -> str:
        """Creates a run."""
        key = self._ledger.get(_RUN, "key") or uuid.uuid4().hex
        self._ledger.put([(_RUN, "key", key)])
        facts = self._facts
        tags = {_ID: key}
        if facts.study is not None:
            tags["mlflow.parentRunId"] = _parent(facts.study)
        made = self._client.create_run(self._experiment(), tags=tags, run_name=facts.name)
        found: str = made.info.run_id
        self._ledger.put([(_RUN, "id", found)])
        return found

    def _experiment(self) -> str:
        """Returns the experiment's id, set by the environment or by our directory's name."""
        from mlflow.exceptions import MlflowException

        if given := os.environ.get("MLFLOW_EXPERIMENT_ID"):
            return given
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or self._facts.group
        if there := self._client.get_experiment_by_name(name):
            return str(there.experiment_id)
        try:
            return str(self._client.create_experiment(name))
        except MlflowException:  # created in the meantime
            if there := self._client.get_experiment_by_name(name):
                return str(there.experiment_id)
            raise

    def _named(self, name: str) -> str:
        """Returns `name` in MLflow's characters. The result is permanent and unique."""
        if known := self._ledger.get(_NAME, name):
            return str(known)
        plain = re.sub(r"[^\w./ :-]", "_", name)
        plain = posixpath.normpath(plain.strip("/") or "_").lstrip("./") or "_"
        if plain == name and len(name) <= _LONGEST_NAME:
            return name
        taken, number = {*self._ledger.of(_NAME).values()}, 1
        short = plain[: _LONGEST_NAME - 10]
        plain = short
        while plain in taken:
            number += 1
            plain = f"{short}-{number}"
        self._ledger.put([(_NAME, name, plain)])
        return plain


def _parent(study: Path) -> str:
    """Returns the id of a study's run, and creates the run if it is missing."""
    with ledger_.alone(study, NAME):
        facts = facts_.of(study, whole=False)
        return Logger(facts, ledger_.Ledger(study, NAME, target())).place


def _prepare() -> None:
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _parts(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    every = list(items)
    for begin in range(0, len(every), size):
        yield every[begin : begin + size]
