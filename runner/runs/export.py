"""The mode `export`: a checkpoint becomes models that serve, each scored before it is published."""

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
from runner.data.determinism import Determinism
from runner.errors import ConfigError, RejectedError
from runner.evaluation import evaluator
from runner.export import candidates, card, conversion, gate, pretrained, versions
from runner.history import history, policies
from runner.run_folder import claim
from runner.runs import build, dry_run
from runner.runs.request import Given, Outcome, Request, Results


class _Source(NamedTuple):
    """A checkpoint to export.

    Attributes:
        path: Without `.index`.
        step: Its step.
        digest: Tells it from others.
    """

    path: Path
    step: int
    digest: str


def export(request: Request) -> Outcome:
    """Exports the checkpoint that the request names.

    Raises:
        ConfigError: a format cannot carry the model, or the step's version is of another one.
        RejectedError: a file does not score what the checkpoint scores.
    """
    formats = request.config.run.export.formats
    conversion.check_installed(formats)
    path = choose(request)
    source = _Source(path, restore.step_of(path), versions.digest(path))
    root = request.model_dir / layout.EXPORT
    places = [versions.Version(root, name, source.step) for name in formats]
    with claim.claimed(root, note=console.say):
        for place in places:
            place.check_same(source.digest, request.config.run.limit_evaluation)
        missing = [place for place in places if place.facts() is None]
        served = [place for place in missing if place.format != pretrained.NAME]
        made = _make(request, source, served) if served else []
        made += [_pretrained(request, source, place) for place in missing if place not in served]
        kept = [_kept(place) for place in places if place not in missing]
    return _outcome(request, source, [*kept, *made])


def rehearse(request: Request) -> Outcome:
    """Restores the checkpoint and evaluates one batch; exports nothing."""
    conversion.check_installed(request.config.run.export.formats)
    path = str(choose(request))
    return Outcome(dry_run.rehearse(request, trains=False, evaluates=True, checkpoint=path))


def choose(request: Request) -> Path:
    """The checkpoint to export: the best one if there is one, unless the request names another.

    Raises:
        ConfigError: there is none, or the request names several.
    """
    model_dir, which = request.model_dir, request.checkpoint
    best = list(policies.of(request.config).best_folders)
    if not which and best and (path := checkpoint_files.latest(model_dir / best[0])):
        return path
    found = selection.select(model_dir, which or "latest", best=best)
    if not found:
        raise ConfigError(f"there is no checkpoint to export in {model_dir}")
    if len(found) > 1:
        names = text.some([path.name for path in found])
        raise ConfigError(f"--checkpoint={which} names {names}; an export is of one checkpoint")
    return found[0]


def _make(
    request: Request, source: _Source, places: Sequence[versions.Version]
) -> list[dict[str, Any]]:
    """Makes, scores and publishes these versions; their facts."""
    options, formats = request.config.run.export, [place.format for place in places]
    with _scratch(places[0].root) as scratch, contextlib.ExitStack() as processes:
        console.announce("building the model ...")
        experiment = _in_float32(request.config)
        made = _candidates(request, experiment, source, scratch)
        conversion.check_carries(formats, made.servable)
        console.say(
            f"exporting {source.path.name} (step {source.step:,}, {made.weights} weights) as "
            f"{', '.join(formats)}"
        )
        for line in limits.describe(experiment, trains=False, evaluates=True):
            console.say(line)
        made.make(formats, lambda: _training_data(request, experiment, made, source), processes)
        reference = made.reference(source.path)
        scored = {name: made.score(name, reference) for name in formats}
        reference = dataclasses.replace(reference, milliseconds=made.milliseconds())
        columns = [reference, *itertools.chain.from_iterable(scored.values())]
        console.say(gate.render(columns, options))
        shared = card.Export(
            request.config,
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
    request: Request, experiment: config.Experiment, source: _Source, scratch: Path
) -> candidates.Candidates:
    """What the formats are made of."""
    built = _restored(request, experiment, source, scratch)
    return candidates.Candidates(built, scratch, request.config.run.export, request.stop.check)


def _restored(
    request: Request, experiment: config.Experiment, source: _Source, scratch: Path
) -> evaluator.Evaluator:
    """The checkpoint in memory; on one device, whatever it was trained on."""
    given = Given(tf.distribute.get_strategy(), request.given.task)
    alone = dataclasses.replace(request, config=experiment, given=given)
    built = build.build_evaluator(alone, scratch)
    built.restore(source.path)
    return built


def _pretrained(request: Request, source: _Source, place: versions.Version) -> dict[str, Any]:
    """Publishes what other tasks may begin with; it answers nothing, so nothing is scored."""
    with _scratch(place.root) as scratch:
        built = _restored(request, request.config, source, scratch)
        folder = scratch / place.format
        with built.averages_in_force():
            found = pretrained.write(built.model, folder, source.step)
        facts = {
            "format": place.format,
            "accepted": True,
            "step": source.step,
            "checkpoint": str(source.path),
            "digest": source.digest,
            "weights": "averaged" if built.averages else "trained",
            "checkpoint_metrics": {},
            "bytes": versions.size(folder),
            **found,
        }
        files.write_json(folder / layout.EXPORT_FACTS, facts)
        path = place.publish(folder, accepted=True)
        console.say(f"{place.format}: {path} holds {', '.join(found['items'])}")
        return {**facts, "path": str(path)}


def _in_float32(experiment: config.Experiment) -> config.Experiment:
    """The same experiment, computing in float32: variables are float32 in any precision."""
    if experiment.runtime.mixed_precision_dtype in (None, "", "float32"):
        return experiment
    made = sections.unlocked(experiment)
    console.say(
        f"trained in {made.runtime.mixed_precision_dtype}; exported to compute in float32, and "
        "scored so"
    )
    made.runtime.mixed_precision_dtype = "float32"
    return made


def _training_data(
    request: Request,
    experiment: config.Experiment,
    made: candidates.Candidates,
    source: _Source,
) -> Iterable[Any]:
    """The batches that training would go on with after the checkpoint."""
    rows = history.History(request.model_dir / layout.HISTORY)
    data = build.training_inputs(experiment, made.task, source.step, rows, Determinism())
    return iter(data)


def _published(
    place: versions.Version, folder: Path, shared: card.Export, scored: Sequence[gate.Scored]
) -> dict[str, Any]:
    """Writes a version's card, and makes it appear; its facts."""
    facts = card.write(folder, shared, place.format, scored)
    path = place.publish(folder, accepted=facts["accepted"])
    console.say(f"{place.format}: {'' if facts['accepted'] else 'rejected, kept as '}{path}")
    return {**facts, "path": str(path)}


def _kept(place: versions.Version) -> dict[str, Any]:
    """The facts of a version that an earlier export has made."""
    console.say(f"{place.format}: {place.accepted} exists already, of the same checkpoint")
    return {**(place.facts() or {}), "path": str(place.accepted)}


def _outcome(request: Request, source: _Source, exports: Sequence[dict[str, Any]]) -> Outcome:
    rejected = [each for each in exports if not each["accepted"]]
    results: Results = {
        "status": "rejected" if rejected else "done",
        "step": source.step,
        "checkpoint": str(source.path),
        "metrics": next((m for each in exports if (m := each["checkpoint_metrics"])), {}),
        "exports": list(exports),
        "model_dir": str(request.model_dir),
        **({"limited": request.limits} if request.limits else {}),
    }
    if rejected:
        why = "; ".join(f"{each['format']}: {each['reason']}" for each in rejected)
        raise RejectedError(
            f"rejected: {why} (ExportConfig.tolerance = {request.config.run.export.tolerance:g})",
            results,
        )
    return Outcome(results)


@contextlib.contextmanager
def _scratch(root: Path) -> Iterator[Path]:
    """An empty folder, removed at the end; what a kill has left of an earlier one is removed."""
    folder = root / layout.UNFINISHED
    files.remove_folder(folder)
    files.make_folder(folder)
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            files.remove_folder(folder)
