"""What has changed in the configuration since the run in a folder was last started.

A run that goes on with other values is another experiment, and its record would not say so. Some
values only say how far a run goes, what it reports, or where it computes: those may change.
"""

import dataclasses
import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from official.modeling.hyperparams import base_config, oneof

from runner import config
from runner.errors import ConfigError

# What may change, by path, and why the run is the same experiment all the same. A field that is not
# here may not, so a new one is safe until somebody has thought about it. Among those that are not:
# whatever says which data are evaluated, since the best checkpoint is chosen among evaluations.
_MAY_CHANGE: Mapping[str, tuple[str, ...]] = {
    "how far a run goes is not what it is": ("trainer.train_steps",),
    "reports, commits and evaluations change no weight": (
        "trainer.steps_per_loop",
        "trainer.summary_interval",
        "trainer.checkpoint_interval",
        "trainer.validation_interval",
        "trainer.preemption_on_demand_checkpoint",
        "trainer.continuous_eval_timeout",
        "run.async_checkpoints",
    ),
    "what is kept, and where, changes no weight": (
        "trainer.max_to_keep",
        "trainer.validation_summary_subdir",
        "trainer.allow_tpu_summary",
        "task.allow_image_summary",
        "run.evaluator.*",
    ),
    "the best checkpoint is found anew from the history": (
        "trainer.best_checkpoint_eval_metric",
        "trainer.best_checkpoint_metric_comp",
        "trainer.best_checkpoint_export_subdir",
    ),
    "past rollbacks stay in the history": (
        "trainer.loss_upper_bound",
        "trainer.recovery_begin_steps",
        "trainer.recovery_max_trials",
        "run.rollback_rate",
    ),
    "the same batches, if not the same bits": (
        "runtime.distribution_strategy",
        "runtime.num_gpus",
        "runtime.tpu",
        "runtime.worker_hosts",
        "runtime.task_index",
        "runtime.all_reduce_alg",
        "runtime.num_packs",
        "runtime.num_cores_per_replica",
        "runtime.default_shard_dim",
        "runtime.use_tpu_mp_strategy",
        "runtime.enable_xla",
        "runtime.run_eagerly",
        "runtime.batchnorm_spatial_persistent",
        "runtime.gpu_thread_mode",
        "runtime.per_gpu_thread_count",
        "runtime.dataset_num_private_threads",
        "trainer.train_tf_while_loop",
        "trainer.train_tf_function",
        "trainer.eval_tf_while_loop",
        "trainer.eval_tf_function",
        "run.logical_cpus",
    ),
    "the same data, at another pace": (
        "task.*_data.prefetch_buffer_size",
        "task.*_data.autotune_algorithm",
        "task.*_data.ram_budget",
    ),
}

# Every example counts once, however they are batched; unless so many batches are evaluated.
_EVALUATED_BATCH = "task.validation_data.global_batch_size"


class _Unset:
    """What stands for a value that is not there."""

    def __repr__(self) -> str:
        return "unset"


UNSET = _Unset()


@dataclasses.dataclass(frozen=True)
class Change:
    """One value that is not what it was.

    Attributes:
        path: `trainer.train_steps`.
        old: As it was, UNSET where it was not.
        new: As it is, UNSET where it no longer is.
        harmless: Why the run is the same experiment all the same; empty where it is not.
    """

    path: str
    old: Any
    new: Any
    harmless: str

    def __str__(self) -> str:
        return f"{self.path}: {_shown(self.old)} -> {_shown(self.new)}"


def compare(before: Mapping[str, Any], now: config.Experiment) -> list[Change]:
    """The values that differ, in the order of the configuration.

    A field that `before` does not know had its default then.

    Args:
        before: What `config.as_yaml` wrote, loaded.
        now: The experiment.
    """
    differences = _differences(before, _plain(now), now)
    return [Change(path, old, new, _why(path, now)) for path, old, new in differences]


def check(
    model_dir: Path, experiment: config.Experiment, *, allow: bool, note: Callable[[str], object]
) -> None:
    """Compares `experiment` with the one that the run in `model_dir` was last started with.

    Before its first checkpoint a run has nothing that depends on it, and anything may change.

    Args:
        model_dir: The run's folder.
        experiment: What is to be trained.
        allow: Only note what would be refused.
        note: Told of each change that is not refused.

    Raises:
        ConfigError: the run would become another experiment; a line for each change.
    """
    path = model_dir / "params.yaml"
    if not any(model_dir.glob("ckpt-*.index")):
        return
    try:
        found = compare(_read(path), experiment)
    except FileNotFoundError:
        return
    except ConfigError as error:
        if not allow:
            raise
        note(str(error))
        return
    places = vars(experiment).get("_origins", {})
    refused = [] if allow else [change for change in found if not change.harmless]
    if refused:
        lines = "".join(f"\n  {_line(change, places)}" for change in refused)
        raise ConfigError(
            f"{model_dir} was trained with another configuration:{lines}\n"
            "go on with the new one by --allow_config_change, or begin anew in another --model_dir"
        )
    for change in found:
        note(f"changed: {_line(change, places)}{change.harmless and f'; {change.harmless}'}")


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        found = error
    if not isinstance(found, Mapping):
        raise ConfigError(
            f"{path} is damaged, so that nobody can tell what has changed since the run was last "
            "started; go on by --allow_config_change"
        )
    return found


def _differences(
    before: Any, after: Any, now: Any, path: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """The path, old and new value of each difference; `now` is the object that `after` shows."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        if isinstance(now, oneof.OneOfConfig) and before.get("type") != after.get("type"):
            yield path, before, after  # another choice: its fields have nothing in common
            return
        if after.keys() - before.keys():
            before = {**_defaults(now, after), **before}
        for key in {**after, **before}:
            old, new = before.get(key, UNSET), after.get(key, UNSET)
            part = now.get(key) if isinstance(now, Mapping) else getattr(now, key, None)
            yield from _differences(old, new, part, f"{path}.{key}".removeprefix("."))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        parts = now if isinstance(now, (list, tuple)) else [None] * len(after)
        for index, (old, new, part) in enumerate(zip(before, after, parts, strict=True)):
            yield from _differences(old, new, part, f"{path}[{index}]")
    elif before != after:
        yield path, before, after


def _defaults(section: Any, names: Iterable[str]) -> dict[str, Any]:
    """The defaults of some fields of a section."""
    try:
        made = _plain(type(section)()) if isinstance(section, base_config.Config) else {}
    except (TypeError, ValueError):  # they alone do not make one
        return {}
    return {name: made[name] for name in names if name in made}


def _plain(section: base_config.Config) -> dict[str, Any]:
    """A section as it is read back from params.yaml."""
    return yaml.safe_load(yaml.safe_dump(section.as_dict(), sort_keys=False))


def _why(path: str, now: config.Experiment) -> str:
    """Why the value at `path` may change; empty where it may not."""
    if path == _EVALUATED_BATCH and now.trainer.validation_steps == -1:
        return "every example counts once, however they are batched"
    fits = (
        reason
        for reason, patterns in _MAY_CHANGE.items()
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)
    )
    return next(fits, "")


def _line(change: Change, places: Mapping[str, str]) -> str:
    place = places.get(f"{change.path}.type") or places.get(change.path)
    return f"{change} ({place})" if place else str(change)


def _shown(value: Any) -> str:
    """A value on one line; a choice is a call of its type, with what is not None."""
    if value == {"type": None}:
        return "None"
    if isinstance(value, Mapping) and isinstance(value.get(value.get("type")), Mapping):
        fields = value[value["type"]].items()
        given = ", ".join(f"{name}={item!r}" for name, item in fields if item is not None)
        return f"{value['type']}({given})"
    return repr(value)
