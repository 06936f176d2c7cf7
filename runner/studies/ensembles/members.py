"""The members of an ensemble: runs of one task, each with a checkpoint."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runner import inputs
from runner.checkpoints import load_model, restore
from runner.config import Experiment
from runner.configuration import multitask, printing
from runner.core import console, layout
from runner.errors import ConfigError
from runner.run_directory.run import Run
from runner.run_directory.state import FINISHED
from runner.runs import in_memory, predict
from runner.storage import display_names

_CHOOSE = {"split", "held_out", "folds", "fold"}  # in addition to the fields of a source


class Member(NamedTuple):
    """A run.

    Attributes:
        folder: Its directory.
        config: The configuration that it was trained with.
        checkpoint: The weights to use.
        step: Their step.
        task: The task of `config` with data in memory, or None to build it.
    """

    folder: Path
    config: Experiment
    checkpoint: Path
    step: int
    task: Any = None

    def with_objects(self, objects: Mapping[str, Any]) -> "Member":
        """The same run with data and a model in memory.

        Args:
            objects: As for `in_memory.placed`, like the errors.
        """
        config, given = in_memory.placed(self.config, self.folder, objects)
        assert config is not None
        return self._replace(config=config, task=given.task)


def find(model_dir: Path, runs: Sequence[Path], checkpoint: str) -> list[Member]:
    """Returns the members in the given order, or a study's finished trials by number.

    Args:
        model_dir: A study's directory, if `runs` is empty.
        runs: The directories of runs, or of studies.
        checkpoint: The checkpoint of each run. See `load_model.stored`.

    Raises:
        ConfigError: there are fewer than two, one lacks its checkpoint, or the tasks differ.
    """
    folders = [folder for given in runs or [model_dir] for folder in _of(given, bool(runs))]
    twice = sorted({str(each) for each in folders if folders.count(each) > 1})
    if twice:
        raise ConfigError(
            f"{twice[0]} is given twice ({{select}} chooses with replacement)", select=None
        )
    members = [_member(folder, checkpoint) for folder in folders]
    if len(members) < 2:
        raise ConfigError(f"an ensemble needs at least two members; there is only {folders[0]}")
    first, *others = members
    for other in others:
        kinds = [type(each.config.task).__name__ for each in (first, other)]
        if kinds[0] != kinds[1]:
            raise ConfigError(
                f"{first.folder} trains {kinds[0]}, {other.folder} {kinds[1]}: members must have "
                "the same task"
            )
    return members


def same_data(members: Sequence[Member], name: str) -> str:
    """Describes the first difference of the members' data of this name, or returns an empty text.

    It compares the choice of examples, not how they are batched.
    """
    first, *others = members
    data = predict.named_data(first.config, name).config
    wanted = printing.plain(data)
    source = getattr(data, "SOURCE_FIELDS", inputs.FoldedData.SOURCE_FIELDS)
    for other in others:
        found = printing.plain(predict.named_data(other.config, name).config)
        for field in sorted({*source, *_CHOOSE} & wanted.keys(), reverse=True):
            if found.get(field) != wanted[field]:
                return (
                    f"{field} of the {name} data is {wanted[field]!r} in {first.folder} and "
                    f"{found.get(field)!r} in {other.folder}"
                )
    return ""


def _of(folder: Path, is_given: bool) -> list[Path]:
    """Returns a run alone, or the trials of a study."""
    if (folder / layout.PARAMS).exists():
        if not is_given:
            raise ConfigError(
                f"{folder} is a run, not a study: name others, too: {{runs}}", runs="a,b,c"
            )
        return [folder]
    trials = [path for path in layout.trials(folder) if (path / layout.PARAMS).exists()]
    if not trials:
        kind = "a run or a study" if is_given else "a study (--runs=a,b,c names runs)"
        lacks = f"is not {kind}: it has no {layout.PARAMS} and no {layout.TRIALS}/"
        raise ConfigError(f"{folder} {layout.no_directory(folder) or lacks}")
    ended = [path for path in trials if (seen := Run(path).status) and seen.state in FINISHED]
    if rest := len(trials) - len(ended):
        name = display_names.of(folder)
        console.say(f"{name}: skipping {rest} of {len(trials)} trials that have not finished")
    if not ended:
        raise ConfigError(f"{folder}: none of {len(trials)} trials has finished")
    return ended


def _member(folder: Path, checkpoint: str) -> Member:
    experiment, path = load_model.stored(folder, checkpoint)
    multitask.check_one(experiment.task, "{mode}", mode="ensemble")
    return Member(folder, experiment, path, restore.step_of(path))
