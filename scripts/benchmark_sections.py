"""The sections of `benchmark.py`: what each process measures, and what is compared."""

import contextlib
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import benchmark_memory as memory
import benchmark_restarts
import benchmark_rounds as rounds
import benchmark_runs
import benchmark_studies
import s3_server
from benchmark_figures import Comparison, Ratio

_OTHERS = ("garden", "keras", "keras3")
_SETS = 3  # of processes: two processes of the same program differ by 1 or 2 %


@dataclasses.dataclass(frozen=True)
class Options:
    """What is measured, and how often.

    Attributes:
        models: Networks of `benchmark_task.MODELS`.
        loops: Steps per inner loop.
        repeats: Rounds of each measurement, in each set of processes.
        seconds: The minimum duration of a round of training.
        evaluations: How many the memory section runs.
    """

    models: Sequence[str]
    loops: Sequence[int]
    repeats: int
    seconds: float
    evaluations: int


Section = Callable[[Options], Iterator[Comparison]]


def loop(options: Options) -> Iterator[Comparison]:
    """Training, at each length of the inner loop."""
    for model in options.models:
        able = [name for name in ("runner", "bare", *_OTHERS) if _trains(name, model)]
        for steps in options.loops:
            case = {"model": model, "loop": steps, "seconds": options.seconds}
            found = _sets("contenders.py", able, options.repeats, **case)
            floor = (0.85, 0.9) if steps == 1 else (0.95, 1.0)
            ratios = (
                Ratio("runner", ("bare",), least=floor[0]),
                Ratio("runner", _OTHERS, least=floor[1]),
            )
            yield Comparison(f"{model}, {steps} a loop", "steps/s", found, ratios)


def fit(options: Options) -> Iterator[Comparison]:
    """`runner.fit`, beside a task written for the model, and beside Keras 2."""
    model, able = options.models[0], ("fit", "runner", "keras")
    for steps in options.loops:
        case = {"model": model, "loop": steps, "seconds": options.seconds}
        found = _sets("contenders.py", able, options.repeats, **case)
        ratios = (Ratio("fit", ("runner",), least=0.95), Ratio("fit", ("keras",), least=1.0))
        yield Comparison(f"{model}, {steps} a loop, runner.fit", "steps/s", found, ratios)


def graph(options: Options) -> Iterator[Comparison]:
    """Only the loop, beside the bare one in the same process."""
    name = "side_by_side"
    for model in options.models:
        for steps in options.loops:
            found = _sets("contenders.py", [name], options.repeats, model=model, loop=steps)[name]
            pair = {who: [each[who] for each in found] for who in ("runner", "bare")}
            ratio = Ratio("runner", ("bare",))
            yield Comparison(f"{model}, {steps} a loop, one process", "steps/s", pair, [ratio])


def start(options: Options) -> Iterator[Comparison]:
    """From the start of a process to the end of its first step, and to the end of `--help`."""
    model = options.models[0]
    found: rounds.Rounds = {"runner": [], "bare": []}
    for _ in range(options.repeats):
        found["runner"].append(_first_step_of_runner(model))
        found["bare"].append(_first_step_of_bare(model))
    yield Comparison(f"{model}, first step", "s", found, [Ratio("runner", ("bare",), most=1.1)])
    helps = [_seconds_of_help() for _ in range(options.repeats)]
    yield Comparison("`runner --help`, at most 0.3", "s", {"runner": helps})


def checkpoints(options: Options) -> Iterator[Comparison]:
    """The cost of a commit to training."""
    ours, theirs = "save_by_runner", "save_synchronously"
    with _processes("benchmark_stages.py", ours, theirs) as contenders:
        found = rounds.alternate(contenders, options.repeats)
    for what, most in (("stall", 0.1), ("in all", None)):
        pair = {"runner": [each[what] for each in found[ours]], "synchronous": found[theirs]}
        ratio = Ratio("runner", ("synchronous",), most=most)
        yield Comparison(f"23 M parameters, {what}", "s", pair, [ratio])


def evaluation(options: Options) -> Iterator[Comparison]:
    """Evaluating many batches."""
    ours, theirs = "evaluate_by_runner", "evaluate_barely"
    for model in options.models:
        found = _sets("benchmark_stages.py", [ours, theirs], options.repeats, model=model)
        pair = {"runner": found[ours], "bare": found[theirs]}
        ratio = Ratio("runner", ("bare",), least=0.95)
        yield Comparison(f"{model}, evaluation", "examples/s", pair, [ratio])


def predict(options: Options) -> Iterator[Comparison]:
    """Predicting many batches, into a file of each format."""
    ours, theirs = "predict_by_runner", "predict_barely"
    for model in options.models:
        for kind in ("npz", "parquet", "jsonl"):
            case = {"model": model, "kind": kind}
            found = _sets("benchmark_stages.py", [ours, theirs], options.repeats, **case)
            pair = {"runner": found[ours], "bare": found[theirs]}
            ratio = Ratio("runner", ("bare",), least=0.9)
            yield Comparison(f"{model}, predictions as {kind}", "examples/s", pair, [ratio])


def inputs(options: Options) -> Iterator[Comparison]:
    """Reading batches of 128 images."""
    with _processes("benchmark_stages.py", "read_inputs") as contenders:
        found = rounds.alternate(contenders, options.repeats, batches=2000)["read_inputs"]
    pair = {name: [each[name] for each in found] for name in found[0]}
    ratio = Ratio("placed", ("shuffle buffer",), least=1.0)
    yield Comparison("50,000 images", "batches/s", pair, [ratio])


def resident(options: Options) -> Iterator[Comparison]:
    """The growth of memory with evaluations, with four loops per evaluation.

    By default malloc has eight arenas per core, and threads allocate from different ones over time,
    so memory grows for a long time in any program. With one arena, only real leaks remain.
    """
    for what, arenas in (("", {}), (", one arena of malloc", {"MALLOC_ARENA_MAX": "1"})):
        found: rounds.Rounds = {"runner": [], "its error": [], "bare": []}
        for _ in range(_SETS):
            rise, error = _slope("remember", options.evaluations, arenas)
            found["runner"].append(rise)
            found["its error"].append(error)
            found["bare"].append(_slope("remember_barely", options.evaluations, arenas)[0])
        ratios = (
            Ratio("runner", ("its error",), most=2),  # less may be noise
            Ratio("runner", ("bare",)),
        )
        yield Comparison(f"resident memory{what}", "KiB an evaluation", found, ratios)


def _slope(name: str, count: int, environment: dict[str, str]) -> tuple[float, float]:
    """KiB per evaluation, and the standard error."""
    with rounds.Contender("benchmark_stages.py", name, **environment) as contender:
        contender.begin(evaluations=count)
        rise, error = memory.slope(contender.take())
    return 1024 * rise, 1024 * error


def growth(options: Options) -> Iterator[Comparison]:
    """The cost of a history of 10,000 evaluations, at the start and per evaluation."""
    few, many = 100, 10_000
    with _processes("benchmark_stages.py", "keep_ledgers") as contenders:
        found = rounds.alternate(contenders, options.repeats, lengths=[few, many])["keep_ledgers"]
    opened = {"runner": [each["open"] for _, each in found]}
    yield Comparison(f"history of {many:,} evaluations, opened, at most 1", "s of CPU", opened)
    names = (f"after {many:,}", f"after {few}")
    recorded = {
        names[0]: [b["record"] for _, b in found],
        names[1]: [a["record"] for a, _ in found],
    }
    ratio = Ratio(names[0], names[1:])
    yield Comparison("record of one more evaluation", "s of CPU", recorded, [ratio])


def studies(options: Options) -> Iterator[Comparison]:
    """Eight seeds beside one run, a study's own time, and opening one with many trials."""
    count = max(options.repeats // 3, 1)
    times = [benchmark_studies.seeds() for _ in range(count)]
    pair = {name: [each[name] for each in times] for name in ("eight", "one")}
    ratio = Ratio("eight", ("one",), most=3)
    yield Comparison("eight seeds of digits.gin on two cores, one command", "s", pair, [ratio])
    for name, what in (
        ("overhead", "a study's own time a trial, at most 0.2"),
        ("opening", "1,000 finished trials opened, at most 2"),
    ):
        found = [benchmark_studies.measured(name)["seconds"] for _ in range(count)]
        yield Comparison(what, "s", {"runner": found})


def runs(options: Options) -> Iterator[Comparison]:
    """The table of many runs: with nothing remembered of them, and again."""
    for count, most in ((1000, 1), (10_000, 5)):
        found = benchmark_runs.many(count, rounds=max(options.repeats // 3, 1))
        yield Comparison(f"--mode=runs over {count:,} folders, at most {most}", "s", found)


def restarts(options: Options) -> Iterator[Comparison]:
    """What faults cost a run on two workers of this machine."""
    count = max(options.repeats // 3, 1)
    for what, measure in (
        ("a worker killed -9, until it trains again, at most 30", benchmark_restarts.after_a_kill),
        ("SIGTERM to all of two workers, until saved, at most 3", benchmark_restarts.stopped),
    ):
        times = [measure() for _ in range(count)]
        found = {name.partition(": ")[2]: [each[name] for each in times] for name in times[0]}
        yield Comparison(what, "s", found)


def mirror(options: Options) -> Iterator[Comparison]:
    """Training that is copied to a bucket, whose server has one of this machine's cores.

    Rounds are long: each has several checkpoints, and a copy every ten seconds. The CPU time of
    what copies is measured apart from the server's, which is elsewhere otherwise.
    """
    case = {"model": "cnn", "loop": 10, "seconds": max(20.0, options.seconds)}
    with s3_server.running() as server, tempfile.TemporaryDirectory() as folder:
        for where, url in (("S3", f"s3://{server.bucket}"), ("a folder", f"file://{folder}")):
            found: rounds.Rounds = {"runner": [], "mirrored": []}
            shares: rounds.Rounds = {"mirrored": [], "its server": []}
            with (
                rounds.Contender("contenders.py", "runner") as plain,
                rounds.Contender("contenders.py", "mirrored", **server.environment) as copied,
            ):
                plain.begin(**case)
                plain.take()
                copied.begin(**case, url=url)
                copied.take()
                for _ in range(options.repeats):
                    found["runner"].append(plain.round())
                    before, began = server.cpu_seconds(), time.perf_counter()
                    measured = copied.round()
                    found["mirrored"].append(measured["rate"])
                    shares["mirrored"].append(100 * measured["share"])
                    took = time.perf_counter() - began
                    shares["its server"].append(100 * (server.cpu_seconds() - before) / took)
                plain.end()
                copied.end()
            ratio = Ratio("mirrored", ("runner",), least=0.98)
            yield Comparison(f"cnn, copied to {where}", "steps/s", found, [ratio])
            yield Comparison(f"CPU time of copying to {where}", "% of a core", shares)


def workers(options: Options) -> Iterator[Comparison]:
    """Two workers on loopback beside a bare loop of the same step, and what the strategy costs."""
    for model in options.models:
        if model == "bert":
            continue
        for steps in options.loops:
            if steps == 1:
                continue
            case = {"model": model, "loop": steps, "seconds": options.seconds}
            for names, what in (
                (("runner", "bare"), "two workers"),
                (("one_worker", "no_strategy"), "one worker under the strategy"),
            ):
                found = _sets("benchmark_workers.py", names, options.repeats, **case)
                ratio = Ratio(names[0], names[1:], least=0.97)
                yield Comparison(f"{model}, {steps} a loop, {what}", "steps/s", found, [ratio])


SECTIONS: dict[str, Section] = {
    "loop": loop,
    "fit": fit,
    "graph": graph,
    "start": start,
    "checkpoints": checkpoints,
    "evaluation": evaluation,
    "predict": predict,
    "inputs": inputs,
    "memory": resident,
    "growth": growth,
    "studies": studies,
    "runs": runs,
    "restarts": restarts,
    "mirror": mirror,
    "workers": workers,
}


def _sets(script: str, names: Sequence[str], repeats: int, **case: Any) -> rounds.Rounds:
    """The rounds of several sets of new processes."""
    found: rounds.Rounds = {name: [] for name in names}
    for _ in range(_SETS):
        with _processes(script, *names) as contenders:
            for name, more in rounds.alternate(contenders, repeats, **case).items():
                found[name] += more
    return found


@contextlib.contextmanager
def _processes(script: str, *names: str) -> Iterator[dict[str, rounds.Contender]]:
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(rounds.Contender(script, name)) for name in names}


def _trains(name: str, model: str) -> bool:
    """Whether a contender can train a model: Model Garden's encoder is not for Keras 3."""
    return (name, model) != ("keras3", "bert")


def _first_step_of_runner(model: str) -> float:
    """The command's time to its first step; the step's row appears soon after it."""
    scripts = Path(__file__).parent
    command = [sys.executable, "-m", "runner", "--mode=train"]
    command += [
        f"--gin_file={scripts / 'benchmark_start.gin'}",
        f"--gin.StepConfig.model='{model}'",
    ]
    with tempfile.TemporaryDirectory() as folder:
        row = Path(folder) / "train.jsonl"
        start = time.perf_counter()
        with subprocess.Popen(
            [*command, f"--model_dir={folder}"],
            env={**os.environ, "PYTHONPATH": str(scripts)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            while not row.exists() or not row.stat().st_size:
                if process.poll():
                    sys.exit(f"{' '.join(command)} exited with {process.returncode}")
                time.sleep(0.001)
            return time.perf_counter() - start


def _first_step_of_bare(model: str) -> float:
    start = time.perf_counter()
    with rounds.Contender("contenders.py", "bare") as contender:
        contender.begin(model=model, loop=1, seconds=0)
        contender.take()
        return time.perf_counter() - start


def _seconds_of_help() -> float:
    start = time.perf_counter()
    command = [sys.executable, "-m", "runner", "--help"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start
