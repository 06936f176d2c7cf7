"""URLs where a mode expects folders: each gets a local folder, and results name the URL again."""

import argparse
import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner.core import layout, signals
from runner.devices import cluster
from runner.errors import ConfigError, DifferError, RejectedError, RunnerError
from runner.runs.call import Call
from runner.storage import display_names, fetching, local_folders, manifest, places, urls

WRITES, LOOKS, READS = "writes", "looks", "reads"
EVALUATES, FOLLOWS = "evaluates", "follows"
"""What a mode does with a URL: it works there as a run does; it reads what tables and pages need,
or all that the run has; it also evaluates in a folder of its own, once or while the run goes on.
Another word is the name of the folder in it that the mode writes."""

_ON_WORKERS = ("multi_worker_mirrored", "parameter_server")


@contextlib.contextmanager
def local(mode: str, uses: str, call: Call) -> Iterator[Call]:
    """The call with local folders in place of URLs, while the block lasts.

    Args:
        mode: The mode's name.
        uses: What it does with a URL; empty: it takes none.
        call: Of the mode.

    Raises:
        ConfigError: a URL cannot be used, or its bucket refuses.
        RunnerError: a bucket does not answer, or does not have all in the end.
    """
    if call.output and urls.is_url(call.output):
        raise ConfigError(
            f"--output={urls.shown(call.output)}: must be a local file; what stays in the run's "
            "folder is copied with it"
        )
    with contextlib.ExitStack() as inside:
        members = [_read(inside, each, READS, "--runs") for each in call.runs]
        checkpoint = _checkpoint(inside, call.checkpoint)
        call = dataclasses.replace(call, runs=members, checkpoint=checkpoint)
        if not urls.is_url(call.model_dir):
            if url := _mirror(mode, uses, call):
                inside.enter_context(places.beside(call.model_dir, url, _ending(call)))
            with _errors_name_urls():
                yield call
            return
        url = urls.check(call.model_dir, "--model_dir=", writes=uses == WRITES)
        if not uses:
            raise ConfigError(f"--model_dir={urls.shown(url)}: {mode} needs a local folder")
        if mode == "report" and not call.output:
            raise ConfigError(f"--model_dir={urls.shown(url)}: give --output=FILE for the page")
        mirror = getattr(getattr(call.config, "run", None), "mirror", "")
        if mirror and urls.check(mirror, "RunConfig.mirror = ") != url:
            raise ConfigError(
                f"RunConfig.mirror is for a local --model_dir; {urls.shown(url)} is one already"
            )
        if _workers(call):
            check_shared(url)
        folder = _folder(inside, url, uses, call)
        task: Any = call.given.task
        if hasattr(task, "run_folder"):  # made by runner.fit; see task_contract
            task.run_folder = folder
        with _errors_name_urls():
            yield dataclasses.replace(call, model_dir=folder)


@contextlib.contextmanager
def together(given: argparse.Namespace, stop: signals.Stop) -> Iterator[argparse.Namespace]:
    """The flags of `--workers` with a local folder in place of a URL, while the block lasts.

    Workers of one machine share the folder, and their supervisor copies it.

    Raises:
        ConfigError: there are several machines; or as `local` does.
        RunnerError: as `local` does.
    """
    if not urls.is_url(given.model_dir):
        yield given
        return
    from runner.launch import elastic, rules

    url = urls.check(given.model_dir, "--model_dir=")
    if given.mode == "eval":
        raise ConfigError(f"--workers={given.workers}: eval with a URL is done by one process")
    if (found := elastic.machines(given)) and found.size > 1:
        check_shared(url)
    ending = places.Ending(stop, lambda folder: rules.Rules.of(folder).mirror_timeout)
    with places.written(url, ending) as folder:
        yield argparse.Namespace(**{**vars(given), "model_dir": str(folder)})


def check_shared(model_dir: str) -> None:
    """Raises if workers on several machines cannot share it."""
    if urls.is_url(model_dir):
        raise ConfigError(
            f"--model_dir={urls.shown(model_dir)}: workers on several machines need a folder that "
            "all of them see; RunConfig.mirror copies it to a bucket"
        )


@contextlib.contextmanager
def looked_at(folder: Path) -> Iterator[Path]:
    """A run's folder, or what a URL has of it but for weights."""
    with contextlib.ExitStack() as inside:
        copy = _read(inside, folder, LOOKS, "--model_dir")
        with _errors_name_urls():
            yield copy


def named(results: dict[str, Any]) -> dict[str, Any]:
    """Results with URLs in place of the local folders that stand for them."""

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: renamed(each) for name, each in value.items()}
        if isinstance(value, list):
            return [renamed(each) for each in value]
        return display_names.in_text(value) if isinstance(value, str) else value

    return dict(renamed(results))


def _mirror(mode: str, uses: str, call: Call) -> str:
    """The URL of `RunConfig.mirror`; empty where nothing is to be copied."""
    given = getattr(getattr(call.config, "run", None), "mirror", "")
    if not given or call.dry_run or (uses != WRITES and mode != "verify_resume"):
        return ""
    url = urls.check(given, "RunConfig.mirror = ")
    if (workers := _workers(call)) and not workers.is_chief:
        return ""
    if there := local_folders.copied_to(call.model_dir):  # by a supervisor
        if there == url:
            return ""
        raise ConfigError(f"RunConfig.mirror is for a local --model_dir; this one is {there}")
    if mode in ("study", "verify_resume"):
        instead = "give --model_dir that URL" if mode == "study" else "set it to ''"
        raise ConfigError(f"RunConfig.mirror copies one run; for {mode}, {instead}")
    return url


def _workers(call: Call) -> cluster.Cluster | None:
    """The cluster of a run on several workers."""
    runtime = getattr(call.config, "runtime", None)
    if runtime is None or runtime.distribution_strategy not in _ON_WORKERS:
        return None
    found = cluster.find(os.environ, runtime.worker_hosts, runtime.task_index)
    return found if found and found.size > 1 else None


def _folder(inside: contextlib.ExitStack, url: str, uses: str, call: Call) -> Path:
    if uses == layout.LOGGERS and places.has(url, layout.STUDY):  # it is its trials that log
        uses = WRITES
    if uses == WRITES and not call.dry_run:
        return inside.enter_context(places.written(url, _ending(call)))
    return _read(inside, Path(url), READS if call.dry_run else uses, "--model_dir", call)


def _read(
    inside: contextlib.ExitStack, path: Path, uses: str, where: str, call: Call | None = None
) -> Path:
    """A local copy of what a URL holds; a local path as it is."""
    if not urls.is_url(path):
        return path
    url = urls.check(path, f"{where}=", writes=False)
    part = _part(uses, call) if call else ""
    follows = uses == FOLLOWS and part != ""
    return inside.enter_context(
        places.read(
            url,
            wants=fetching.is_light if uses == LOOKS else _is_read,
            part=part,
            follows=follows or (uses == LOOKS and bool(call and call.watch)),
            ending=_ending(call) if call else None,
            before_removal=_hand_over if follows else lambda *_: None,
            may_be_new=follows or bool(call and call.dry_run),
            where=where,
        )
    )


def _checkpoint(inside: contextlib.ExitStack, given: str) -> str:
    """A path in place of the URL of a run's folder, or of a checkpoint in it."""
    if "://" not in given:
        return given
    folder, _, name = given.rstrip("/").rpartition("/")
    if name.startswith(f"{layout.CHECKPOINT_NAME}-"):
        return str(_read(inside, Path(folder), READS, "--checkpoint") / name)
    return str(_read(inside, Path(given), READS, "--checkpoint"))


def _part(uses: str, call: Call) -> str:
    """The folder in the run's that a mode writes."""
    if call.dry_run or uses in (WRITES, LOOKS, READS):
        return ""
    if uses not in (EVALUATES, FOLLOWS):
        return uses
    name = call.config.run.evaluator.name
    otherwise = "continuous" if uses == FOLLOWS else layout.TEST if call.data else "once"
    return layout.evaluator(Path(), name or otherwise).name


def _is_read(path: str) -> bool:
    """Whether a mode that uses checkpoints reads a file."""
    return not manifest.grows(path) or path.endswith((layout.HISTORY, layout.TRAINING_ROWS))


def _hand_over(folder: Path, path: Path) -> None:
    """Keeps a checkpoint that is about to be removed for an evaluator that evaluates each."""
    from runner.evaluation import handover

    handover.Handover(folder).hand_over(path)


def _ending(call: Call) -> places.Ending:
    run = getattr(call.config, "run", None)
    seconds = getattr(run, "mirror_timeout", places.TIMEOUT_SECONDS)
    return places.Ending(call.stop, lambda _: seconds)


@contextlib.contextmanager
def _errors_name_urls() -> Iterator[None]:
    """Inside, an error names URLs and not their copies, which may be gone when it is read."""
    try:
        yield
    except RunnerError as error:
        error.args = tuple(display_names.in_text(str(argument)) for argument in error.args)
        if isinstance(error, (DifferError, RejectedError)):
            error.results = named(error.results)
        raise
