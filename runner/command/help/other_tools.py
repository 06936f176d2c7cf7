"""Maps flags of other tools, such as Keras scripts, Lightning or T5X, to the runner's flags."""

from collections.abc import Mapping

_LENGTH = (
    "pass --gin.EpochsConfig.train={value}, with --gin.TrainerConfig.train_steps=0 if the gin file "
    "has a number of steps"
)
_STEPS = "pass --gin.TrainerConfig.train_steps={value}"
_RATE = (
    "the learning rate is a value of the schedule, such as "
    "--gin.CosineLrConfig.initial_learning_rate={value} (--help=learning_rate lists them)"
)
_GPUS = (
    "pass --gin.RuntimeConfig.num_gpus=N with --gin.RuntimeConfig.distribution_strategy=mirrored"
)
_RESUME = "run the same command again: it resumes from the newest checkpoint in --model_dir"
_WEIGHTS = (
    "to evaluate or predict, pass --checkpoint={value}; to start from its weights, "
    "--params_override=task.init_checkpoint={value}"
)
_TABLE: Mapping[str, str] = {  # names of flags, and what to do instead
    "epochs num_epochs max_epochs n_epochs train_epochs num_train_epochs": _LENGTH,
    "max_steps num_steps train_steps total_steps num_train_steps iterations max_iters": _STEPS,
    "learning_rate lr base_learning_rate base_lr initial_learning_rate": _RATE,
    "batch_size train_batch_size global_batch_size per_device_train_batch_size": (
        "pass --params_override=task.train_data.global_batch_size={value}"
    ),
    "eval_batch_size val_batch_size validation_batch_size per_device_eval_batch_size": (
        "pass --params_override=task.validation_data.global_batch_size={value}"
    ),
    "seed random_seed rng_seed": "pass --gin.RunConfig.seed={value}",
    "output_dir out_dir log_dir logdir save_dir work_dir workdir checkpoint_dir ckpt_dir job_dir "
    "default_root_dir": "pass --model_dir={value}",
    "config cfg config_path gin_config": (
        "pass --gin_file={value}, or --config_file={value} if it is YAML or JSON"
    ),
    "gin_bindings gin_binding gin_param": "pass --gin_params={value}",
    "gpus num_gpus n_gpus devices accelerator strategy": _GPUS,
    "distribution_strategy": "pass --gin.RuntimeConfig.distribution_strategy={value}",
    "precision mixed_precision amp fp16 bf16": (
        "pass --gin.RuntimeConfig.mixed_precision_dtype=bfloat16"
    ),
    "optimizer optim": "pass --gin.OptimizerConfig.type={value}",
    "resume auto_resume resume_training resume_from_checkpoint continue restore": _RESUME,
    "ckpt ckpt_path checkpoint_path init_checkpoint load_checkpoint pretrained": _WEIGHTS,
    "eval_interval eval_every eval_freq val_check_interval validation_interval": (
        "pass --gin.TrainerConfig.validation_interval={value}"
    ),
    "save_steps save_every save_interval checkpoint_interval save_checkpoints_steps": (
        "pass --gin.TrainerConfig.checkpoint_interval={value}"
    ),
    "data_dir data_path dataset train_file": (
        "pass --params_override=task.train_data.input_path={value}"
    ),
    "train do_train": "pass --mode=train",
    "eval do_eval evaluate eval_only": "pass --mode=eval",
    "predict do_predict": "pass --mode=predict",
    "debug fast_dev_run smoke_test": "pass --dry_run",
    "overwrite_output_dir force": "pass --overwrite with the name of the run's directory",
    "verbose verbosity v": "pass --alsologtostderr to see more logs",
}
_INSTEAD = {name: instead for names, instead in _TABLE.items() for name in names.split()}


def instead(flag: str, value: str) -> str:
    """Returns what to do in place of another tool's flag, or an empty string if it is unknown.

    Args:
        flag: `--batch-size`, for example.
        value: Its value, empty if it has none.
    """
    name = flag.lstrip("-").replace("-", "_").lower()
    return _INSTEAD.get(name, "").replace("{value}", value or "...")


def names() -> list[str]:
    """Returns the known flags of other tools, without dashes."""
    return list(_INSTEAD)
