"""What this runner adds to official's sections: `Experiment.run`, and the sections within it."""

import dataclasses

from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config

from runner.configuration.functions import FunctionConfig


@dataclasses.dataclass
class EarlyStoppingConfig(base_config.Config):
    """Ends a run that no longer gets better; off while it names no metric.

    An evaluation is better if any of the metrics is, by more than `min_delta`, than it ever was.

    Attributes:
        higher: Metrics of which higher is better.
        lower: Metrics of which lower is better.
        min_delta: What a metric must gain to count as better.
        patience: How many evaluations in a row may be no better; that many end the run.
        from_step: Evaluations before this step are left out.
        source: Whose evaluations count: empty, the training run's own; else the evaluator's of this
            name.
    """

    higher: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()
    min_delta: float = 0.0
    patience: int = 5
    from_step: int = 0
    source: str = ""


@dataclasses.dataclass
class PlateauConfig(base_config.Config):
    """Lowers the learning rate when evaluations stop getting better; off while it names no metric.

    The rate in force is max(scale * scheduled, min(scheduled, floor)); each drop multiplies the
    scale by `factor`.

    Attributes:
        higher: Metrics of which higher is better.
        lower: Metrics of which lower is better.
        min_delta: What a metric must gain to count as better.
        factor: What a drop multiplies the scale by.
        tolerance: How many evaluations in a row may be no better; that many drop the rate.
        cooldown: How many evaluations after a drop do not count.
        floor: A rate that drops do not go below.
        source: Whose evaluations count: empty, the training run's own; else the evaluator's of this
            name.
    """

    higher: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()
    min_delta: float = 0.0
    factor: float = 0.5
    tolerance: int = 1
    cooldown: int = 0
    floor: float = 0.0
    source: str = ""


@dataclasses.dataclass
class RetentionConfig(base_config.Config):
    """Which checkpoints are kept beside the last `TrainerConfig.max_to_keep`.

    Attributes:
        every: Those of every so many steps are kept for ever; 0 keeps none for that.
        best: How many of the best are kept, in each folder.
        from_step: Evaluations before this step are not best.
        or_higher: Further metrics, higher being better, that decide about the folder of
            `TrainerConfig.best_checkpoint_eval_metric`: the best is then the last evaluation in
            which any of these, or that one, was better than ever before.
        or_lower: The same, of which lower is better.
        higher: Metrics, higher being better, that have a folder of their best, `best-<metric>`,
            beside that one.
        lower: The same, of which lower is better.
    """

    every: int = 0
    best: int = 1
    from_step: int = 0
    or_higher: tuple[str, ...] = ()
    or_lower: tuple[str, ...] = ()
    higher: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()


@dataclasses.dataclass
class EvaluationSetConfig(base_config.Config):
    """A named set of data that is evaluated beside `task.validation_data`.

    Attributes:
        name: Of the set, and of its charts.
        data: What the task's `build_inputs` is given.
        interval: Evaluated every so many steps and at the end; 0: whenever validation is.
        interval_epochs: The same in epochs of the training data; 0 for none.
        share: Of its examples, the first ones that count, above 0 and up to 1.
        examples: The same as a number; 0 for all.
        prefix: Before the names of its metrics; empty: the set's name and a slash.
    """

    name: str = ""
    data: cfg.DataConfig = dataclasses.field(default_factory=cfg.DataConfig)
    interval: int = 0
    interval_epochs: float = 0.0
    share: float = 1.0
    examples: int = 0
    prefix: str = ""


@dataclasses.dataclass
class TestConfig(base_config.Config):
    """Data that are evaluated once, when training has ended, with the best weights.

    Attributes:
        data: What the task's `build_inputs` is given; None tests nothing.
        last: Whether the last weights are tested, too.
    """

    data: cfg.DataConfig | None = None
    last: bool = False


@dataclasses.dataclass
class EvaluatorConfig(base_config.Config):
    """A process that only evaluates: which checkpoints, how often, under which name.

    Attributes:
        name: Of its own folder, `eval-<name>`; empty: the mode's.
        policy: `latest` evaluates the newest checkpoint there is; `every`, each one: training keeps
            them for it.
        min_seconds: Between the starts of two evaluations, while training goes on.
        from_step: Checkpoints before this step are left out.
        max_evaluations: It ends after so many, those before a restart included; 0 for no end.
        max_failures: It gives up after so many evaluations in a row that raised an exception, or
            whose actions did; 0 for never.
        give_up: Called without arguments whenever there was no sign of life of training for
            `TrainerConfig.continuous_eval_timeout`: whether to end, with exit code 0. None: it
            ends, with exit code 1.
    """

    name: str = ""
    policy: str = "latest"
    min_seconds: float = 0.0
    from_step: int = 0
    max_evaluations: int = 0
    max_failures: int = 3
    give_up: FunctionConfig | None = None


@dataclasses.dataclass
class EpochsConfig(base_config.Config):
    """Lengths and intervals in epochs of the training data, in the place of official's steps.

    Each becomes the number of the step that ends the epoch, rounded up. 0 or empty: official's
    field counts.

    Attributes:
        examples: How many make an epoch; 0: as the data's configuration declares.
        train: `TrainerConfig.train_steps`.
        validation_interval: `TrainerConfig.validation_interval`.
        checkpoint_interval: `TrainerConfig.checkpoint_interval`.
        summary_interval: `TrainerConfig.summary_interval`.
        warmup: `warmup_steps` of the chosen warm-up.
        decay: `decay_steps` (or `total_decay_steps`) of the chosen learning rate schedule; where
            neither is given, the schedule ends with the run.
        boundaries: `boundaries` of a stepwise schedule. Its rate changes in the step after a
            boundary, as TensorFlow has it (`<=`), not at the boundary, as others do (`>=`): Model
            Garden's runs have the same rates, and runs that have begun keep theirs.
        boundary_shares: The same as shares of the training's length, whether that is given in
            epochs or in steps.
        stopping_from: `EarlyStoppingConfig.from_step`.
        best_from: `RetentionConfig.from_step`.
    """

    examples: int = 0
    train: float = 0.0
    validation_interval: float = 0.0
    checkpoint_interval: float = 0.0
    summary_interval: float = 0.0
    warmup: float = 0.0
    decay: float = 0.0
    boundaries: tuple[float, ...] = ()
    boundary_shares: tuple[float, ...] = ()
    stopping_from: float = 0.0
    best_from: float = 0.0


@dataclasses.dataclass
class VariableGroupConfig(base_config.Config):
    """Variables, chosen by their names, with a learning rate or an initializer of their own.

    Attributes:
        name: Of the group; the rate that it has is logged as `learning_rate/<name>`.
        pattern: A regular expression. The trainable variables in whose names (`encoder/dense/bias`)
            it is found are the group, without those of the groups before.
        rate_scale: What the learning rate in force is multiplied by: with it, warm-up, decay and
            drops. 0 leaves the variables as they are.
        initializer: Of tf_keras, by its name, such as `glorot_uniform`; empty: the model's own. An
            `init_checkpoint` counts for more.
    """

    name: str = ""
    pattern: str = ""
    rate_scale: float = 1.0
    initializer: str = ""


@dataclasses.dataclass
class RunConfig(base_config.Config):
    """What this runner adds to official's sections.

    Attributes:
        seed: Of the weights, of the order of training examples and of all that is random.
        deterministic: Whether every op gives the same bits every time, as an exact resume needs.
            TensorFlow then does without some faster kernels, mostly on GPUs.
        async_checkpoints: Whether checkpoints are written while training goes on.
        checkpoint_seconds: So long after a commit one more is made, when the loop ends that is
            running, wherever the grid of `TrainerConfig.checkpoint_interval` is; 0 for none. Such
            commits are there to resume from and to be evaluated: no rollback goes to one, and no
            bit of the training depends on them. (What an evaluator beside it decides is taken up at
            any commit, and recorded there.)
        logical_cpus: CPU devices that the `mirrored` strategy spreads over where there is no GPU.
        intra_op_threads: How many threads an op may compute with on CPUs; 0: TensorFlow chooses.
        inter_op_threads: How many ops may run side by side on CPUs; 0: TensorFlow chooses.
        peak_flops: FLOP/s of one device at its best, for the utilisation `mfu`; 0: as the maker of
            the device states it, where it is known.
        evaluations_commit: Whether each evaluation commits a checkpoint first. If not, one between
            two multiples of `TrainerConfig.checkpoint_interval` commits only if it is among the
            best; after a kill it is done again, with the steps before it.
        tensorboard: Whether TensorBoard's events are written.
        summary_seconds: So long after the last point on TensorBoard's training charts there is one
            more: the means since the last multiple of `TrainerConfig.summary_interval`; 0 for none.
            train.jsonl has only the rows of the grid, which are the same in every run.
        profile_every: Three steps up to each multiple of so many are profiled, as by
            `--profile_steps`; 0 for none. The newest five profiles are kept.
        rollback_rate: What the learning rate is multiplied by at each rollback of a broken run
            (`TrainerConfig.recovery_max_trials` says how many there may be).
        gradient_accumulation: In how many equal parts each replica trains on its batch, one after
            the other, before the mean of their gradients is applied. A step stays one update.
        log_gradient_norm: Whether `gradient_norm` is among the training metrics: of the gradients
            that are applied, before clipping, the mean of their global norms.
        variable_groups: What has a learning rate or an initializer of its own; the first counts.
        early_stopping: When a run ends early.
        plateau: When the learning rate drops.
        retention: Which checkpoints are kept.
        evaluation_sets: What is evaluated beside the validation data.
        test: What the best weights are tested on at the end.
        evaluator: What a process that only evaluates does.
        epochs: Lengths in epochs.
    """

    seed: int = 0
    deterministic: bool = True
    async_checkpoints: bool = True
    checkpoint_seconds: float = 0.0
    evaluations_commit: bool = True
    logical_cpus: int = 1
    intra_op_threads: int = 0
    inter_op_threads: int = 0
    peak_flops: float = 0.0
    tensorboard: bool = True
    summary_seconds: float = 0.0
    profile_every: int = 0
    rollback_rate: float = 1.0
    gradient_accumulation: int = 1
    log_gradient_norm: bool = False
    variable_groups: tuple[VariableGroupConfig, ...] = ()
    early_stopping: EarlyStoppingConfig = dataclasses.field(default_factory=EarlyStoppingConfig)
    plateau: PlateauConfig = dataclasses.field(default_factory=PlateauConfig)
    retention: RetentionConfig = dataclasses.field(default_factory=RetentionConfig)
    evaluation_sets: tuple[EvaluationSetConfig, ...] = ()
    test: TestConfig = dataclasses.field(default_factory=TestConfig)
    evaluator: EvaluatorConfig = dataclasses.field(default_factory=EvaluatorConfig)
    epochs: EpochsConfig = dataclasses.field(default_factory=EpochsConfig)
