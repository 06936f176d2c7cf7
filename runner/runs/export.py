"""The mode `export`: converts a checkpoint to servable models that are scored first."""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from runner import config
from runner.checkpoints import checkpoint_files, restore, selection
from runner.configuration import limits, sections
from runner.core import console, files, layout, text
from runner.data import windows
from runner.data.determinism import Determinism
from runner.errors import ConfigError, RejectedError
from runner.evaluation import evaluator
from runner.evaluation.export import candidates, card, conversion, gate, pretrained, versions
from runner.history import policies
from runner.run_directory import claim
from runner.run_directory.run import run_in
from runner.runs import build, dry_run
from runner.runs.call import Call, Given, Outcome, Results
from runner.storage import display_names


class _Source(NamedTuple):
    """A checkpoint to export.

    Attributes:
        path: The path, without `.index`.
        step: Its step.
        digest: Identifies its contents.
    """

    path: Path
    step: int
    digest: str


def export(call: Call, checkpoint: str) -> Outcome:
    """Exports a checkpoint.

    Raises:
        ConfigError: a format does not support the model, or the step's version is of another one.
        RejectedError: the scores of an export differ from the checkpoint's.
    """
    formats = call.config.run.export.formats
    conversion.check_installed(formats)
    path = choose(call, checkpoint)
    source = _Source(path, restore.step_of(path), versions.digest(path))
    root = call.model_dir / layout.EXPORT
    places = [versions.Version(root, name, source.step) for name in formats]
    with claim.claimed(root, note=console.say):
        for place in places:
            place.check_same(source.digest, call.config.run.limit_evaluation)
        missing = [place for place in places if place.facts() is None]
        served = [place for place in missing if place.format != pretrained.NAME]
        made = _make(call, source, served) if served else []
        made += [_pretrained(call, source, place) for place in missing if place not in served]
        kept = [_kept(place) for place in places if place not in missing]
    return _outcome(call, source, [*kept, *made])


def rehearse(call: Call, checkpoint: str) -> Outcome:
    """Restores the checkpoint and evaluates one batch, without exporting."""
    conversion.check_installed(call.config.run.export.formats)
    path = str(choose(call, checkpoint))
    return Outcome(dry_run.rehearse(call, trains=False, evaluates=True, checkpoint=path))


def choose(call: Call, which: str) -> Path:
    """Returns the checkpoint to export: the best one if there is one, unless `which` names another.

    Raises:
        ConfigError: there is none, or several are named.
    """
    model_dir = call.model_dir
    best = list(policies.of(call.config).best_folders)
    if not which and best and (path := checkpoint_files.latest(model_dir / best[0])):
        return path
    found = selection.select(model_dir, which or "latest", best=best)
    if not found:
        raise ConfigError(f"there is no checkpoint to export in {model_dir}")
    if len(found) > 1:
        names = text.some([path.name for path in found])
        raise ConfigError(
            f"{{checkpoint}} names {names}; export takes one checkpoint", checkpoint=which
        )
    return found[0]


def _make(call: Call, source: _Source, places: Sequence[versions.Version]) -> list[dict[str, Any]]:
    """Makes, scores and publishes these versions. Returns their facts."""
    options, formats = call.config.run.export, [place.format for place in places]
    with _scratch(places[0].root) as scratch, contextlib.ExitStack() as processes:
        console.announce("building the model ...")
        experiment = _in_float32(call.config)
        made = _candidates(call, experiment, source, scratch)
        conversion.check_carries(formats, made.servable)
        console.say(
            f"exporting {source.path.name} (step {source.step:,}, {made.weights} weights) as "
            f"{', '.join(formats)}"
        )
        for line in limits.describe(experiment, trains=False, evaluates=True):
            console.say(line)
        made.make(formats, lambda: _training_data(call, experiment, made, source), processes)
        reference = made.reference(source.path)
        scored = {name: made.score(name, reference) for name in formats}
        reference = dataclasses.replace(reference, milliseconds=made.milliseconds())
        columns = [reference, *itertools.chain.from_iterable(scored.values())]
        console.say(gate.render(columns, options))
        shared = card.Export(
            call.config,
            source.path,
            source.step,
            made.weights,
            source.digest,
            made.examples,
            reference,
            made.servable,
        )
        return [
            _published(place, made.folders[place.format], shared, scored[place.format])
            for place in places
        ]


def _candidates(
    call: Call, experiment: config.Experiment, source: _Source, scratch: Path
) -> candidates.Candidates:
    """Returns the candidates, from which the formats are made."""
    built = _restored(call, experiment, source, scratch)
    return candidates.Candidates(built, scratch, call.config.run.export, call.stop.check)


def _restored(
    call: Call, experiment: config.Experiment, source: _Source, scratch: Path
) -> evaluator.Evaluator:
    """Restores the checkpoint on one device, regardless of how it was trained."""
    given = Given(tf.distribute.get_strategy(), call.given.task)
    alone = dataclasses.replace(call, config=experiment, given=given)
    built = build.build_evaluator(alone, scratch)
    built.restore(source.path)
    return built


def _pretrained(call: Call, source: _Source, place: versions.Version) -> dict[str, Any]:
    """Publishes weights for other tasks to start from. They have no outputs to score."""
    with _scratch(place.root) as scratch:
        built = _restored(call, call.config, source, scratch)
        folder = scratch / place.format
        with built.averages_in_force():
            found = pretrained.write(built.model, folder, source.step)
        facts = {
            "format": place.format,
            "accepted": True,
            "step": source.step,
            "checkpoint": display_names.of(source.path),
            "digest": source.digest,
            "weights": "averaged" if built.averages else "trained",
            "checkpoint_metrics": {},
            "bytes": versions.size(folder),
            **found,
        }
        files.write_json(folder / layout.EXPORT_FACTS, facts)
        path = place.publish(folder, accepted=True)
        console.say(
            f"{place.format}: {display_names.of(path)} contains {', '.join(found['items'])}"
        )
        return {**facts, "path": str(path)}


def _in_float32(experiment: config.Experiment) -> config.Experiment:
    """Returns the experiment in float32. Variables are float32 in any precision."""
    if experiment.runtime.mixed_precision_dtype in (None, "", "float32"):
        return experiment
    made = sections.unlocked(experiment)
    console.say(
        f"trained in {made.runtime.mixed_precision_dtype}; exporting and scoring in float32"
    )
    made.runtime.mixed_precision_dtype = "float32"
    return made


def _training_data(
    call: Call,
    experiment: config.Experiment,
    made: candidates.Candidates,
    source: _Source,
) -> Iterable[Any]:
    """Returns the batches that training would continue with after the checkpoint."""
    run = run_in(call.model_dir)
    reading = run.reading if run else windows.Reading()
    data = build.training_inputs(experiment, made.task, source.step, reading, Determinism())
    return iter(data)


def _published(
    place: versions.Version, folder: Path, shared: card.Export, scored: Sequence[gate.Scored]
) -> dict[str, Any]:
    """Writes a version's card and publishes the version. Returns its facts."""
    facts = card.write(folder, shared, place.format, scored)
    path = place.publish(folder, accepted=facts["accepted"])
    kept = "" if facts["accepted"] else "rejected, kept as "
    console.say(f"{place.format}: {kept}{display_names.of(path)}")
    return {**facts, "path": str(path)}


def _kept(place: versions.Version) -> dict[str, Any]:
    """Returns the facts of a version that an earlier export has made."""
    name = display_names.of(place.accepted)
    console.say(f"{place.format}: {name} already exists for the same checkpoint")
    return {**(place.facts() or {}), "path": str(place.accepted)}


def _outcome(call: Call, source: _Source, exports: Sequence[dict[str, Any]]) -> Outcome:
    rejected = [each for each in exports if not each["accepted"]]
    results: Results = {
        "status": "rejected" if rejected else "done",
        "step": source.step,
        "checkpoint": str(source.path),
        "metrics": next((m for each in exports if (m := each["checkpoint_metrics"])), {}),
        "exports": list(exports),
        "model_dir": str(call.model_dir),
        **({"limited": call.limits} if call.limits else {}),
    }
    if rejected:
        why = "; ".join(f"{each['format']}: {each['reason']}" for each in rejected)
        raise RejectedError(
            f"rejected: {why} (ExportConfig.tolerance = {call.config.run.export.tolerance:g})",
            results,
        )
    return Outcome(results)


@contextlib.contextmanager
def _scratch(root: Path) -> Iterator[Path]:
    """Yields an empty directory, and removes it at the end, as well as one that a kill left."""
    folder = root / layout.UNFINISHED
    files.remove_folder(folder)
    files.make_folder(folder)
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            files.remove_folder(folder)
