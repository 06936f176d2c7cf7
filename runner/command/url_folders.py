"""Provides local directories for URLs, and restores the URLs in results."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.command.modes.mode import EVALUATES, FOLLOWS, LOOKS, READS, WRITES, Mode
from runner.core import layout, signals
from runner.devices import cluster
from runner.errors import ConfigError, DifferError, RejectedError, RunnerError
from runner.runs.call import Call
from runner.storage import display_names, urls

if TYPE_CHECKING:  # most commands have no URL and do not need it
    from runner.storage import places

_ON_WORKERS = ("multi_worker_mirrored", "parameter_server")


@contextlib.contextmanager
def local(mode: Mode, call: Call, options: Any) -> Iterator[tuple[Call, Any]]:
    """Yields the call and the options with local directories in place of URLs.

    Args:
        mode: The mode.
        call: The mode's arguments.
        options: The mode's options.

    Raises:
        ConfigError: a URL cannot be used, or its bucket denies access.
        RunnerError: a bucket does not respond, or does not have all files at the end.
    """
    output = getattr(options, "output", None)
    if output and urls.is_url(output):
        raise ConfigError(
            "{output}: must be a local file. Files in the run's directory are copied to its URL",
            output=urls.shown(output),
        )
    with contextlib.ExitStack() as inside:
        if runs := getattr(options, "runs", ()):
            members = [_read(inside, folder, READS, "--runs") for folder in runs]
            options = options.replace(runs=members)
        if "://" in (checkpoint := getattr(options, "checkpoint", "")):
            options = options.replace(checkpoint=_checkpoint(inside, checkpoint))
        if not urls.is_url(call.model_dir):
            if url := _mirror(mode, call, options):
                from runner.storage import places

                inside.enter_context(places.beside(call.model_dir, url, _ending(call)))
            with _errors_name_urls():
                yield call, options
            return
        url = urls.check(call.model_dir, "--model_dir=", writes=mode.url == WRITES)
        where = {"model_dir": urls.shown(url)}
        if not mode.url:
            raise ConfigError(f"{{model_dir}}: {mode.name} needs a local directory", **where)
        if mode.url_needs and not getattr(options, mode.url_needs):
            needed: dict[str, Any] = {mode.url_needs: None}
            raise ConfigError(f"{{model_dir}}: also pass {{{mode.url_needs}}}", **where, **needed)
        mirror = getattr(getattr(call.config, "run", None), "mirror", "")
        if mirror and urls.check(mirror, "RunConfig.mirror = ") != url:
            raise ConfigError(
                f"RunConfig.mirror needs a local --model_dir; {urls.shown(url)} is already a URL"
            )
        if _workers(call):
            check_shared(url)
        folder = _folder(inside, url, mode.url, call, options)
        task: Any = call.given.task
        if hasattr(task, "run_folder"):  # made by runner.fit (see task_contract)
            task.run_folder = folder
        with _errors_name_urls():
            yield dataclasses.replace(call, model_dir=folder), options


@contextlib.contextmanager
def together(mode: Mode, model_dir: str, options: Any, stop: signals.Stop) -> Iterator[str]:
    """Yields the directory of `--workers`, a local one in place of a URL.

    Workers of one machine share the directory, and their supervisor copies it.

    Raises:
        ConfigError: there are several machines, or as for `local`.
        RunnerError: as for `local`.
    """
    if not urls.is_url(model_dir):
        yield model_dir
        return
    from runner.launch import elastic, rules
    from runner.storage import places

    url = urls.check(model_dir, "--model_dir=")
    if mode.url != WRITES:
        raise ConfigError(
            f"--workers={options.workers}: {mode.name} with a URL runs in a single process"
        )
    if (found := elastic.machines(options)) and found.size > 1:
        check_shared(url)
    ending = places.Ending(stop, lambda folder: rules.Rules.of(folder).mirror_timeout)
    with places.written(url, ending) as folder:
        yield str(folder)


def check_shared(model_dir: str) -> None:
    """Raises ConfigError if workers on several machines cannot share the directory."""
    if urls.is_url(model_dir):
        raise ConfigError(
            f"--model_dir={urls.shown(model_dir)}: workers on several machines need a shared "
            "directory. RunConfig.mirror can copy it to a bucket"
        )


@contextlib.contextmanager
def looked_at(folder: Path) -> Iterator[Path]:
    """Yields a run's directory, or a local copy of a URL without the weights."""
    with contextlib.ExitStack() as inside:
        copy = _read(inside, folder, LOOKS, "--model_dir")
        with _errors_name_urls():
            yield copy


def named(results: dict[str, Any]) -> dict[str, Any]:
    """Replaces local directories in results with their URLs."""

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: renamed(each) for name, each in value.items()}
        if isinstance(value, list):
            return [renamed(each) for each in value]
        return display_names.in_text(value) if isinstance(value, str) else value

    return dict(renamed(results))


def _mirror(mode: Mode, call: Call, options: Any) -> str:
    """Returns the URL of `RunConfig.mirror`, or an empty text if there is nothing to copy."""
    given = getattr(getattr(call.config, "run", None), "mirror", "")
    if not given or options.dry_run or not (mode.url == WRITES or mode.instead_of_mirror):
        return ""
    url = urls.check(given, "RunConfig.mirror = ")
    if (workers := _workers(call)) and not workers.is_chief:
        return ""
    from runner.storage import local_folders

    if there := local_folders.copied_to(call.model_dir):  # by a supervisor
        if there == url:
            return ""
        raise ConfigError(f"RunConfig.mirror needs a local --model_dir, not a copy of {there}")
    if mode.instead_of_mirror:
        raise ConfigError(
            f"RunConfig.mirror copies one run; for {mode.name}, {mode.instead_of_mirror}"
        )
    return url


def _workers(call: Call) -> cluster.Cluster | None:
    """Returns the cluster of a run on several workers."""
    runtime = getattr(call.config, "runtime", None)
    if runtime is None or runtime.distribution_strategy not in _ON_WORKERS:
        return None
    found = cluster.find(os.environ, runtime.worker_hosts, runtime.task_index)
    return found if found and found.size > 1 else None


def _folder(inside: contextlib.ExitStack, url: str, uses: str, call: Call, options: Any) -> Path:
    from runner.storage import places

    if uses == layout.LOGGERS and places.has(url, layout.STUDY):  # because its trials log
        uses = WRITES
    is_dry = options.dry_run
    if uses == WRITES and not is_dry:
        return inside.enter_context(places.written(url, _ending(call)))
    part = "" if is_dry else _part(uses, call, options)
    uses = READS if is_dry else uses
    follows = bool(getattr(options, "watch", 0)) if uses == LOOKS else uses == FOLLOWS
    return _read(
        inside, Path(url), uses, "--model_dir", call, part=part, follows=follows, may_be_new=is_dry
    )


def _read(
    inside: contextlib.ExitStack,
    path: Path,
    uses: str,
    where: str,
    call: Call | None = None,
    *,
    part: str = "",
    follows: bool = False,
    may_be_new: bool = False,
) -> Path:
    """Returns a local copy of a URL's contents, or a local path unchanged."""
    if not urls.is_url(path):
        return path
    from runner.storage import fetching, places

    url = urls.check(path, f"{where}=", writes=False)
    hands_over = follows and part != ""
    return inside.enter_context(
        places.read(
            url,
            wants=fetching.is_light if uses == LOOKS else _is_read,
            part=part,
            follows=follows,
            ending=_ending(call) if call else None,
            before_removal=_hand_over if hands_over else lambda *_: None,
            may_be_new=hands_over or may_be_new,
            where=where,
        )
    )


def _checkpoint(inside: contextlib.ExitStack, given: str) -> str:
    """Returns a path in place of the URL of a run's directory, or of a checkpoint in it."""
    folder, _, name = given.rstrip("/").rpartition("/")
    if name.startswith(f"{layout.CHECKPOINT_NAME}-"):
        return str(_read(inside, Path(folder), READS, "--checkpoint") / name)
    return str(_read(inside, Path(given), READS, "--checkpoint"))


def _part(uses: str, call: Call, options: Any) -> str:
    """Returns the subdirectory of the run's that a mode writes."""
    if uses in (WRITES, LOOKS, READS):
        return ""
    if uses not in (EVALUATES, FOLLOWS):
        return uses
    name = call.config.run.evaluator.name
    otherwise = (
        "continuous" if uses == FOLLOWS else layout.TEST if getattr(options, "data", "") else "once"
    )
    return layout.evaluator(Path(), name or otherwise).name


def _is_read(path: str) -> bool:
    """Returns whether a mode that uses checkpoints reads a file."""
    from runner.storage import manifest

    return not manifest.grows(path) or path.endswith((layout.HISTORY, layout.TRAINING_ROWS))


def _hand_over(folder: Path, path: Path) -> None:
    """Hands off a checkpoint to evaluators of every checkpoint, before it is removed."""
    from runner.evaluation import handover

    handover.Handover(folder).hand_over(path)


def _ending(call: Call) -> "places.Ending":
    from runner.storage import places

    run = getattr(call.config, "run", None)
    seconds = getattr(run, "mirror_timeout", places.TIMEOUT_SECONDS)
    return places.Ending(call.stop, lambda _: seconds)


@contextlib.contextmanager
def _errors_name_urls() -> Iterator[None]:
    """Replaces local copies in errors with their URLs, because the copies may be gone later."""
    try:
        yield
    except RunnerError as error:
        error.args = tuple(display_names.in_text(str(argument)) for argument in error.args)
        if isinstance(error, (DifferError, RejectedError)):
            error.results = named(error.results)
        raise
