"""The properties of all fields, including a list for Model Garden's fields.

This runner's fields declare their properties themselves (see `settings`).
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from official.core import config_definitions as cfg
from official.modeling import optimization
from official.modeling.hyperparams import base_config

from runner.configuration.settings import (
    BATCHES,
    BEST,
    COUNT,
    DEVICES,
    EVALUATIONS,
    KEPT,
    LENGTH,
    METADATA,
    PACE,
    REPORTS,
    ROLLBACKS,
    SIZE,
    Setting,
    number,
    one_of,
)

_DEVICES = Setting(resume=DEVICES)
_EVALUATED_ON_DEVICES = Setting(resume=DEVICES, read="evaluation")
_PACE = Setting(resume=PACE)

OFFICIAL: Mapping[type, Mapping[str, Setting]] = {
    cfg.TrainerConfig: {
        "train_steps": Setting(resume=LENGTH),
        "steps_per_loop": Setting(
            allowed=number(at_least=1, also={0: "for loops of about a second"}), resume=REPORTS
        ),
        "summary_interval": Setting(allowed=COUNT, resume=REPORTS),
        "checkpoint_interval": Setting(
            allowed=number(at_least=1, also={-1: "for the last step only"}), resume=REPORTS
        ),
        "validation_interval": Setting(allowed=COUNT, resume=EVALUATIONS, read="evaluation"),
        "validation_steps": Setting(
            allowed=number(at_least=1, also={-1: "for all the data"}), read="evaluation"
        ),
        "validation_summary_subdir": Setting(resume=KEPT, read="evaluation"),
        "continuous_eval_timeout": Setting(
            allowed=number(above=0, also={None: "to wait forever"}),
            resume=REPORTS,
            read="elsewhere",
        ),
        "max_to_keep": Setting(
            allowed=number(at_least=1, also={0: "to keep only the best after the end of the run"}),
            resume=KEPT,
        ),
        "preemption_on_demand_checkpoint": Setting(resume=REPORTS),
        "allow_tpu_summary": Setting(resume=KEPT),
        "best_checkpoint_eval_metric": Setting(resume=BEST, read="evaluation"),
        "best_checkpoint_metric_comp": Setting(
            allowed=one_of("higher", "lower"), resume=BEST, read="evaluation"
        ),
        "best_checkpoint_export_subdir": Setting(resume=BEST, read="evaluation"),
        "loss_upper_bound": Setting(
            "Training has diverged if its loss is above this or not finite.",
            resume=ROLLBACKS,
        ),
        "recovery_begin_steps": Setting(
            "The loss may be above `loss_upper_bound` before this step.", resume=ROLLBACKS
        ),
        "recovery_max_trials": Setting(
            "Maximum number of rollbacks of a diverged run. 0: the run ends at once. Negative: the "
            "same, and `loss_upper_bound` is ignored.",
            resume=ROLLBACKS,
        ),
        "train_tf_while_loop": _DEVICES,
        "train_tf_function": _DEVICES,
        "eval_tf_while_loop": _EVALUATED_ON_DEVICES,
        "eval_tf_function": _EVALUATED_ON_DEVICES,
    },
    cfg.RuntimeConfig: dict.fromkeys(
        ("distribution_strategy", "worker_hosts", "task_index", "all_reduce_alg"),
        Setting(resume=DEVICES, read="elsewhere"),  # read by several workers before opening the run
    )
    | dict.fromkeys(
        (
            "num_gpus",
            "tpu",
            "num_packs",
            "num_cores_per_replica",
            "default_shard_dim",
            "use_tpu_mp_strategy",
            "enable_xla",
            "run_eagerly",
            "batchnorm_spatial_persistent",
            "gpu_thread_mode",
            "per_gpu_thread_count",
            "dataset_num_private_threads",
        ),
        _DEVICES,
    ),
    optimization.EMAConfig: {
        "average_decay": Setting(allowed=number(at_least=0, at_most=1)),
        "start_step": Setting(allowed=SIZE),
    },
    cfg.TaskConfig: {
        "init_checkpoint": Setting("A checkpoint to start from.", read="elsewhere"),
        "train_data": Setting("The training data."),
        "init_checkpoint_modules": Setting(read="elsewhere"),  # in Model Garden's vision tasks
        "validation_data": Setting("The data to evaluate on.", read="evaluation"),
        "allow_image_summary": Setting(resume=KEPT),
    },
    cfg.DataConfig: {
        "global_batch_size": Setting(resume=BATCHES),
        "prefetch_buffer_size": _PACE,
        "autotune_algorithm": _PACE,
        "ram_budget": _PACE,
    },
}


def of(kind: type, name: str) -> Setting:
    """Returns the properties of a field of a config class, this runner's or Model Garden's."""
    for base in kind.__mro__:
        if own := _own(base).get(name) or OFFICIAL.get(base, {}).get(name):
            return own
    return Setting()


@functools.cache
def _own(kind: type) -> Mapping[str, Setting]:
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return {field.name: field.metadata[METADATA] for field in fields if field.metadata}


def along(section: Any, path: str) -> Iterator[Setting]:
    """Yields the settings of the fields along the path from a config to a value."""
    for part in path.split("."):
        if not isinstance(section, base_config.Config):
            return
        name, _, index = part.partition("[")
        yield of(type(section), name)
        section = getattr(section, name, None)
        section = section[int(index[:-1])] if index else section
