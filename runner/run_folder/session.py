"""What a start leaves in the run's folder besides its results: configuration, record, status."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

from runner import config
from runner.configuration import gin_export, registry
from runner.core import console, files, layout, secrets, signals, user_code
from runner.errors import LostError
from runner.run_folder import config_change, provenance, status


class Start(NamedTuple):
    """A start of a run that trains, in its folder.

    Attributes:
        beat: Its status.
        record: Its row in run.json.
        accepted: To be called once the run goes on with this configuration, not just tries to.
    """

    beat: status.StatusFile
    record: provenance.RunRecord
    accepted: Callable[[], None]


@contextlib.contextmanager
def training(
    experiment: config.Experiment,
    model_dir: Path,
    command: provenance.Command,
    *,
    allow: bool,
    stop: signals.Stop,
    reached: Callable[[int | None], object] = lambda _: None,
) -> Iterator[Start]:
    """Compares and writes the configuration; says in status.json and run.json how it ended.

    Args:
        experiment: What is trained.
        model_dir: The run's folder, claimed.
        command: What was started.
        allow: Whether a run may go on with another configuration than it had.
        stop: Whether a signal has come.
        reached: Told the step of a run that does not come to its end.

    Raises:
        ConfigError: the configuration has changed, and that is not allowed.
    """
    changed = config_change.check(model_dir, experiment, allow=allow, note=console.say)
    goes_on = config_change.have_begun(model_dir)
    written = Configuration.of(experiment)
    if not goes_on:
        written.write(model_dir)
    with status.StatusFile(model_dir) as beat:

        def ended(error: BaseException) -> None:
            reached(beat.step)
            with contextlib.suppress(OSError, LostError):  # they must not hide what happened
                said = secrets.masked(user_code.summary(error), command.secrets)
                beat.write(status.after(error), beat.step, said)

        try:
            with recorded(model_dir, command, beat) as record, stop.abandoning(ended):

                def accepted() -> None:
                    if changed:  # params.yaml has the new values only
                        record.note(changed=changed)
                    if goes_on:
                        written.write(model_dir)

                yield Start(beat, record, accepted)
        except BaseException as error:
            ended(error)
            raise


@contextlib.contextmanager
def recorded(
    folder: Path, command: provenance.Command, beat: status.StatusFile | None = None
) -> Iterator[provenance.RunRecord]:
    """A row of run.json for as long as the start lasts."""
    record = provenance.RunRecord(folder, command)
    state: status.State | None = None
    try:
        yield record
    except BaseException as error:
        state = status.after(error)
        user_code.keep(error, folder / layout.TRACEBACK, command.secrets)
        raise
    finally:
        with contextlib.suppress(OSError, LostError):
            own = beat.state if beat else "done"
            record.end(state or own, step=beat.step if beat else None)


class Configuration(NamedTuple):
    """An experiment as the files that stand for it in a folder.

    Attributes:
        params: The text of params.yaml.
        gin: The text of config.gin; None where gin cannot spell the experiment.
        why_not: Why it cannot.
    """

    params: str
    gin: str | None
    why_not: str = ""

    @classmethod
    def of(cls, experiment: config.Experiment) -> Self:
        """Both texts, made before anything is built: what runs may wrap its sections."""
        params = config.as_yaml(experiment)
        module = registry.task_module(experiment.task)
        try:
            return cls(params, gin_export.write(experiment, [module] if module else []))
        except ValueError as error:
            return cls(params, None, str(error))

    def write(self, folder: Path) -> None:
        """Writes params.yaml and config.gin, or removes the latter and says why."""
        files.write_text(folder / layout.PARAMS, self.params)
        path = folder / layout.GIN
        if self.gin is None:
            path.unlink(missing_ok=True)
            console.say(f"{path} is not written: {self.why_not}")
        else:
            files.write_text(path, self.gin)
