"""Compares contenders in processes that take turns."""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from scripts import processes, s3_server
from scripts.bench import rounds
from scripts.bench.comparison import Comparison, Ratio
from scripts.bench.memory import slope

_OTHERS = ("garden", "keras", "keras3")
_PROCESSES = 3  # whose memory is measured


def loop(options: argparse.Namespace) -> Iterator[Comparison]:
    """Compares training, as users start it, with a `tf.function`, Model Garden and Keras.

    Few rounds contain a checkpoint. `checkpoints` measures their cost.
    """
    for model in options.models:
        able = [name for name in ("runner", "bare", *_OTHERS) if _trains(name, model)]
        for steps in options.loops:
            case = {"model": model, "loop": steps, "seconds": options.seconds}
            results = rounds.in_sets("loops", able, options.repeats, **case)
            floor = (0.85, 0.9) if steps == 1 else (0.95, 1.0)
            ratios = (
                Ratio("runner", ("bare",), least=floor[0]),
                Ratio("runner", _OTHERS, least=floor[1]),
            )
            yield Comparison(f"{model}, {steps} a loop", "steps/s", results, ratios)


def _trains(name: str, model: str) -> bool:
    """Whether a contender can train a model. Keras 3 cannot train Model Garden's encoder."""
    return (name, model) != ("keras3", "bert")


def fit(options: argparse.Namespace) -> Iterator[Comparison]:
    """Compares `runner.fit` of the first model with a task written for it, and with Keras 2."""
    model, names = options.models[0], ("fit", "runner", "keras")
    for steps in options.loops:
        case = {"model": model, "loop": steps, "seconds": options.seconds}
        results = rounds.in_sets("loops", names, options.repeats, **case)
        ratios = (Ratio("fit", ("runner",), least=0.95), Ratio("fit", ("keras",), least=1.0))
        yield Comparison(f"{model}, {steps} a loop, runner.fit", "steps/s", results, ratios)


def graph(options: argparse.Namespace) -> Iterator[Comparison]:
    """Compares the training loop alone with a bare loop in the same process."""
    name = "side_by_side"
    for model in options.models:
        for steps in options.loops:
            case = {"model": model, "loop": steps}
            results = rounds.in_sets("loops", [name], options.repeats, **case)[name]
            what, ratio = f"{model}, {steps} a loop, one process", Ratio("runner", ("bare",))
            yield Comparison(what, "steps/s", rounds.transposed(results), [ratio])


def start(options: argparse.Namespace) -> Iterator[Comparison]:
    """Compares the time to the first step with that of a bare script."""
    model = options.models[0]
    seconds: rounds.Rounds = {"runner": [], "bare": []}
    for _ in range(options.repeats):
        seconds["runner"].append(_first_step_of_runner(model))
        seconds["bare"].append(_first_step_of_bare(model))
    yield Comparison(f"{model}, first step", "s", seconds, [Ratio("runner", ("bare",), most=0.85)])


def _first_step_of_runner(model: str) -> float:
    """Returns the command's time to its first step, whose row appears soon after it."""
    gin_file = Path(__file__).with_name("start.gin")
    flags = (f"--gin_file={gin_file}", f"--gin.StepConfig.model='{model}'")
    with tempfile.TemporaryDirectory() as folder:
        row = Path(folder) / "train.jsonl"
        command = processes.runner("train", *flags, f"--model_dir={folder}")
        began = time.perf_counter()
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            while not row.exists() or not row.stat().st_size:
                if process.poll():
                    sys.exit(f"{' '.join(command)} exited with {process.returncode}")
                time.sleep(0.001)
            return time.perf_counter() - began


def _first_step_of_bare(model: str) -> float:
    began = time.perf_counter()
    with rounds.Contender("loops", "bare") as contender:
        contender.begin(model=model, loop=1, seconds=0)
        contender.take()
        return time.perf_counter() - began


def checkpoints(options: argparse.Namespace) -> Iterator[Comparison]:
    """Compares a checkpoint's total cost, and how long it blocks, with a synchronous save."""
    ours, theirs = "save_by_runner", "save_synchronously"
    with rounds.contenders("stages", ours, theirs) as running:
        results = rounds.alternate(running, options.repeats)
    costs = rounds.transposed(results[ours])
    for what, most in (("stall", 0.1), ("in all", 0.7)):
        pair = {"runner": costs[what], "synchronous": results[theirs]}
        ratio = Ratio("runner", ("synchronous",), most=most)
        yield Comparison(f"23 M parameters, {what}", "s", pair, [ratio])


def guards(options: argparse.Namespace) -> Iterator[Comparison]:
    """Compares training with repeated steps, and with continuous saving, with training without.

    The small models take steps of a millisecond or less. The rounds of continuous saving are long,
    because each has several checkpoints.
    """
    for model in (*options.models, "wide"):
        case = {"model": model, "loop": 100, "seconds": options.seconds}
        results = rounds.in_sets("loops", ["runner", "rechecked"], options.repeats, **case)
        ratio = Ratio("rechecked", ("runner",), least=0.985)
        yield Comparison(f"{model}, every hundredth step repeated", "steps/s", results, [ratio])
    case = {"model": "wide", "loop": 1, "seconds": 100.0}
    with rounds.contenders("loops", "unsaved", "continuous") as running:
        results = rounds.alternate(running, options.repeats, **case)
    ratio = Ratio("continuous", ("unsaved",), least=0.98)
    yield Comparison("23 M parameters, continuous saving", "steps/s", results, [ratio])


def evaluation(options: argparse.Namespace) -> Iterator[Comparison]:
    """Compares evaluation with a `tf.function` over the same batches."""
    ours, theirs = "evaluate_by_runner", "evaluate_barely"
    for model in options.models:
        results = rounds.in_sets("stages", [ours, theirs], options.repeats, model=model)
        pair = {"runner": results[ours], "bare": results[theirs]}
        ratio = Ratio("runner", ("bare",), least=0.95)
        yield Comparison(f"{model}, evaluation", "examples/s", pair, [ratio])


def predict(options: argparse.Namespace) -> Iterator[Comparison]:
    """Compares predictions to a file, in each format, with `model(x)` for each batch."""
    ours, theirs = "predict_by_runner", "predict_barely"
    for model in options.models:
        for kind in ("npz", "parquet", "jsonl"):
            case = {"model": model, "kind": kind}
            results = rounds.in_sets("stages", [ours, theirs], options.repeats, **case)
            pair = {"runner": results[ours], "bare": results[theirs]}
            ratio = Ratio("runner", ("bare",), least=0.9)
            yield Comparison(f"{model}, predictions as {kind}", "examples/s", pair, [ratio])


def inputs(options: argparse.Namespace) -> Iterator[Comparison]:
    """Compares index-based inputs with a shuffle buffer. Also times the first batch."""
    with rounds.contenders("stages", "read_inputs") as running:
        (rates,) = rounds.alternate(running, options.repeats, batches=2000).values()
    ratio = Ratio("indexed", ("shuffle buffer",), least=1.0)
    yield Comparison("50,000 images", "batches/s", rounds.transposed(rates), [ratio])
    with rounds.contenders("stages", "begin_inputs") as running:
        (firsts,) = rounds.alternate(running, options.repeats, steps=[0, 10**6, 10**9]).values()
    yield Comparison("first batch of them", "s", rounds.transposed(firsts))


def memory(options: argparse.Namespace) -> Iterator[Comparison]:
    """Compares the growth of memory over evaluations with that of bare loops.

    By default, malloc has eight arenas per core, and threads allocate from different arenas over
    time, so memory grows for a long time in any program. With one arena, only real leaks remain.
    """
    for what, arenas in (("", {}), (", one arena of malloc", {"MALLOC_ARENA_MAX": "1"})):
        rises: rounds.Rounds = {"runner": [], "its error": [], "bare": []}
        for _ in range(_PROCESSES):
            rise, error = _slope("remember", options.evaluations, arenas)
            rises["runner"].append(rise)
            rises["its error"].append(error)
            rises["bare"].append(_slope("remember_barely", options.evaluations, arenas)[0])
        ratios = (
            Ratio("runner", ("its error",), most=2),  # a smaller rise may be noise
            Ratio("runner", ("bare",)),
        )
        yield Comparison(f"resident memory{what}", "KiB an evaluation", rises, ratios)


def _slope(name: str, count: int, environment: dict[str, str]) -> tuple[float, float]:
    """Returns the growth in KiB per evaluation, and its standard error."""
    values = rounds.once("stages", name, environment=environment, evaluations=count)
    rise, error = slope(values)
    return 1024 * rise, 1024 * error


def growth(options: argparse.Namespace) -> Iterator[Comparison]:
    """Times loading a history of 10,000 evaluations, and adding one evaluation to it."""
    few, many = 100, 10_000
    with rounds.contenders("stages", "keep_histories") as running:
        (results,) = rounds.alternate(running, options.repeats, lengths=[few, many]).values()
    short, long = (rounds.transposed(costs) for costs in zip(*results, strict=True))
    what = f"history of {many:,} evaluations, opened, at most 1"
    yield Comparison(what, "s of CPU", {"runner": long["open"]})
    names = (f"after {many:,}", f"after {few}")
    recorded = dict(zip(names, (long["record"], short["record"]), strict=True))
    ratio = Ratio(names[0], names[1:])
    yield Comparison("record of one more evaluation", "s of CPU", recorded, [ratio])


def mirror(options: argparse.Namespace) -> Iterator[Comparison]:
    """Compares training with and without a copy in a bucket.

    Rounds are long: each has several checkpoints, and a copy every ten seconds. The server uses one
    of this machine's cores. The CPU time of the copying threads is measured separately from the
    server's, because a server usually runs on another machine.
    """
    case = {"model": "cnn", "loop": 10, "seconds": max(20.0, options.seconds)}
    with s3_server.running() as server, tempfile.TemporaryDirectory() as folder:
        for where, url in (("S3", f"s3://{server.bucket}"), ("a directory", f"file://{folder}")):
            rates: rounds.Rounds = {"runner": [], "mirrored": []}
            shares: rounds.Rounds = {"mirrored": [], "its server": []}
            with (
                rounds.Contender("loops", "runner") as plain,
                rounds.Contender("loops", "mirrored", **server.environment) as copied,
            ):
                plain.begin(**case)
                plain.take()
                copied.begin(**case, url=url)
                copied.take()
                for _ in range(options.repeats):
                    rates["runner"].append(plain.round())
                    before, began = processes.cpu_seconds(server.pid), time.perf_counter()
                    measured = copied.round()
                    rates["mirrored"].append(measured["rate"])
                    shares["mirrored"].append(100 * measured["share"])
                    took = time.perf_counter() - began
                    used = processes.cpu_seconds(server.pid) - before
                    shares["its server"].append(100 * used / took)
                plain.end()
                copied.end()
            ratio = Ratio("mirrored", ("runner",), least=0.98)
            yield Comparison(f"cnn, copied to {where}", "steps/s", rates, [ratio])
            yield Comparison(f"CPU time of copying to {where}", "% of a core", shares)


def workers(options: argparse.Namespace) -> Iterator[Comparison]:
    """Compares two workers on loopback with a bare loop, and one worker with no strategy."""
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
                results = rounds.in_sets("workers", names, options.repeats, **case)
                ratio = Ratio(names[0], names[1:], least=0.97)
                yield Comparison(f"{model}, {steps} a loop, {what}", "steps/s", results, [ratio])
