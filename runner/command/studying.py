"""The implementation of `runner.study`: a study of a Keras model that a function builds.

Only the trials differ from `--mode=study`. Each one is a run of `runner.fit`, with the flags that a
trial of the command has, in this process or in a new one. The plan, the results and the files come
from `runner.studies`.
"""

import contextlib
import functools
import gc
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner import config, errors
from runner.command import (
    execution,
    exit_messages,
    fit_arguments,
    fit_data,
    fitting,
    from_python,
    table,
    typed,
    vary,
)
from runner.core import console, files, layout, signals, user_code
from runner.core.child import Child
from runner.devices import process_state
from runner.errors import ConfigError
from runner.models import examples
from runner.run_directory.run import Run
from runner.runs.call import Call
from runner.studies import places, space

_GIN = "--gin_file=supervised.gin"
_FINGERPRINTS = ("train_data", "validation_data")


class Fit(NamedTuple):
    """The arguments of `runner.fit` that all trials share.

    Attributes:
        build: The function that builds the model.
        train: The training data.
        validation: The evaluation data, or None.
        lengths: As for `fitting.fit`, like the remaining attributes.
    """

    build: Callable[..., Any]
    train: Any
    validation: Any
    lengths: Mapping[str, Any]
    compiled: Mapping[str, Any]
    gin_params: Sequence[str]
    options: Mapping[str, Any]


def study(
    fit: Fit, model_dir: Path, varies: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Implements `runner.study`.

    Args:
        fit: The arguments that all trials share.
        model_dir: The study's directory.
        varies: The values by name.
        settings: `seeds`, `trials`, `jobs`, `strategy` and `stopping`. None keeps the default.

    Raises:
        ConfigError: an argument is not valid.
        RunnerError: trials failed.
    """
    if not callable(fit.build) or hasattr(fit.build, "layers"):
        raise ConfigError(
            "runner.study: build_model is a function that returns a new compiled model: each trial "
            f"trains its own; got {type(fit.build).__name__}"
        )
    if not varies and settings["seeds"] is None and "StudyConfig" not in " ".join(fit.gin_params):
        raise ConfigError("runner.study: nothing varies: pass vary or seeds")
    names = vary.Names(fit.build, varies)
    trials = Trials(fit._replace(train=_read_once(fit.train, "train")), names)
    texts = names.texts(varies)
    mode = table.modes()["study"]
    arguments = {
        name: settings[name]
        for name in ("seeds", "trials", "jobs")
        if settings.get(name) is not None
    }
    if texts:
        arguments["vary"] = texts
    options = from_python.options_of(mode, {**arguments, "dry_run": fit.options.get("dry_run")})
    experiment = trials.whole(texts, settings, typed.values(options, arguments))
    _check_data(experiment, model_dir)
    in_process = settings["jobs"] == 1
    processes = _processes(trials, experiment.run.intra_op_threads)
    with (
        signals.served() as stop,
        contextlib.nullcontext(InProcess(trials)) if in_process else processes as place,
    ):
        call = Call(
            experiment, model_dir, arguments=[_GIN], stop=stop, place=place, trial=trials.load
        )
        results = execution.run(mode, call, options).results
    return _described(results, names, model_dir)


class Trials:
    """Configures and trains the trials.

    Args:
        fit: The arguments that they share.
        names: The names of what varies.
    """

    def __init__(self, fit: Fit, names: vary.Names) -> None:
        self._fit = fit
        self._names = names

    def whole(
        self,
        texts: Sequence[str],
        settings: Mapping[str, Any],
        flags: Mapping[str, tuple[str, Any]],
    ) -> config.Experiment:
        """Returns the study's configuration, with the first values.

        Args:
            texts: What varies, as for `--vary`.
            settings: Of the study.
            flags: The values that its options set, as for `config.load`.
        """
        parameters = space.parse(texts)
        first: Mapping[str, Any] = next(space.probes(parameters), {})
        values = {"stopping": settings.get("stopping"), "strategy": settings.get("strategy")}
        if not values["strategy"] and any(each.kind != "list" for each in parameters):
            judged = self._fit.validation is not None and not values["stopping"]
            values["strategy"] = "tpe" if judged else "random"
        own = [f"StudyConfig.{name} = {value!r}" for name, value in values.items() if value]
        bindings = [*own, *map(_binding, first.items())]
        return self._prepared(bindings, [], Path(), flags).experiment

    def load(self, gin_params: Sequence[str], overrides: Sequence[str]) -> config.Experiment:
        """Returns the configuration of a trial with these values."""
        return self._prepared(gin_params, overrides, Path()).experiment

    def run(self, flags: Sequence[str]) -> dict[str, Any]:
        """Trains or tests a trial, and returns the results.

        Args:
            flags: Of the trial's command.
        """
        given: dict[str, list[str]] = {}
        for flag in flags:
            name, _, value = flag.removeprefix("--").partition("=")
            given.setdefault(name, []).append(value)
        (folder,), (mode,) = given["model_dir"], given["mode"]
        with errors.in_python(), process_state.restored():
            ready = self._prepared(
                given.get("gin_params", []), given.get("params_override", []), Path(folder)
            )
            own = {"data": given["data"][0]} if "data" in given else self._fit.options
            return fitting.started(
                ready, ready.mode if table.modes()[mode].is_training else mode, Path(folder), own
            ).results

    def _prepared(
        self,
        gin_params: Sequence[str],
        overrides: Sequence[str],
        folder: Path,
        flags: Mapping[str, tuple[str, Any]] | None = None,
    ) -> fitting.Prepared:
        arguments, bindings = self._names.split(gin_params)
        build = functools.wraps(self._fit.build)(functools.partial(self._fit.build, **arguments))
        recorded = [f"task.model.arguments={json.dumps(arguments)}"] if arguments else []
        return fitting.prepared(
            build,
            fit_arguments.Data(self._fit.train, self._fit.validation),
            folder if folder.name else "",
            lengths=fit_arguments.Lengths(**self._fit.lengths),
            keras=fit_arguments.OfKeras(),
            compiled=self._fit.compiled,
            gin_params=["RunConfig.study = @StudyConfig()", *self._fit.gin_params, *bindings],
            options=self._fit.options,
            overrides=[*recorded, *overrides],
            flags=flags,
            menus=True,
        )


class InProcess:
    """Runs one trial at a time, in this process. It implements `places.Place`.

    Args:
        trials: Trains them.

    Attributes:
        forks: Whether trials are forked: no.
    """

    def __init__(self, trials: Trials) -> None:
        self.forks = False
        self._trials = trials

    def room(self, jobs: int, trials: int) -> places.Room:  # noqa: ARG002
        """Returns the capacity of a process: one trial."""
        return places.Room(1, 0)

    def has_memory(self, jobs: Sequence[places.Job]) -> bool:
        """Returns whether no other trial runs."""
        return not jobs

    def start(self, arguments: Sequence[str], output: Path, gpu: str | None) -> Child:  # noqa: ARG002
        """Runs a trial to its end."""
        output.write_bytes(b"")
        console.end()
        return _Ended(functools.partial(self._trials.run, arguments), output)


class Processes(places.Here):
    """Runs each trial in a new process.

    Args:
        trials: The file with the pickled trials.
        threads: `RunConfig.intra_op_threads` of the study.
    """

    def __init__(self, trials: Path, threads: int) -> None:
        super().__init__()
        self.forks = False
        self._trials = trials
        self._threads = threads

    def start(self, arguments: Sequence[str], output: Path, gpu: str | None) -> Child:
        """Starts a trial."""
        output.write_bytes(b"")
        own = re.search(r"\brun\.intra_op_threads=(\d+)", " ".join(arguments))
        threads = own[1] if own else str(self._threads)
        paths = [each or str(Path.cwd()) for each in sys.path]
        visible = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
        command = [sys.executable, "-m", "runner.command.trial_process"]
        return Child(
            [*command, str(self._trials), threads, *arguments],
            environment={"PYTHONPATH": os.pathsep.join(paths), **visible},
            log=output,
        )


@contextlib.contextmanager
def _processes(trials: Trials, threads: int) -> Iterator[Processes]:
    """Provides a `Processes`, with a copy of what the trials need in a temporary file.

    Raises:
        ConfigError: it cannot be copied to another process.
    """
    import cloudpickle

    with tempfile.TemporaryDirectory(prefix="runner-") as folder:
        file = Path(folder, "trials.pickle")
        try:
            file.write_bytes(cloudpickle.dumps(trials))
        except Exception as error:  # the user's objects may raise anything
            raise ConfigError(
                "{jobs}: the function and the data cannot be copied to other processes "
                f"({user_code.summary(error)}). Pass data as arrays or as the path of an .npz, and "
                "create other objects inside the function, or pass jobs=1",
                jobs=None,
            ) from error
        yield Processes(file, threads)


def exit_code(train: Callable[[], dict[str, Any]], folder: Path) -> int:
    """Runs a trial, prints its results as the command does, and returns its exit code.

    Args:
        train: Runs it and returns its results.
        folder: Its directory.
    """
    ending = exit_messages.Ending(folder)
    try:
        ending.results(train())
    except (Exception, signals.Interrupted) as error:  # as the command does
        return ending.failed(error)
    return 0


class _Ended(Child):
    """A trial that has run in this process.

    Args:
        train: Runs it and returns its results.
        log: The file for its output.
    """

    def __init__(self, train: Callable[[], dict[str, Any]], log: Path) -> None:
        self._train = train
        self._code = 0
        super().__init__([], log=log)

    def _start(self, command: Sequence[str], **_: Any) -> None:  # noqa: ARG002
        assert self.log is not None
        with (
            self.log.open("a", encoding="utf-8", buffering=1) as output,
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
        ):
            self._code = exit_code(self._train, self.log.parent)
        gc.collect()  # the model of the trial

    @property
    def pid(self) -> int:
        """That of this process."""
        return os.getpid()

    @property
    def code(self) -> int:
        """The exit code of the same command."""
        return self._code

    def wait(self, seconds: float | None = None) -> int:  # noqa: ARG002
        """Returns the exit code."""
        return self._code


def _binding(value: tuple[str, Any]) -> str:
    return space.gin(*value)


def _read_once(data: Any, name: str) -> Any:
    """Reads arrays and files. A dataset is read again for each trial."""
    if isinstance(data, tuple) and isinstance(data[0], str | Path):
        return data  # the form of its columns depends on the model
    found = fit_data.part(data, name, None)
    return found if isinstance(found, examples.Arrays) else data


def _check_data(experiment: config.Experiment, model_dir: Path) -> None:
    """Raises ConfigError if trials were trained on other data."""
    own = experiment.task.as_dict()
    for folder in layout.trials(model_dir) if model_dir.is_dir() else ():
        known = (Run(folder, strict=False).params or {}).get("task") or {}
        for part in _FINGERPRINTS:
            before = (known.get(part) or {}).get("fingerprint")
            if before and before != own[part]["fingerprint"]:
                raise ConfigError(
                    f"runner.study: the {part.removesuffix('_data')} data have changed since "
                    f"{folder} was trained: pass the original data, or start a new study in "
                    "another {model_dir}",
                    model_dir=None,
                )


def _described(results: dict[str, Any], names: vary.Names, model_dir: Path) -> dict[str, Any]:
    """Adds the table of configurations, and restores the names that the user wrote."""
    found = files.read_json(model_dir / layout.STUDY) or {}
    if isinstance(counts := results["trials"], Mapping):
        results = {**results, "trials": {str(state): count for state, count in counts.items()}}
    if best := results.get("best"):
        results = {**results, "best": {**best, "parameters": names.shortened(best["parameters"])}}
    if "best" not in results:  # nothing was trained
        return results
    trials = {int(each.name.partition("-")[0]): str(each) for each in layout.trials(model_dir)}
    at = "best" if found["objective"]["metric"] else "last"
    rows = [
        {
            "parameters": names.shortened(each["parameters"]),
            "finished": each["finished"],
            "metrics": {name: spread["mean"] for name, spread in each[at].items()},
            "intervals": {
                name: None if spread["low"] is None else [spread["low"], spread["high"]]
                for name, spread in each[at].items()
            },
            "trials": [trials[number] for number in each["trials"]],
        }
        for each in found["configurations"]
    ]
    return {**results, "configurations": rows}
