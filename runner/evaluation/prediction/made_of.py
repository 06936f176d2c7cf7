"""The provenance of predictions: weights, data and configuration, and how they have changed."""

import glob
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from official.core import config_definitions as cfg

from runner.config import Experiment
from runner.configuration import printing
from runner.core import secrets
from runner.evaluation import evaluator
from runner.internals import keras as keras_internals
from runner.run_directory import config_change
from runner.storage import display_names

_SECTIONS = ("task", "runtime", "run")
_COUNTS = ("task.", "runtime.", "run.evaluation_sets", "run.test")  # affect predictions
_FILES = ("path", "paths", "file", "files")  # the suffixes of fields that name files


def describe(
    config: Experiment,
    built: evaluator.Evaluator,
    checkpoint: Path,
    name: str,
    data: cfg.DataConfig,
) -> dict[str, Any]:
    """Describes the provenance of predictions, for JSON.

    Args:
        config: The experiment.
        built: Its model holds the weights.
        checkpoint: The source of the weights.
        name: The name of the data.
        data: Their configuration.
    """
    held = list(secrets.held(config.as_dict()))
    plain = printing.plain(config)
    return {
        "checkpoint": display_names.of(checkpoint),
        "averaged_weights": built.averages is not None,
        "weights": _checksum(built),
        "data": name,
        "batch": getattr(data, "global_batch_size", 0),
        "files": dict(stamps(printing.plain(data))),
        "config": secrets.masked_all({each: plain[each] for each in _SECTIONS}, held),
    }


def differences(
    before: Mapping[str, Any], now: Mapping[str, Any], config: Experiment, *, begun: bool
) -> list[str]:
    """Lists the differences in provenance that would change predictions, one line each.

    Args:
        before: The earlier result of `describe`, from JSON, or empty if there is none.
        now: The current result.
        config: The experiment that `now` describes.
        begun: Whether predictions continue from `before`, batch by batch.
    """
    if not before:
        return []
    found = []
    if before["weights"] != now["weights"]:
        same = before["checkpoint"] == now["checkpoint"]
        new = "different weights under that name" if same else now["checkpoint"]
        found.append(f"checkpoint: {before['checkpoint']} -> {new}")
    if before["data"] != now["data"]:
        found.append(f"--data: {before['data']} -> {now['data']}")
    else:
        both = {**before["files"], **now["files"]}
        changed = (path for path in both if before["files"].get(path) != now["files"].get(path))
        found += [f"{path} was changed" for path in changed]
    if begun and before["batch"] != now["batch"]:
        found.append(f"global_batch_size: {before['batch']} -> {now['batch']}")
    changes = config_change.compare(before["config"], config)
    found += [
        str(change) for change in changes if not change.harmless and change.path.startswith(_COUNTS)
    ]
    return found


def _checksum(built: evaluator.Evaluator) -> int:
    """Returns a checksum of all current weights."""
    found = 0
    for variable in keras_internals.variables(built.model):
        found = zlib.crc32(variable.numpy().tobytes(), found)
    return found


def digest(data: cfg.DataConfig) -> str:
    """Returns a text that changes with the configuration of data, and with files that it names."""
    plain = printing.plain(data)
    facts = json.dumps([plain, dict(stamps(plain))], sort_keys=True, default=str)
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


def stamps(data: Any, field: str = "") -> Iterator[tuple[str, list[int]]]:
    """Yields size and time of each file in a configuration. A directory includes its contents."""
    if isinstance(data, Mapping):
        for name, value in data.items():
            yield from stamps(value, name)
    elif isinstance(data, list):
        for value in data:
            yield from stamps(value, field)
    elif isinstance(data, str) and field.endswith(_FILES):
        for path in sorted(glob.glob(data)):  # noqa: PTH207, which takes no absolute pattern
            below = [Path(path), *Path(path).rglob("*")]
            facts = [each.stat() for each in below]
            yield path, [sum(f.st_size for f in facts), max(f.st_mtime_ns for f in facts)]
