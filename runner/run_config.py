"""The config classes that this runner adds to Model Garden's: `Experiment.run` and its fields."""

import dataclasses

from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config

from runner.configuration.functions import FunctionConfig
from runner.configuration.settings import (
    COUNT,
    DEVICES,
    EVALUATIONS,
    INITIALIZER,
    KEPT,
    LABELS,
    LENGTH,
    NAME,
    NOTES,
    OPTIONAL_NAME,
    PATTERN,
    REPORTS,
    RESUMES,
    ROLLBACKS,
    SIZE,
    STEPS,
    TIME,
    VARIABLES,
    VOLUMES,
    number,
    one_of,
    setting,
    some_of,
)
from runner.core import plugins, schedule

TENSORBOARD = ("train", "validation", "sets", "test", "pictures", "hparams", "system")
"""The kinds of TensorBoard events."""

_SCHEDULE = "trainer.optimizer_config.learning_rate"
_SHARE = number(above=0, at_most=1)
_RATE = number(above=0, below=float("inf"))
_SOURCE = "The name of the evaluator whose evaluations are used. Empty: those of the training run."


@dataclasses.dataclass
class ActionConfig(base_config.Config):
    """A user-defined action and when to call it, like Orbit's ConditionalAction.

    An action is called the way Model Garden calls its own: with the logs of a training loop or the
    results of an evaluation, as a mapping from names to tensors. If the action returns a string,
    the run stops and gives that string as the reason.
    """

    action: FunctionConfig = setting(
        FunctionConfig,
        "The function to call: in gin `@my_actions.function`, or `@my_actions.Class()` for a "
        "callable object.",
    )
    at: str = setting(
        "loop",
        "When to call it: after each training `loop`, after each `evaluation`, after an "
        "evaluation that is the `best` so far, or at the `end` of training. At the end, it gets "
        "the newest training and evaluation metrics, and is called each time a command reaches "
        "the end.",
        allowed=one_of("loop", "evaluation", "best", "end"),
    )
    every: int = setting(
        0,
        "With `loop`, calls it only at multiples of this number of steps and at the last step. "
        "Loops then end at these steps. 0: after every loop, wherever it ends.",
        allowed=SIZE,
    )


@dataclasses.dataclass
class EarlyStoppingConfig(base_config.Config):
    """Ends a run that no longer improves. Off while it names no metric.

    An evaluation is an improvement if any of the metrics beats its best value so far by more than
    `min_delta`.
    """

    higher: tuple[str, ...] = setting((), "Metrics for which higher is better.", better="higher")
    lower: tuple[str, ...] = setting((), "Metrics for which lower is better.", better="lower")
    min_delta: float = setting(
        0.0, "A metric must gain more than this to be considered better.", allowed=SIZE
    )
    patience: int = setting(
        5,
        "The run ends after this many evaluations in a row without an improvement.",
        allowed=COUNT,
    )
    from_step: int = setting(0, "Evaluations before this step are ignored.", allowed=SIZE)
    source: str = setting("", _SOURCE, allowed=OPTIONAL_NAME)


@dataclasses.dataclass
class PlateauConfig(base_config.Config):
    """Lowers the learning rate when evaluations stop improving. Off while it names no metric.

    The effective learning rate is max(scale * scheduled, min(scheduled, floor)). Each drop
    multiplies the scale by `factor`.
    """

    higher: tuple[str, ...] = setting((), "Metrics for which higher is better.", better="higher")
    lower: tuple[str, ...] = setting((), "Metrics for which lower is better.", better="lower")
    min_delta: float = setting(
        0.0, "A metric must gain more than this to be considered better.", allowed=SIZE
    )
    factor: float = setting(
        0.5, "Each drop multiplies the scale by this.", allowed=number(above=0, below=1)
    )
    tolerance: int = setting(
        1,
        "The learning rate drops after this many evaluations in a row without an improvement.",
        allowed=COUNT,
    )
    cooldown: int = setting(
        0, "After a drop, this many evaluations are not counted towards `tolerance`.", allowed=SIZE
    )
    floor: float = setting(0.0, "Drops do not lower the learning rate below this.", allowed=SIZE)
    source: str = setting("", _SOURCE, allowed=OPTIONAL_NAME)


@dataclasses.dataclass
class RetentionConfig(base_config.Config):
    """The checkpoints to keep in addition to the last `TrainerConfig.max_to_keep`."""

    every: int = setting(
        0,
        "Keeps the checkpoints at multiples of this number of steps permanently. 0: none.",
        allowed=SIZE,
    )
    best: int = setting(
        1,
        "Number of best checkpoints to keep in each directory. 0 needs "
        "`TrainerConfig.max_to_keep = 0`, and keeps one best checkpoint during the run but only "
        "the results after it.",
        allowed=SIZE,
    )
    from_step: int = setting(0, "Evaluations before this step cannot be the best.", allowed=SIZE)
    or_higher: tuple[str, ...] = setting(
        (),
        "Additional metrics, where higher is better, for the directory of "
        "`TrainerConfig.best_checkpoint_eval_metric`. The best is then the last evaluation in "
        "which that metric or any of these was better than ever before.",
        better="higher",
    )
    or_lower: tuple[str, ...] = setting(
        (), "Like `or_higher`, for metrics where lower is better.", better="lower"
    )
    higher: tuple[str, ...] = setting(
        (),
        "Metrics, where higher is better, that each have a separate directory for the best "
        "checkpoint, `best-<metric>`.",
        better="higher",
    )
    lower: tuple[str, ...] = setting(
        (), "Like `higher`, for metrics where lower is better.", better="lower"
    )


@dataclasses.dataclass
class EvaluationSetConfig(base_config.Config):
    """A named data set that is evaluated in addition to `task.validation_data`."""

    name: str = setting("", "The name of the set, also used for its charts.", allowed=NAME)
    data: cfg.DataConfig = setting(cfg.DataConfig, "The data, passed to the task's `build_inputs`.")
    interval: int = setting(
        0,
        "Steps between evaluations of the set. It is also evaluated at the end. 0: whenever the "
        "validation data are evaluated.",
        allowed=SIZE,
        resume=EVALUATIONS,
    )
    interval_epochs: float = setting(
        0.0, "Like `interval`, in epochs of the training data. 0: not set.", resume=STEPS
    )
    share: float = setting(
        1.0, "Fraction of the examples to evaluate, from the start of the data.", allowed=_SHARE
    )
    examples: int = setting(
        0, "Number of examples to evaluate, from the start of the data. 0: all.", allowed=SIZE
    )
    steps: int = setting(
        0, "Number of batches to evaluate, from the start of the data. 0: all.", allowed=SIZE
    )
    task: cfg.TaskConfig | None = setting(
        None,
        "A task that evaluates the set with the run's model, on the task's `validation_data`, "
        "as in Model Garden's multi-evaluation experiments. Set it for all sets or for none. If "
        "the sets have tasks, `task.validation_data` is not evaluated. None: the run's task.",
    )
    prefix: str = setting(
        "", "Prefix of the set's metric names. Empty: the set's name and a slash."
    )
    enabled: bool = setting(
        True,
        "Whether the set is evaluated. `name/EvaluationSetConfig.enabled = False` switches off a "
        "set of an included file.",
        read="elsewhere",
    )


@dataclasses.dataclass
class TestConfig(base_config.Config):
    """Data for a single test with the best weights when training has ended."""

    data: cfg.DataConfig | None = setting(
        None, "The test data, passed to the task's `build_inputs`. None: no test."
    )
    last: bool = setting(False, "Whether to also test the last weights.", read="elsewhere")
    at_end: bool = setting(
        True,
        "Whether to run the test when training has ended. If not, `--mode=eval --data=test` "
        "runs it. Trials of a study run no test: the study tests those of the configuration "
        "that it chooses.",
        resume=REPORTS,
        read="elsewhere",
    )


@dataclasses.dataclass
class EvaluatorConfig(base_config.Config):
    """An evaluation-only process: its name, its checkpoints and its schedule."""

    name: str = setting(
        "",
        "The evaluator's name. Its directory is `eval-<name>`. Empty: `continuous` for the mode "
        "`continuous_eval`, `once` for `eval`.",
        allowed=OPTIONAL_NAME,
    )
    policy: str = setting(
        "latest",
        "`latest` evaluates the newest checkpoint. `every` evaluates all checkpoints, and "
        "training keeps each until it has been evaluated.",
        allowed=one_of("latest", "every"),
    )
    min_seconds: float = setting(
        0.0,
        "Minimum seconds between the starts of two evaluations while training runs.",
        allowed=SIZE,
    )
    from_step: int = setting(0, "Checkpoints before this step are not evaluated.", allowed=SIZE)
    max_evaluations: int = setting(
        0,
        "The evaluator ends after this many evaluations, including those before a restart. 0: "
        "no limit.",
        allowed=SIZE,
    )
    max_failures: int = setting(
        3,
        "The evaluator gives up after this many evaluations in a row that raised an exception, "
        "or whose actions did. 0: never.",
        allowed=SIZE,
    )
    give_up: FunctionConfig | None = setting(
        None,
        "Called without arguments whenever training has had no heartbeat for "
        "`TrainerConfig.continuous_eval_timeout`. If it returns True, the evaluator ends with "
        "exit code 0. None: the evaluator ends with exit code 1.",
    )


@dataclasses.dataclass
class WeightMeanConfig(base_config.Config):
    """The average of the weights of several checkpoints (SWA), computed when the run has ended.

    The average is evaluated and kept in `mean/`. The checkpoints that it needs are kept until then.
    Checkpoints saved off schedule, for example after a signal, are not included. Off unless `last`
    or `from_step` is set.
    """

    last: int = setting(
        0, "Number of last checkpoints to average. 0: all from `from_step` on.", allowed=SIZE
    )
    from_step: int = setting(
        0,
        "Only checkpoints of this step or later are averaged. 0: all of the `last`.",
        allowed=SIZE,
        read="elsewhere",
    )
    every: int = setting(
        0,
        "Only checkpoints at multiples of this number of steps are averaged. 0: all.",
        allowed=SIZE,
        read="elsewhere",
    )
    batches: int = setting(
        100,
        "Number of training batches, from the start of the data, from which the statistics of "
        "batch normalization are recomputed.",
        allowed=COUNT,
        read="elsewhere",
    )

    def counts(self, step: int) -> bool:
        """Returns whether the average may include the checkpoint of `step`."""
        return step >= max(self.from_step, 1) and not (self.every and step % self.every)


@dataclasses.dataclass
class ExportConfig(base_config.Config):
    """The models that `--mode=export` makes from a checkpoint, and when it rejects them."""

    formats: tuple[str, ...] = setting(
        ("saved_model",),
        "Formats to export: `saved_model`, `tflite` and `tflite_float16` (weights in float32 or "
        "float16), `tflite_int8` (weights and activations in integers where LiteRT has the op), "
        "`onnx` (needs the extra of that name), and `pretrained` (the part that other tasks can "
        "start from, such as a BERT's encoder).",
        allowed=some_of(
            *("saved_model", "tflite", "tflite_float16", "tflite_int8", "onnx", "pretrained")
        ),
    )
    tolerance: float = setting(
        0.01,
        "A file is rejected if a metric differs from the checkpoint's by more than this. For a "
        "metric above 1, this is a fraction of the metric.",
        allowed=SIZE,
    )
    metrics: tuple[str, ...] = setting(
        (), "Metrics to compare. Empty: all metrics that are single numbers."
    )
    representative_examples: int = setting(
        100,
        "Number of training examples from which `tflite_int8` determines the ranges of "
        "activations. Training would use these examples next after the exported step.",
        allowed=COUNT,
    )


@dataclasses.dataclass
class EpochsConfig(base_config.Config):
    """Lengths and intervals in epochs of the training data, instead of Model Garden's steps.

    The n-th epoch ends at step round(n * steps), where the steps per epoch need not be a whole
    number. A field that is 0 or empty leaves Model Garden's field in effect.
    """

    rounding: str = setting(
        "nearest",
        "The step at which an epoch ends: the `nearest`, or `up`, which rounds each length up "
        "and makes intervals multiples of it. Runs started with earlier versions keep `up`.",
        allowed=one_of("nearest", "up"),
    )

    examples: int = setting(
        0, "Number of examples in an epoch. 0: taken from the data's configuration.", allowed=SIZE
    )
    train: float = setting(
        0.0, "Replaces `TrainerConfig.train_steps`.", stands_for="trainer.train_steps"
    )
    validation_interval: float = setting(
        0.0,
        "Replaces `TrainerConfig.validation_interval`.",
        stands_for="trainer.validation_interval",
    )
    checkpoint_interval: float = setting(
        0.0,
        "Replaces `TrainerConfig.checkpoint_interval`.",
        stands_for="trainer.checkpoint_interval",
    )
    summary_interval: float = setting(
        0.0, "Replaces `TrainerConfig.summary_interval`.", stands_for="trainer.summary_interval"
    )
    warmup: float = setting(
        0.0,
        "Replaces `warmup_steps` of the chosen warmup.",
        stands_for="trainer.optimizer_config.warmup.warmup_steps",
    )
    decay: float = setting(
        0.0,
        "Replaces `decay_steps` (or `total_decay_steps`) of the chosen schedule. If no length "
        "is set, the schedule ends with the run.",
        stands_for=f"{_SCHEDULE}.decay_steps",
    )
    boundaries: tuple[float, ...] = setting(
        (),
        "Replaces `boundaries` of a stepwise schedule. The learning rate changes in the step "
        "after a boundary, as in TensorFlow and Model Garden (`<=`). Other libraries change it "
        "at the boundary (`>=`).",
        stands_for=f"{_SCHEDULE}.boundaries",
    )
    boundary_shares: tuple[float, ...] = setting(
        (),
        "Like `boundaries`, as fractions of the training's length in epochs or in steps. The steps "
        "are rounded up if that length is given in steps.",
        stands_for=f"{_SCHEDULE}.boundaries",
    )
    stopping_from: float = setting(
        0.0,
        "Replaces `EarlyStoppingConfig.from_step`.",
        stands_for="run.early_stopping.from_step",
    )
    best_from: float = setting(
        0.0, "Replaces `RetentionConfig.from_step`.", stands_for="run.retention.from_step"
    )


@dataclasses.dataclass
class VariableGroupConfig(base_config.Config):
    """Variables, selected by name, to freeze or to give their own values."""

    name: str = setting(
        "", "The group's name. Its learning rate is logged as `learning_rate/<name>`.", allowed=NAME
    )
    pattern: str = setting(
        "",
        "A regular expression. The group contains the trainable variables whose names (such as "
        "`encoder/dense/bias`) contain a match, except those of earlier groups.",
        allowed=PATTERN,
    )
    rate_scale: float = setting(
        1.0,
        "Multiplies the current learning rate, including warmup, decay and drops. 0 leaves the "
        "variables unchanged.",
        allowed=SIZE,
    )
    weight_decay: float = setting(
        0.0,
        "Each update first subtracts this share of the weights, times the group's learning rate "
        "(decoupled weight decay). It adds to that of the optimizer.",
        allowed=number(at_least=0),
    )
    trainable: bool = setting(
        True,
        "False freezes the variables: they get no gradients, updates or optimizer slots. A "
        "layer whose trainable variables are all frozen behaves as with Keras's "
        "`layer.trainable = False`. Batch normalization then uses its running statistics "
        "without updating them.",
    )
    initializer: str = setting(
        "",
        "A tf_keras initializer, such as `glorot_uniform`. `init_checkpoint` overrides it. "
        "Empty: the model's initializer.",
        allowed=INITIALIZER,
        read="elsewhere",
    )


@dataclasses.dataclass
class FindRateConfig(base_config.Config):
    """The learning-rate range test of `--mode=find_rate`.

    The learning rate rises from `lowest` to `highest`, by the same factor each step.
    """

    lowest: float = setting(
        1e-6, "The learning rate of the first step.", allowed=_RATE, resume=REPORTS
    )
    highest: float = setting(
        10.0, "The learning rate of the last step.", allowed=_RATE, resume=REPORTS
    )
    steps: int = setting(100, "Number of steps.", allowed=number(at_least=10), resume=REPORTS)
    smoothing: float = setting(
        0.9,
        "The weight of earlier losses in the moving average of the loss. 0: no averaging.",
        allowed=number(at_least=0, below=1),
        resume=REPORTS,
    )
    divergence: float = setting(
        4.0,
        "The test ends when the average is this many times its minimum, or is not finite.",
        allowed=number(above=1),
        resume=REPORTS,
    )


@dataclasses.dataclass
class FindBatchConfig(base_config.Config):
    """The global batch sizes that `--mode=find_batch` tries. Each is twice the one before."""

    first: int = setting(
        0,
        "The first batch size. 0: `global_batch_size` of the training data.",
        allowed=SIZE,
        resume=REPORTS,
    )
    largest: int = setting(
        0,
        "The largest batch size to try. 0: the number of examples, if known.",
        allowed=SIZE,
        resume=REPORTS,
    )
    memory_gb: float = setting(
        0.0,
        "On Linux, a trial is ended if it uses more memory than this (GB of 10^9 bytes, without "
        "GPU memory). 0: limited only by the machine.",
        allowed=SIZE,
        resume=REPORTS,
    )
    seconds: float = setting(
        1.0, "Each size is timed for at least this long.", allowed=number(above=0), resume=REPORTS
    )
    gain: float = setting(
        0.05,
        "A size is considered faster if its throughput is higher by at least this fraction.",
        allowed=SIZE,
        resume=REPORTS,
    )
    patience: int = setting(
        2,
        "The search ends after this many sizes in a row that are not faster. 0: no limit.",
        allowed=SIZE,
        resume=REPORTS,
    )


@dataclasses.dataclass
class StudyConfig(base_config.Config):
    """A sweep over seeds, folds and values, run as one study of an experiment."""

    seeds: tuple[int, ...] = setting(
        (),
        "Seeds (`RunConfig.seed`) to train each configuration with. Empty: the experiment's "
        "seed. `--seeds=5` sets the seeds 0 to 4.",
    )
    best: int = setting(
        0,
        "After all configurations have been trained, this many of the best are also trained "
        "with `seeds_of_best`, as for a hyper-deep ensemble. 0: none.",
        allowed=SIZE,
    )
    seeds_of_best: tuple[int, ...] = setting((), "Additional seeds for the `best` configurations.")
    folds: int = setting(
        0,
        "Number of folds of the training data. Each configuration is trained once per fold. 0: "
        "no cross-validation.",
        allowed=number(at_least=2, also={0: "for none"}),
    )
    vary: tuple[str, ...] = setting(
        (),
        "The parameters to vary, each as `Name.parameter=VALUES`. VALUES is a list (`0.01,0.1` "
        "or `'adam','sgd'`), `uniform(a, b)`, `log(a, b)` or `int(a, b)`. Append ` if "
        "Name.parameter=value` to vary a parameter only if another one has that value.",
    )
    across: str = setting(
        "",
        "The parameter in `vary` that names the data set. The study then compares "
        "configurations over all data sets, by the interquartile mean, and runs no test.",
    )
    strategy: str = setting(
        "grid",
        "How to choose values: all combinations of lists (`grid`), at `random`, evenly spread "
        "(`quasi_random`), or from the results so far (`tpe`, `cma_es`, or `nsga2` for several "
        "`objectives`).",
        allowed=one_of("grid", "random", "quasi_random", "tpe", "cma_es", "nsga2"),
    )
    objectives: tuple[str, ...] = setting(
        (),
        "Objectives in addition to `TrainerConfig.best_checkpoint_eval_metric`. Each is a metric "
        "with its better direction (`f1:higher`), or a measure of the exported model "
        "(`tflite/bytes`, `saved_model/milliseconds`). Lower measures are better.",
    )
    limits: tuple[str, ...] = setting(
        (),
        "Limits on metrics and measures, such as `tflite/milliseconds <= 2`. A configuration that "
        "exceeds one is not chosen.",
    )
    trials: int = setting(0, "Number of configurations to try. 0: all of a grid.", allowed=SIZE)
    seed: int = setting(0, "Seeds the choice of values.", allowed=number(at_least=0, below=2**32))
    lag: int = setting(
        4,
        "Configuration n is chosen from the results up to n - lag. If there are more workers "
        "than this, some wait. The results do not depend on the number of workers.",
        allowed=COUNT,
    )
    jobs: int = setting(
        0,
        "Number of trials to run at once on this machine. 0: one per GPU, or one per core if "
        "there is no GPU.",
        allowed=SIZE,
    )
    stopping: str = setting(
        "",
        "The rule by which trials pause early, at rungs, and resume only if they do well: "
        "`asha`, `hyperband` or `median`. Empty for none. With `pbt` (population based "
        "training), all trials pause, and the worst continue from checkpoints of the best, with "
        "other values. With `race`, seeds are added until it is decided which configuration is "
        "best. Not available with `tpe`, `cma_es`, `nsga2`, `objectives` and `limits`.",
        allowed=one_of("", "asha", "hyperband", "median", "pbt", "race"),
    )
    level: float = setting(
        0.05,
        "With `race`, the probability of any wrong decision if all configurations are equal.",
        allowed=number(above=0, below=1),
    )
    margin: float = setting(
        0.0,
        "With `race`, differences of the metric up to this size do not matter. The study then "
        "also ends once no larger difference is possible. 0: every difference matters.",
        allowed=number(at_least=0),
    )
    first_rung: int = setting(
        0,
        "The step of the first rung, a multiple of `TrainerConfig.validation_interval`. 0: that "
        "interval.",
        allowed=SIZE,
    )
    factor: int = setting(
        3,
        "Each rung is at this many times the step of the previous one, and one in this many "
        "trials continues from it. With `median`, rungs are evenly spaced, and the better half "
        "continues. With `pbt`, rungs are evenly spaced, and one in this many members is "
        "replaced.",
        allowed=number(at_least=2),
    )
    resample: float = setting(
        0.25,
        "With `pbt`, the probability that a value is drawn again. Otherwise, it becomes a fifth "
        "higher or lower, or its neighbor in a list.",
        allowed=number(at_least=0, at_most=1),
    )
    tries: int = setting(
        3,
        "Number of attempts for a trial that fails unexpectedly (exit code 1). Rerunning the "
        "command resets the count.",
        allowed=COUNT,
    )
    failures: int = setting(
        5,
        "After this many unexpected failures in a row, a machine starts no more trials.",
        allowed=COUNT,
    )


@dataclasses.dataclass
class LaunchConfig(base_config.Config):
    """The resources and settings of a `--launch` job. Each attempt is one job."""

    name: str = setting(
        "", "The job's name. Empty: the name of its directory.", allowed=OPTIONAL_NAME
    )
    nodes: int = setting(
        1, "Number of machines, which share one run or the trials of a study.", allowed=COUNT
    )
    cpus: int = setting(0, "CPUs per node. 0: the scheduler's default.", allowed=SIZE)
    gpus: int = setting(0, "GPUs per node.", allowed=SIZE)
    memory_gb: float = setting(
        0.0,
        "Memory per node, in GB of 2^30 bytes. 0: the scheduler's default.",
        allowed=SIZE,
    )
    time: str = setting(
        "",
        "Time limit of an attempt, such as `2:30:00` or `1-12:00:00`. Empty: the scheduler's "
        "default.",
        allowed=TIME,
    )
    queue: str = setting("", "The queue to submit the job to.", allowed=OPTIONAL_NAME)
    grace_seconds: int = setting(
        120,
        "Seconds that the job has to save and exit before it is killed. Slurm signals the job "
        "this long before its time limit.",
        allowed=COUNT,
    )
    tries: int = setting(
        3,
        "The job gives up after this many attempts in a row that were preempted before they "
        "made a step.",
        allowed=COUNT,
    )
    options: tuple[str, ...] = setting(
        (), "Additional options for Slurm's sbatch, such as `--account=mine`."
    )
    image: str = setting("", "Kubernetes: an image with the runner and your code.")
    namespace: str = setting(
        "", "Kubernetes: the namespace. Empty uses kubectl's.", allowed=OPTIONAL_NAME
    )
    volumes: tuple[str, ...] = setting(
        (),
        "Kubernetes: persistent volume claims and their mount paths, such as `claim:/runs`.",
        allowed=VOLUMES,
    )
    secret_names: tuple[str, ...] = setting(
        (), "Kubernetes: Secrets of the cluster to expose as environment variables."
    )
    service_account: str = setting(
        "",
        "Kubernetes: the service account that gives the pods their rights, such as access to a "
        "bucket.",
        allowed=OPTIONAL_NAME,
    )
    node_labels: tuple[str, ...] = setting(
        (), "Kubernetes: use only nodes with these labels, such as `pool=gpu`.", allowed=LABELS
    )
    evaluator: bool = setting(
        False,
        "Kubernetes: whether to run an evaluator (`--mode=continuous_eval`) alongside training, "
        "in the same pod.",
    )
    address: str = setting(
        "",
        "The Ray cluster, such as `10.0.0.1:6379`. Empty: the one in RAY_ADDRESS, else one that "
        "runs on this machine, else a new one.",
    )
    environment: tuple[str, ...] = setting(
        (),
        "Environment variables: `NAME=value`, or `NAME` to pass on its value on the submitting "
        "machine. Do not use this for secrets.",
        allowed=VARIABLES,
    )


@dataclasses.dataclass
class WorkersConfig(base_config.Config):
    """How `--workers` restarts the workers of a run."""

    rest_seconds: float = setting(
        60.0,
        "A worker that failed is left out for this many seconds, if `--workers` allows fewer "
        "workers.",
        allowed=SIZE,
    )
    restarts_an_hour: int = setting(
        10, "After this many restarts within an hour, a failure ends the run.", allowed=SIZE
    )
    idle_starts: int = setting(
        2,
        "The run ends after this many attempts in a row that fail before they make a step.",
        allowed=COUNT,
    )


@dataclasses.dataclass
class RunConfig(base_config.Config):
    """The settings that this runner adds to Model Garden's config classes."""

    name: str = setting(
        "",
        "The run's directory below `--runs_dir`. Placeholders: `{name}` is the name of the gin "
        "file or of the registered experiment, `{model}` is the type of the task's model, and "
        "`{run.seed}` is a value. Empty: `{name}`.",
        resume=NOTES,
        read="elsewhere",
    )
    seed: int = setting(
        0,
        "Seeds the weights, dropout, and everything random without a seed below.",
        allowed=number(at_least=0, below=2**32),
    )
    data_seed: int = setting(
        -1,
        "Seeds the order of training examples. With a `tf.data` pipeline of the task, it also "
        "seeds the random changes to them. -1: `seed`.",
        allowed=number(at_least=-1, below=2**32),
    )
    augmentation_seed: int = setting(
        -1,
        "Seeds the random changes to examples of `runner.inputs` and in-memory data. -1: the seed "
        "of their order.",
        allowed=number(at_least=-1, below=2**32),
    )
    deterministic: bool = setting(
        True,
        "Whether every op gives the same bits every time, which a bit-exact resume needs. "
        "TensorFlow then avoids some faster kernels, mostly on GPUs.",
    )
    inputs: str = setting(
        "stream",
        "How training reads a task's own `tf.data` pipeline over TFRecords. `stream` reads it "
        "as the task builds it. `indexed` reads its records by index, in an order that depends "
        "only on seed and step, so a resumed run reaches any step at once. Decoding, parsing "
        "and batching do not change. Pipelines that cannot be indexed (several data sets, "
        "filters, `tf.data` service) are streamed, and the log explains why.",
        allowed=one_of("stream", "indexed"),
    )
    resume_inputs: str = setting(
        "exact",
        "How a resume continues with data whose position is not in the checkpoint and does not "
        "follow from the step. `exact` reads them from the start up to the step (a replay), which "
        "can take as long as the training before it. `fresh_shuffle` continues at once with a "
        "newly seeded epoch, so the run is not bit-exact. `history.jsonl` records that.",
        allowed=one_of("exact", "fresh_shuffle"),
        resume=RESUMES,
    )
    max_bad_examples: int = setting(
        0,
        "Maximum number of damaged examples of indexed training data that one attempt skips. The "
        "next intact example replaces each of them. One more ends the run.",
        allowed=SIZE,
    )
    recheck_every: int = setting(
        0,
        "Repeats every Nth training step from the same state, where N is this value, and compares "
        "all bits, to find faulty hardware. 0: never. Each repetition costs at least one step.",
        allowed=SIZE,
        resume=REPORTS,
    )
    on_corruption: str = setting(
        "stop",
        "What happens if a repeated step gives other bits. `stop` ends the run. `roll_back` "
        "continues from the newest checkpoint, and ends the run if the same step fails again.",
        allowed=one_of("stop", "roll_back"),
        resume=REPORTS,
        read="elsewhere",
    )
    async_checkpoints: bool = setting(
        True, "Whether training continues while checkpoints are written.", resume=REPORTS
    )
    verify_checkpoints: bool = setting(
        False,
        "Whether each checkpoint is read back from the disk and verified before it counts as "
        "saved. If it differs, the run ends, and can continue from the checkpoint before.",
        resume=REPORTS,
    )
    checkpoint_seconds: float | str = setting(
        0.0,
        "Saves an extra checkpoint at the end of a loop if the last one is this many seconds "
        "old, independently of `TrainerConfig.checkpoint_interval`. 0: never. `continuous`: as "
        "soon as the last one is written, if saving takes at most 2 % of the time. A run can "
        "resume from extra checkpoints and evaluate them, but rollbacks do not use them, and "
        "training stays bit-exact. (A decision of a separate evaluator takes effect at any "
        "checkpoint, and is recorded there.)",
        allowed=number(at_least=0, also={schedule.CONTINUOUS: "for as often as possible"}),
        resume=REPORTS,
    )
    evaluations_commit: bool = setting(
        True,
        "Whether to save a checkpoint before each evaluation. If not, an evaluation between two "
        "multiples of `TrainerConfig.checkpoint_interval` saves one only if it is among the "
        "best. After a kill, that evaluation and the steps before it are repeated.",
        resume=REPORTS,
    )
    logical_cpus: int = setting(
        1,
        "Number of CPU devices for the `mirrored` strategy on a machine without GPUs.",
        allowed=COUNT,
        resume=DEVICES,
    )
    workers_timeout: float = setting(
        300.0,
        "Seconds that the workers of a run wait for each other when they start.",
        allowed=number(above=0),
        resume=DEVICES,
        read="elsewhere",
    )
    intra_op_threads: int = setting(
        0,
        "Number of threads for one op on CPUs. 0: TensorFlow chooses.",
        allowed=SIZE,
        resume=DEVICES,
    )
    inter_op_threads: int = setting(
        0,
        "Number of ops that may run in parallel on CPUs. 0: TensorFlow chooses.",
        allowed=SIZE,
        resume=DEVICES,
    )
    peak_flops: float = setting(
        0.0,
        "Peak FLOP/s of one device, for the utilization `mfu`. 0: the manufacturer's value, if "
        "known.",
        allowed=SIZE,
        resume=REPORTS,
    )
    training_rows: bool = setting(
        True, "Whether to write `train.jsonl`. Reports draw curves from it.", resume=REPORTS
    )
    tensorboard: bool = setting(True, "Whether to write TensorBoard events.", resume=REPORTS)
    tensorboard_kinds: tuple[str, ...] = setting(
        TENSORBOARD,
        "The events to write: metrics of training (`train`), of `validation`, of other "
        "evaluation `sets` and of the `test`, the task's images (`pictures`), the run's row of "
        "the HPARAMS table (`hparams`), and system metrics (`system`).",
        allowed=some_of(*TENSORBOARD),
        resume=REPORTS,
    )
    tensorboard_graph: bool = setting(
        False,
        "Whether a new run writes the graph of its training step for the Graphs tab of "
        "TensorBoard.",
        resume=REPORTS,
    )
    summary_seconds: float = setting(
        0.0,
        "Adds a point to TensorBoard's training charts if the last one is this many seconds "
        "old. It shows the means since the last multiple of `TrainerConfig.summary_interval`. "
        "0: never. These points are not in `train.jsonl`, which is the same in every run.",
        allowed=SIZE,
        resume=REPORTS,
    )
    system_seconds: float = setting(
        10.0,
        "Seconds between samples of processor, memory, disk, network and GPUs in `system.jsonl` "
        "and TensorBoard. 0: never.",
        allowed=SIZE,
        resume=REPORTS,
    )
    profile_every: int = setting(
        0,
        "Profiles three steps up to each multiple of this number, like `--profile_steps`, and "
        "keeps the newest five profiles. 0: never.",
        allowed=SIZE,
        resume=REPORTS,
    )
    rollback_rate: float = setting(
        1.0,
        "Each rollback of a diverged run multiplies the learning rate by this. "
        "`TrainerConfig.recovery_max_trials` limits the rollbacks.",
        allowed=_SHARE,
        resume=ROLLBACKS,
    )
    gradient_accumulation: int = setting(
        1,
        "Number of equal parts of each replica's batch that are trained on one after the other, "
        "before the mean of their gradients is applied. A step is still one update.",
        allowed=COUNT,
    )
    log_gradient_norm: bool = setting(
        False,
        "Whether the training metrics include `gradient_norm`: the mean of the global norms of "
        "the applied gradients, before clipping.",
    )
    log_validation_gradient_norm: bool = setting(
        False,
        "Whether each evaluation also measures `validation_gradient_norm`: the global norm of the "
        "gradient of the loss on the first batch of the validation data, without dropout.",
        read="evaluation",
    )
    actions: tuple[ActionConfig, ...] = setting(
        (),
        "Functions to call after loops and evaluations: `(@my_actions.Draw(),)`, or "
        "`ActionConfig`s that also define when.",
        resume=REPORTS,
        read="elsewhere",
    )
    writers: tuple[FunctionConfig, ...] = setting(
        (),
        "Functions that get each training row and the results of each data set, in addition to "
        "TensorBoard. They are called as `writer(step, values, name)`, where `values` maps "
        "names to numbers, and `name` is `train`, `validation` or the set's name. If a writer "
        "has a method `close`, it is called at the end. Steps may repeat after a resume, and "
        "the later values are the valid ones.",
        resume=REPORTS,
        read="elsewhere",
    )
    loggers: tuple[str, ...] = setting(
        (),
        "Other destinations for the run's metrics: `mlflow` and `wandb`, which need the extras "
        "with these names, and `csv`, which writes tables in `loggers/`. Each logger is a "
        "separate process, and training never waits for it.",
        allowed=some_of(*plugins.names("runner.run_directory.loggers", "to_"), or_none=True),
        resume=REPORTS,
        read="elsewhere",
    )
    mirror: str = setting(
        "",
        "A URL that the run's directory is copied to during training, such as "
        "`s3://bucket/run`. Training does not wait for it, but the run ends only when the copy "
        "is complete. Empty: no copy.",
        resume=REPORTS,
        read="elsewhere",
    )
    mirror_timeout: float = setting(
        600.0,
        "Seconds that the end of a run waits for the last state to reach a bucket. After that, "
        "the run fails and reports what is missing there.",
        allowed=SIZE,
        resume=REPORTS,
        read="elsewhere",
    )
    stopping_rules: tuple[FunctionConfig, ...] = setting(
        (),
        "Functions that are called after each evaluation. `rule(evaluations)` gets all "
        "evaluations so far, as pairs of step and metrics, and returns the reason to stop, or "
        "None. Its result must depend only on them, because a resumed run calls it again.",
        resume=LENGTH,
        read="evaluation",
    )
    variable_groups: tuple[VariableGroupConfig, ...] = setting(
        (),
        "Groups of variables to freeze, or to give a separate learning rate or initializer. The "
        "first match applies.",
    )
    limit_train: int = setting(
        0,
        "For quick checks, training repeats the first N batches of the run, where N is this "
        "value. 1 overfits one batch. An epoch then has N batches, or all examples if these are "
        "fewer. 0: no limit.",
        allowed=SIZE,
    )
    limit_evaluation: int = setting(
        0,
        "For quick checks, only the first N batches of each set are evaluated, where N is this "
        "value. 0: no limit. Results and rows of history record the limit.",
        allowed=SIZE,
        read="evaluation",
    )
    notify: str = setting(
        "",
        "The receiver of a message when the run ends or improves. It is the URL of a webhook, "
        "which receives JSON, `$NAME` for a URL in the environment, or a shell command, which "
        "gets the JSON on stdin and `$RUNNER_TEXT`. Training does not wait. Empty: no messages.",
        resume=REPORTS,
        read="elsewhere",
    )
    notify_on: tuple[str, ...] = setting(
        ("done", "stopped", "preempted", "diverged", "failed"),
        "Events to notify about: how a run ends, or `best` for a new best evaluation.",
        allowed=some_of("done", "stopped", "preempted", "diverged", "failed", "best"),
        resume=REPORTS,
        read="elsewhere",
    )
    pause_at: int = setting(
        0,
        "The run pauses at this step. It saves and evaluates, but does not test. To continue, "
        "rerun the command with a later step, or with 0 for no pause.",
        allowed=SIZE,
        resume=LENGTH,
        read="elsewhere",
    )
    early_stopping: EarlyStoppingConfig = setting(
        EarlyStoppingConfig, "When to end the run early.", resume=LENGTH
    )
    plateau: PlateauConfig = setting(PlateauConfig, "When to lower the learning rate.")
    retention: RetentionConfig = setting(
        RetentionConfig, "Which checkpoints to keep.", resume=KEPT, read="evaluation"
    )
    weight_mean: WeightMeanConfig = setting(
        WeightMeanConfig,
        "Which checkpoints to average at the end.",
        resume=KEPT,
        read="evaluation",
    )
    evaluation_sets: tuple[EvaluationSetConfig, ...] = setting(
        (),
        "Data sets to evaluate in addition to the validation data.",
        resume=EVALUATIONS,
        read="evaluation",
    )
    test: TestConfig = setting(
        TestConfig,
        "The data to test the best weights on at the end.",
        resume=REPORTS,
        read="evaluation",
    )
    evaluator: EvaluatorConfig = setting(
        EvaluatorConfig, "Settings of a process that only evaluates.", resume=KEPT, read="elsewhere"
    )
    export: ExportConfig = setting(
        ExportConfig, "Formats and validation of exports.", resume=REPORTS, read="elsewhere"
    )
    find_rate: FindRateConfig = setting(
        FindRateConfig, "How `--mode=find_rate` tries learning rates.", read="elsewhere"
    )
    find_batch: FindBatchConfig = setting(
        FindBatchConfig, "How `--mode=find_batch` tries batch sizes.", read="elsewhere"
    )
    epochs: EpochsConfig = setting(
        EpochsConfig, "Lengths and intervals in epochs.", resume=STEPS, read="elsewhere"
    )
    tags: tuple[str, ...] = setting(
        (), "Labels for finding this run in `--mode=runs`.", resume=NOTES, read="elsewhere"
    )
    notes: str = setting(
        "",
        "A description of this run, for `--mode=runs`.",
        resume=NOTES,
        read="elsewhere",
    )
    study: StudyConfig | None = setting(
        None, "What `--mode=study` varies. None for a single run.", resume=REPORTS, read="elsewhere"
    )
    launch: LaunchConfig = setting(
        LaunchConfig,
        "Resources and settings of a `--launch` job.",
        resume=REPORTS,
        read="elsewhere",
    )
    workers: WorkersConfig = setting(
        WorkersConfig, "How `--workers` restarts workers.", resume=REPORTS, read="elsewhere"
    )

    def draws(self, kind: str) -> bool:
        """Returns whether events of one kind of `TENSORBOARD` are written."""
        return self.tensorboard and kind in self.tensorboard_kinds
