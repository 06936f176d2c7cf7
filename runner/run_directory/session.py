"""The configuration, record and status that an attempt writes to its directory."""

import contextlib
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple, Self

from runner import config
from runner.configuration import gin_export, multitask, printing, registry
from runner.core import console, files, layout, secrets, signals, user_code
from runner.errors import ConfigError, LostError
from runner.run_directory import claim, config_change, data_files, provenance, spent, status
from runner.run_directory.run import reached
from runner.run_directory.state import State
from runner.storage import display_names


class Session:
    """One attempt of a training run or an evaluator, in its directory.

        with session.Session(folder, experiment, command, stop=stop) as start:
            start.begin()
            ...  # build the model, restore the weights
            start.accept()
            ...  # train
            start.end(State.DONE, step)

    However the attempt ends, run.json and a training run's status.json record it. The exception
    is an attempt that finds an error in its configuration before it is accepted. Such an attempt is
    not part of the run: status.json stays unchanged, and a run's first attempt leaves no files.

    Args:
        folder: The directory of the run or of the evaluator.
        experiment: The experiment that is trained or evaluated.
        command: The command that was started.
        stop: Whether a signal was received. Its `step` is set if the attempt ends without results.
        trains: Whether this is a training run. An evaluator has no status, and its configuration
            may change.
        official: Whether params.yaml is for a Model Garden program, which reads it strictly.

    Attributes:
        spent: The time accounting.
    """

    def __init__(
        self,
        folder: Path,
        experiment: config.Experiment,
        command: provenance.Command,
        *,
        stop: signals.Stop,
        trains: bool = True,
        official: bool = False,
    ) -> None:
        self._folder = folder
        self._experiment = experiment
        self._command = command
        self._stop = stop
        self._trains = trains
        self._official = official
        self._contexts = contextlib.ExitStack()
        self.spent = spent.Spent(command.launched)
        self._reached = 0  # the last step of the previous attempt
        self._step: int | None = None
        self._changed: list[str] = []
        self._accepted = False
        self._is_new = False
        self._unwritten: Configuration | None = None
        self._status: status.StatusFile | None = None
        self._record: provenance.RunRecord | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._is_new = self._is_new and self._refuses(error)
        with self._contexts:
            if error is not None and not self._is_new:
                self._fail(error)

    def begin(self, *, allow: bool = False) -> None:
        """Locks the directory, compares the configuration and records that the attempt is running.

        The configuration of a new run is written now. That of a resumed run is written by `accept`.

        Args:
            allow: Whether a run may continue with a changed configuration.

        Raises:
            ConfigError: the configuration has changed, and that is not allowed, or the directory
                is that of a study.
            RunnerError: another process writes to the directory.
        """
        folder, instead = self._folder, "--model_dir" if self._trains else "EvaluatorConfig.name"
        self._is_new = not (folder / layout.RUN).exists()
        if self._trains and self._is_new and layout.is_study(folder):
            raise ConfigError(
                "{model_dir} is the directory of a study; choose another one for a run, or use "
                "{mode} to continue the study",
                model_dir=str(folder),
                mode="study",
            )
        there = set(folder.iterdir()) if folder.exists() else None
        self._contexts.enter_context(claim.claimed(folder, note=console.say, instead=instead))
        self._contexts.callback(self._remove_all_but, there)
        configuration = Configuration.of(self._experiment, official=self._official)
        if self._trains:
            self._changed = config_change.check(
                folder, self._experiment, allow=allow, note=console.say
            )
        if self._trains and config_change.have_begun(folder):
            self._unwritten = configuration
        else:
            configuration.write(folder)
        if self._trains:
            self._reached = reached(folder)
            file = status.StatusFile(folder, spent=self.spent)
            self._status = self._contexts.enter_context(file)
            self._step = self._status.step
        task = registry.task_module(self._experiment.task)
        self._record = provenance.RunRecord(folder, self._command, self._lost(), task=task)
        self.note(data=data_files.fingerprints(printing.plain(self._experiment)))
        self._contexts.enter_context(self._stop.abandoning(self._fail))

    def changed(self, change: str) -> None:
        """Adds a change of the data to those that `accept` records."""
        self._changed.append(change)

    def accept(self) -> None:
        """Writes the configuration, now that the run continues with it."""
        self._accepted = True
        if self._changed:  # params.yaml has the new values only
            self.note(changed=self._changed)
        if self._unwritten:
            self._unwritten.write(self._folder)

    @property
    def step(self) -> int | None:
        """The last step recorded, or None if it is unknown."""
        return self._step

    def resumed(self, step: int) -> None:
        """Records the step from which the attempt continues."""
        before = self._before.spent if self._before else None
        furthest = int(before.get("furthest", 0)) if before else 0
        self.spent.resumed(step, reached=self._reached, furthest=furthest)
        self.at(step)

    def at(self, step: int | None) -> None:
        """Records the step reached."""
        self._step = step
        if self._status and step is not None:
            self._status.beat(step)

    @property
    def failure(self) -> str:
        """How the previous attempt was killed or failed, otherwise empty."""
        if self._record and self._record.was_lost:
            how = provenance.LOST
        elif self._before and self._before.state == State.FAILED:
            how = f"failed: {' '.join(self._before.reason.split())}"
        else:
            return ""
        at = f", last at step {self._reached:,}," if self._reached else ""
        return f"the previous attempt{at} {how}"

    def note(self, **facts: Any) -> None:
        """Adds facts to this attempt's row of run.json, such as the devices."""
        if self._record:
            self._record.note(**facts)

    def end(
        self,
        state: State,
        step: int | None,
        reason: str = "",
        *,
        stopped_by: str = "",
        **facts: Any,
    ) -> None:
        """Records that the attempt has ended with results, and more facts about it."""
        self._step = step
        self.spent.turn("end")
        if self._status:
            self._status.write(state, step or 0, reason, stopped_by=stopped_by)
        self._end_record(state, **facts)

    def _fail(self, error: BaseException) -> None:
        """Records that `error` ended the attempt, if there is a record yet.

        Also called before a process that ignores a signal is ended.
        """
        if self._record:
            user_code.keep(error, self._folder / layout.TRACEBACK, self._command.secrets)
            self._end_record(status.after(error))
        self._say_how_it_ended(error)

    def _lost(self) -> dict[str, Any]:
        """Returns the facts about the previous attempt, used if it was killed."""
        if not (before := self._before):
            return {}
        facts = {"step": self._reached, "heard": before.heartbeat, "spent": before.spent}
        return {"pid": before.pid, **facts}

    @property
    def _before(self) -> status.Status | None:
        return self._status.before if self._status else None

    def _remove_all_but(self, there: Collection[Path] | None) -> None:
        """Removes the files of a rejected attempt, and if `there` is None, the directory too."""
        if not self._is_new:
            return
        kept = {*(there or ()), *layout.evaluators(self._folder)}
        with contextlib.suppress(OSError, LostError):  # held by another process, or not empty
            files.check(self._folder / layout.CLAIM)
            for path in sorted(self._folder.iterdir(), key=lambda path: path.name == layout.CLAIM):
                if path not in kept:
                    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            if there is None:
                self._folder.rmdir()

    def _refuses(self, error: BaseException | None) -> bool:
        """Returns whether `error` means that the run cannot continue with this configuration."""
        return isinstance(error, ConfigError) and not self._accepted

    def _end_record(self, state: State, **facts: Any) -> None:
        if self._record:
            with contextlib.suppress(OSError, LostError):
                if self._trains:
                    facts["spent"] = self.spent.as_dict()
                self._record.end(state, step=self._step, **facts)

    def _say_how_it_ended(self, error: BaseException) -> None:
        """Writes the status."""
        self._stop.step = self._step
        if self._status:
            with contextlib.suppress(OSError, LostError):  # they must not hide the original error
                if self._refuses(error) and self._status.withdraw():
                    return
                said = secrets.masked(user_code.summary(error), self._command.secrets)
                said = display_names.in_text(said)
                state = status.after(error)
                by = status.SIGNAL if state == State.STOPPED else ""
                self._status.write(state, self._step or 0, said, stopped_by=by)


class Configuration(NamedTuple):
    """The files that describe an experiment in a directory.

    Attributes:
        params: The text of params.yaml.
        resolved: The text of resolved.yaml, or None if params.yaml is complete.
        gin: The text of config.gin, or None if gin cannot express the experiment.
        why_not: The reason if it cannot.
    """

    params: str
    resolved: str | None
    gin: str | None
    why_not: str = ""

    @classmethod
    def of(cls, experiment: config.Experiment, *, official: bool = False) -> Self:
        """Makes the texts. Must be called before building anything, which may wrap config objects.

        Args:
            experiment: The experiment.
            official: Whether params.yaml has only the fields that Model Garden has.
        """
        params, resolved = config.as_yaml(experiment), None
        if official:
            resolved, params = params, config.as_yaml(experiment, without=("run",))
        modules = map(registry.task_module, multitask.task_sections(experiment))
        try:
            gin = gin_export.write(experiment, filter(None, modules))
        except ValueError as error:
            return cls(params, resolved, None, str(error))
        return cls(params, resolved, gin)

    def write(self, folder: Path) -> None:
        """Writes the files, or removes existing ones that would contradict them."""
        files.write_text(folder / layout.PARAMS, self.params)
        if self.resolved is None:
            files.remove(folder / layout.RESOLVED)
        else:
            files.write_text(folder / layout.RESOLVED, self.resolved)
        path = folder / layout.GIN
        if self.gin is None:
            files.remove(path)
            console.say(f"{display_names.of(path)} is not written: {self.why_not}")
        else:
            files.write_text(path, self.gin)
