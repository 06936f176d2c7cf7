"""Which changes of a configuration leave a run the experiment that it was.

Some values only say how far a run goes, what it reports, or where it computes: those may change.
"""

import fnmatch
import re
from collections.abc import Mapping

from official.core import config_definitions as cfg

SETS = "run.evaluation_sets"

# What may change, by path, and why the run is the same experiment all the same. A field that is not
# here may not, so a new one is safe until somebody has thought about it. Among those that are not:
# whatever says which data are evaluated, since decisions compare evaluations with each other. So an
# evaluation set may come or go, but one that stays, by its name, keeps its data. `[]` stands for
# the set's name.
_MAY_CHANGE: Mapping[str, tuple[str, ...]] = {
    "how far a run goes is not what it is": ("trainer.train_steps", "run.early_stopping.*"),
    "the steps that follow from it are compared themselves": (
        "run.epochs.*",
        "run.evaluation_sets[].interval_epochs",
        "task.*_data.num_examples",
    ),
    "reports, commits and evaluations change no weight": (
        "trainer.steps_per_loop",
        "trainer.summary_interval",
        "trainer.checkpoint_interval",
        "trainer.validation_interval",
        "run.evaluation_sets[]",
        "run.evaluation_sets[].interval",
        "run.test.*",
        "trainer.preemption_on_demand_checkpoint",
        "trainer.continuous_eval_timeout",
        "run.async_checkpoints",
        "run.checkpoint_seconds",
        "run.evaluations_commit",
        "run.summary_seconds",
        "run.profile_every",
        "run.tensorboard",
        "run.peak_flops",
    ),
    "what is kept, and where, changes no weight": (
        "trainer.max_to_keep",
        "trainer.validation_summary_subdir",
        "trainer.allow_tpu_summary",
        "task.allow_image_summary",
        "run.retention.*",
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
        "run.intra_op_threads",
        "run.inter_op_threads",
    ),
    "the same data, at another pace": (
        "task.*_data.prefetch_buffer_size",
        "task.*_data.autotune_algorithm",
        "task.*_data.ram_budget",
        "task.*_data.num_parallel_calls",
        "task.*_data.autotune",
        "run.evaluation_sets[].data.prefetch_buffer_size",
        "run.evaluation_sets[].data.autotune_algorithm",
        "run.evaluation_sets[].data.ram_budget",
        "run.evaluation_sets[].data.num_parallel_calls",
        "run.evaluation_sets[].data.autotune",
    ),
}

# Every example counts once, however they are batched; unless so many batches are evaluated.
_EVALUATED_BATCHES = (
    "task.validation_data.global_batch_size",
    "run.evaluation_sets[].data.global_batch_size",
)

# What changes weights after all, where the learning rate drops by the run's own evaluations.
_EVALUATIONS = (
    "trainer.validation_interval",
    "run.evaluation_sets[]",
    "run.evaluation_sets[].interval",
)


def why(path: str, now: cfg.ExperimentConfig) -> str:
    """Why a run stays the same experiment; empty where it does not.

    Args:
        path: Of the value that changed. An evaluation set stands there by its name:
            `run.evaluation_sets[part].share`.
        now: The experiment with the new value.
    """
    path = re.sub(rf"^{SETS}\[[^]]*\]", f"{SETS}[]", path)
    if path in _EVALUATED_BATCHES and now.trainer.validation_steps == -1:
        return "every example counts once, however they are batched"
    plateau = now.run.plateau
    if path in _EVALUATIONS and (plateau.higher or plateau.lower) and not plateau.source:
        return ""
    fits = (
        reason
        for reason, patterns in _MAY_CHANGE.items()
        if any(fnmatch.fnmatchcase(path, pattern.replace("[", "[[]")) for pattern in patterns)
    )
    return next(fits, "")
