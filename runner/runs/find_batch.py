"""`--mode=find_batch`: finds the batch size that fits in memory, and the speed of each size.

Each size is tried in a separate process, so that its memory can be measured. A size that runs out
of memory ends only its own process.
"""

import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner.core import console, files, text
from runner.devices import memory
from runner.errors import ConfigError, RunnerError
from runner.reporting import table
from runner.run_directory.verification import child_run
from runner.runs import batch_trial
from runner.runs.call import Call

Trial = dict[str, Any]
"""The result of `batch_trial.measure`."""

_AS_FAST = 0.95  # of the fastest, above which a larger batch is not worth its memory
_PACE = "examples_per_second"


def find_batch(call: Call, output: Path | None = None, *, dry_run: bool = False) -> dict[str, Any]:
    """Doubles the global batch until it does not fit, or is no faster.

    If only one size is allowed (`first` = `largest`), it is tried in this process.

    Args:
        call: The call of the mode.
        output: A .json file for the results, or None.
        dry_run: Try the first size alone.

    Returns:
        For JSON: the trials, why the search `ended`, the `largest` and the `fastest` size that fit,
        and as `suggestion` the smallest that is about as fast as the fastest.

    Raises:
        ConfigError: the training data have no batch size, or no batch of the first one.
        RunnerError: not even the first size fits, or training fails for another reason.
    """
    options = call.config.run.find_batch
    first = options.first or getattr(call.config.task.train_data, "global_batch_size", 0)
    if first < 1:
        raise ConfigError("task.train_data has no global_batch_size, which find_batch would change")
    if dry_run or first == options.largest:
        trials, ended = [batch_trial.measure(call, first)], "only one size was requested"
    else:
        trials, ended = _search(call, first)
    found = {"status": "rehearsed" if dry_run else "done", **_summary(trials, ended)}
    if output is not None and not dry_run:
        files.write_json(output, found)
    return found


def _search(call: Call, first: int) -> tuple[list[Trial], str]:
    """Returns the trials from the first size on, and why the search ended."""
    options = call.config.run.find_batch
    trials: list[Trial] = []
    with tempfile.TemporaryDirectory(prefix="runner-") as scratch:
        for size in _sizes(first):
            if ended := _past(call, size):
                break
            console.announce(f"trying batches of {size:,} ...")
            trial = _try(call, size, Path(scratch) / f"batch-{size}")
            trials.append(trial)
            console.say(_line(trial))
            if not trial["fits"]:
                ended = f"batches of {size:,} do not fit: {trial['reason']}"
                break
            if options.patience and _stagnates(trials, options.gain, options.patience):
                ended = f"the last {options.patience} sizes were no faster (FindBatchConfig.gain)"
                break
    if not trials or not trials[0]["fits"]:
        raise RunnerError(f"{ended}\nbegin with a smaller size: FindBatchConfig.first")
    console.say(_table(trials, _summary(trials, ended)))
    return trials, ended


def _sizes(first: int) -> Iterator[int]:
    while True:
        yield first
        first *= 2


def _past(call: Call, size: int) -> str:
    """Returns why a size is not tried, or an empty text if it is."""
    most = call.config.run.find_batch.largest
    if most and size > most:
        return f"FindBatchConfig.largest = {most:,}"
    count = getattr(call.config.task.train_data, "size", None)
    examples = count() if callable(count) else None
    if examples and size > examples:
        return f"there are {examples:,} training examples"
    return ""


def _try(call: Call, size: int, place: Path) -> Trial:
    """Tries a size in a separate process."""
    most = call.config.run.find_batch.memory_gb
    command = [sys.executable, "-m", "runner", "--mode=find_batch", *call.loaded_from()]
    command.append(f"--params_override=run.find_batch.first={size},run.find_batch.largest={size}")
    temporary = {"TMPDIR": str(place.parent)}  # a killed process may leave files there
    with child_run.start(command, place, environment=temporary) as child:
        if most and child.wait_until(lambda: memory.held(child.pid) > most * 1e9):
            reason = f"it takes more than FindBatchConfig.memory_gb = {most:g}"
            return {"global_batch_size": size, "fits": False, "reason": reason}
        try:
            trial: Trial = child.results()["trials"][0]
        except RunnerError as error:
            code = child.wait()
            if code == -signal.SIGKILL:
                reason = "killed by the system, as it does when memory runs out"
            elif code == -signal.SIGABRT and "bad_alloc" in "\n".join(child.lines()):
                reason = "out of memory"
            elif code == ConfigError.exit_code:
                reason = child.reason()
            else:
                raise RunnerError(f"batches of {size:,}: {error}") from error
            return {"global_batch_size": size, "fits": False, "reason": reason}
    return trial


def _stagnates(trials: list[Trial], gain: float, patience: int) -> bool:
    """Returns whether none of the last sizes was faster, by `gain`, than all before it."""
    paces = [trial[_PACE] for trial in trials]
    earlier = paces[:-patience]
    return bool(earlier) and max(paces[-patience:]) < (1 + gain) * max(earlier)


def _summary(trials: list[Trial], ended: str) -> dict[str, Any]:
    fitting = [trial for trial in trials if trial["fits"]]
    best = max((trial[_PACE] for trial in fitting), default=0.0)
    sizes = [trial["global_batch_size"] for trial in fitting]
    as_fast = [trial["global_batch_size"] for trial in fitting if trial[_PACE] >= _AS_FAST * best]
    fastest = [trial["global_batch_size"] for trial in fitting if trial[_PACE] == best]
    return {
        "suggestion": min(as_fast, default=None),
        "fastest": min(fastest, default=None),
        "largest": max(sizes, default=None),
        "ended": ended,
        "trials": trials,
    }


def _line(trial: Trial) -> str:
    size = f"global_batch_size {trial['global_batch_size']:,}"
    if not trial["fits"]:
        return f"{size}: {trial['reason']}"
    return f"{size}: {trial[_PACE]:,.0f} examples/s, {text.size(trial['peak_memory_bytes'])}"


def _table(trials: list[Trial], summary: dict[str, Any]) -> str:
    head = ("global batch size", "examples/s", "ms a step", "peak memory")
    rows = [
        (
            f"{trial['global_batch_size']:,}",
            f"{trial[_PACE]:,.0f}",
            f"{1000 * trial['seconds_per_step']:.2f}",
            text.size(trial["peak_memory_bytes"]),
        )
        if trial["fits"]
        else (f"{trial['global_batch_size']:,}", "-", "-", "does not fit")
        for trial in trials
    ]
    lines = table.aligned([head, *rows], left=0)
    return "\n".join(
        [
            *lines,
            f"largest that fits: {summary['largest']:,}; fastest: {summary['fastest']:,}; "
            f"suggestion: {summary['suggestion']:,}, the smallest that is about as fast",
            f"ended: {summary['ended']}",
        ]
    )
