"""A run or a study as a Workflow Run RO-Crate: what a stranger needs to check and repeat it.

The format is RO-Crate 1.1 with the profile Workflow Run Crate 0.5 (w3id.org/ro/wfrun). config.gin
is the workflow, and each run is an action with its data, metrics and files. No TensorFlow.
"""

import datetime
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runner.checkpoints import tensor_bundle
from runner.core import console, layout, text
from runner.errors import ConfigError
from runner.inspection import run_page, study_page
from runner.run_directory.run import Run
from runner.run_directory.state import FINISHED
from runner.runs.call import Results

_PROFILES = (
    "https://w3id.org/ro/wfrun/process/0.5",
    "https://w3id.org/ro/wfrun/workflow/0.5",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0",
)
_OF_RUN = (
    *(layout.PARAMS, layout.RUN, layout.STATUS, layout.OVERVIEW),
    *(layout.HISTORY, layout.TRAINING_ROWS, layout.TRIAL),
)
_OF_STUDY = (layout.STUDY, layout.TRIALS_TABLE, layout.DECISIONS)
_LANGUAGE = "https://github.com/google/gin-config"
_STATE = ("model/", "optimizer/", "global_step")
_REQUIREMENTS = "requirements.txt"
_README = """# {name}

A record of {what}, written by `runner --mode=report --format=ro-crate`.

To repeat {which}, install the packages and train with the recorded configuration:

    pip install -r {requirements}
    runner --mode={mode} --gin_file={gin} --model_dir=again

Data and modules that `{gin}` names must be there. `runner --mode=report --model_dir=again
--format=ro-crate` then prints the digest of the final state. If it is
`{digest}`,
all bits of the weights and of the optimizer are the same. Another processor may round differently.
"""


def write(folder: Path, output: Path | None = None) -> Results:
    """Writes the crate.

    Args:
        folder: The directory of a run or a study.
        output: A .zip file, or None for one in the directory.

    Returns:
        The results for JSON. `state` is the digest of the final state (of the first run of a
        study).

    Raises:
        ConfigError: nothing is there to record, or the package `rocrate` is missing.
    """
    try:
        from rocrate.rocrate import ROCrate
    except ImportError as error:
        raise ConfigError(
            "--format=ro-crate needs the package rocrate: pip install rocrate"
        ) from error
    is_study = layout.is_study(folder)
    runs = [Run(each, strict=False) for each in (layout.trials(folder) if is_study else [folder])]
    runs = [each for each in runs if (each.directory / layout.GIN).exists() and each.attempts]
    if not runs:
        raise ConfigError(f"{folder} has no run with {layout.GIN}, so there is nothing to record")
    crate = ROCrate(gen_preview=False, version="1.1")
    crate.name = folder.resolve().name
    crate.description = f"{'A study' if is_study else 'A training run'} of TensorFlow models"
    crate.license = "No license was stated"
    with tempfile.TemporaryDirectory(prefix="runner-") as scratch:
        made = _Crate(crate, Path(scratch), folder)
        digests = [made.add_run(run, is_main=run is runs[0]) for run in runs]
        if is_study:
            for name in _OF_STUDY:
                made.add_file(folder / name, name)
            made.add_text(layout.REPORT, study_page.render(folder, refresh=0)[0])
        prefix = f"{runs[0].directory.relative_to(folder).as_posix()}/" if is_study else ""
        readme = made.add_text(
            "README.md", _readme(folder, runs[0], prefix, digests[0], is_study=is_study)
        )
        readme["about"] = crate.root_dataset
        crate.metadata.append_to("conformsTo", {"@id": _PROFILES[-1]})
        crate.root_dataset["conformsTo"] = [
            made.add(profile, "CreativeWork", name=profile.split("/ro/")[-1], version="0.5")
            for profile in _PROFILES
        ]
        target = output or folder / layout.CRATE
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(crate.write_zip(Path(scratch) / layout.CRATE), target)
    console.say(f"written: {target} ({text.size(target.stat().st_size)}); state {digests[0]}")
    return {"status": "done", "output": str(target), "runs": len(runs), "state": digests[0]}


class _Crate:
    """A crate in progress.

    Args:
        crate: The `ROCrate`.
        scratch: A temporary directory for the files that are made.
        folder: The directory of the run or study.
    """

    def __init__(self, crate: Any, scratch: Path, folder: Path) -> None:
        self._crate, self._scratch, self._folder = crate, scratch, folder

    def add(self, identifier: str, kind: str, **properties: Any) -> Any:
        """Adds an entity that is not a file, or returns the existing one."""
        from rocrate.model.contextentity import ContextEntity

        known = self._crate.get(identifier)
        return known or self._crate.add(
            ContextEntity(self._crate, identifier, properties={"@type": kind, **properties})
        )

    def add_file(self, path: Path, name: str) -> Any | None:
        """Adds a file with its checksum. Returns None if it does not exist."""
        if not path.is_file():
            return None
        content = path.read_bytes()
        return self._crate.add_file(
            str(path),
            name,
            properties={
                "sha256": hashlib.sha256(content).hexdigest(),
                "contentSize": str(len(content)),
                "encodingFormat": _FORMATS.get(path.suffix, "text/plain"),
            },
        )

    def add_text(self, name: str, content: str) -> Any:
        """Adds a file with this content."""
        path = self._scratch / name.replace("/", "__")
        path.write_text(content, encoding="utf-8")
        return self.add_file(path, name)

    def add_run(self, run: Run, *, is_main: bool) -> str:
        """Adds a run: its files and an action. Returns the digest of its final state."""
        prefix = "" if run.directory == self._folder else f"{_place(self._folder, run)}/"
        newest = run.attempts[-1]
        requirements = self.add_text(f"{prefix}{_REQUIREMENTS}", _requirements(newest))
        checksum = hashlib.sha256((run.directory / layout.GIN).read_bytes()).hexdigest()
        workflow = self._crate.add_workflow(
            str(run.directory / layout.GIN),
            f"{prefix}{layout.GIN}",
            main=is_main,
            lang=self._language(),
            properties={
                "name": f"configuration of {run.directory.name}",
                "version": checksum[:12],
                "sha256": checksum,
                "encodingFormat": "text/plain",
                "softwareRequirements": {"@id": requirements.id},
            },
        )
        files = [self.add_file(run.directory / name, f"{prefix}{name}") for name in _OF_RUN]
        files.append(self.add_text(f"{prefix}{layout.REPORT}", run_page.render(run, refresh=0)))
        inputs = [*self._data(prefix, newest), *self._code(prefix, newest)]
        digest = state_digest(run)
        values = {**_metrics(run), **({"state": digest} if digest else {})}
        results = [
            self.add(f"#{prefix}{name}", "PropertyValue", name=name, value=value)
            for name, value in values.items()
        ]
        status = "Completed" if run.state in FINISHED else "Failed"
        action = self._crate.add_action(
            workflow,
            identifier=f"#{prefix}action",
            object=inputs,
            result=[*filter(None, files), *results],
            properties={
                "name": f"run {run.directory.name}",
                "startTime": _time(run.attempts[0].get("started")),
                "endTime": _time(newest.get("ended") or newest.get("started")),
                "actionStatus": f"http://schema.org/{status}ActionStatus",
                "description": json.dumps(newest.get("machine") or {}),
            },
        )
        self._crate.root_dataset.append_to("mentions", action)
        return digest

    def _language(self) -> Any:
        from rocrate.model.computerlanguage import ComputerLanguage

        properties = {"name": "Gin", "url": {"@id": _LANGUAGE}}
        return self._crate.get(_LANGUAGE) or self._crate.add(
            ComputerLanguage(self._crate, _LANGUAGE, properties=properties)
        )

    def _data(self, prefix: str, attempt: Mapping[str, Any]) -> Iterator[Any]:
        """Yields the fingerprints of the data."""
        for name, facts in (attempt.get("data") or {}).items():
            yield self.add(
                f"#{prefix}data/{name}", "PropertyValue", name=name, value=json.dumps(facts)
            )

    def _code(self, prefix: str, attempt: Mapping[str, Any]) -> Iterator[Any]:
        """Yields the commit of the runner, and the file of the task if it is unchanged."""
        code = attempt.get("code") or {}
        for name, facts in code.items():
            yield self.add(
                f"#{prefix}code/{name}", "PropertyValue", name=name, value=json.dumps(facts)
            )
        task = code.get("task") or {}
        path = Path(task.get("file") or "")
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == task.get("sha256"):
            module = str(task.get("module", path.stem)).replace(".", "/")
            yield self.add_file(path, f"{prefix}code/{module}.py")


_FORMATS = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".yaml": "application/yaml",
    ".html": "text/html",
    ".csv": "text/csv",
    ".md": "text/markdown",
    ".py": "text/x-python",
}


def state_digest(run: Run) -> str:
    """Returns a digest of all weights and the optimizer's state in a run's newest checkpoint.

    Two runs with equal digests have the same bits. Empty if there is no checkpoint.
    """
    newest = max(run.checkpoints, key=run.checkpoints.__getitem__, default=None)
    if newest is None:
        return ""
    bundle = tensor_bundle.Bundle(run.directory / newest)
    digest = hashlib.sha256()
    for name in sorted(each for each in bundle.names if each.startswith(_STATE)):
        digest.update(name.encode() + b"\0")
        digest.update(bundle.raw(name))
    return digest.hexdigest()


def _metrics(run: Run) -> dict[str, float]:
    """Returns the metrics of the best evaluation, else of the last one, and of the tests."""
    row = run.best or run.last
    tests = run.tests[-1:]
    return {
        **(dict(row.metrics) if row else {}),
        **{f"test/{name}": value for test in tests for name, value in test.metrics.items()},
    }


def _requirements(attempt: Mapping[str, Any]) -> str:
    lines = [f"{name}=={version}" for name, version in (attempt.get("versions") or {}).items()]
    commit = ((attempt.get("code") or {}).get("runner") or {}).get("commit")
    head = [f"# Python {attempt.get('python')}, {attempt.get('platform')}"]
    return "\n".join([*head, *([f"# runner: commit {commit}"] if commit else []), *lines]) + "\n"


def _readme(folder: Path, run: Run, prefix: str, digest: str, *, is_study: bool) -> str:
    return _README.format(
        name=folder.resolve().name,
        what="a study" if is_study else "a run",
        which=f"the run {run.directory.name}" if is_study else "the run",
        requirements=f"{prefix}{_REQUIREMENTS}",
        mode=run.attempts[-1].get("mode") or "train_and_eval",
        gin=f"{prefix}{layout.GIN}",
        digest=digest,
    )


def _place(folder: Path, run: Run) -> str:
    return run.directory.relative_to(folder).as_posix()


def _time(seconds: Any) -> str:
    when = datetime.datetime.fromtimestamp(int(seconds or 0), datetime.UTC)
    return when.isoformat()
