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
from runner.core import plugins

TENSORBOARD = ("train", "validation", "sets", "test", "pictures", "hparams", "system")
"""The kinds of TensorBoard events."""

_SCHEDULE = "trainer.optimizer_config.learning_rate"
_SHARE = number(above=0, at_most=1)
_RATE = number(above=0, below=float("inf"))
_SOURCE = (
    "Whose evaluations count: empty, the training run's own; otherwise those of the evaluator with "
    "this name."
)


@dataclasses.dataclass
class ActionConfig(base_config.Config):
    """A user-defined action and when to call it, like Orbit's ConditionalAction.

    An action is called the way Model Garden calls its own: with the logs of a training loop or the
    results of an evaluation, as a mapping from names to tensors. If the action returns a string,
    the run stops and gives that string as the reason.
    """

    action: FunctionConfig = setting(
        FunctionConfig,
        "What is called: in gin `@my_actions.function`, or `@my_actions.Class()`, whose object is "
        "called.",
    )
    at: str = setting(
        "loop",
        "When: after each training `loop`; after each `evaluation`; after an evaluation that is "
        "the `best` so far; at the `end` of training, with the newest training and evaluation "
        "metrics, each time that a command reaches it.",
        allowed=one_of("loop", "evaluation", "best", "end"),
    )
    every: int = setting(
        0,
        "With `loop`: only at multiples of this many steps, at which loops then end, and at the "
        "last step; 0: after every loop, wherever it ends.",
        allowed=SIZE,
    )


@dataclasses.dataclass
class EarlyStoppingConfig(base_config.Config):
    """Ends a run that no longer improves. Off while it names no metric.

    An evaluation is an improvement if any of the metrics beats its best value so far by more than
    `min_delta`.
    """

    higher: tuple[str, ...] = setting((), "Metrics of which higher is better.", better="higher")
    lower: tuple[str, ...] = setting((), "Metrics of which lower is better.", better="lower")
    min_delta: float = setting(
        0.0, "A metric must gain more than this to count as better.", allowed=SIZE
    )
    patience: int = setting(
        5, "This many evaluations in a row without a gain end the run.", allowed=COUNT
    )
    from_step: int = setting(0, "Evaluations before this step do not count.", allowed=SIZE)
    source: str = setting("", _SOURCE, allowed=OPTIONAL_NAME)


@dataclasses.dataclass
class PlateauConfig(base_config.Config):
    """Lowers the learning rate when evaluations stop improving. Off while it names no metric.

    The effective learning rate is max(scale * scheduled, min(scheduled, floor)). Each drop
    multiplies the scale by `factor`.
    """

    higher: tuple[str, ...] = setting((), "Metrics of which higher is better.", better="higher")
    lower: tuple[str, ...] = setting((), "Metrics of which lower is better.", better="lower")
    min_delta: float = setting(
        0.0, "A metric must gain more than this to count as better.", allowed=SIZE
    )
    factor: float = setting(
        0.5, "Each drop multiplies the scale by this.", allowed=number(above=0, below=1)
    )
    tolerance: int = setting(
        1, "This many evaluations in a row without a gain drop the rate.", allowed=COUNT
    )
    cooldown: int = setting(0, "This many evaluations after a drop do not count.", allowed=SIZE)
    floor: float = setting(0.0, "Drops do not take the rate below this.", allowed=SIZE)
    source: str = setting("", _SOURCE, allowed=OPTIONAL_NAME)


@dataclasses.dataclass
class RetentionConfig(base_config.Config):
    """The checkpoints to keep in addition to the last `TrainerConfig.max_to_keep`."""

    every: int = setting(
        0, "Checkpoints at multiples of this many steps are kept for good; 0: none.", allowed=SIZE
    )
    best: int = setting(
        1,
        "How many of the best are kept in each folder; 0, with `TrainerConfig.max_to_keep = 0`: "
        "one, and once the run has ended only its results.",
        allowed=SIZE,
    )
    from_step: int = setting(0, "Evaluations before this step cannot be the best.", allowed=SIZE)
    or_higher: tuple[str, ...] = setting(
        (),
        "More metrics, higher being better, that decide about the folder of "
        "`TrainerConfig.best_checkpoint_eval_metric`: the best is then the last evaluation in "
        "which any of these, or that one, was better than ever before.",
        better="higher",
    )
    or_lower: tuple[str, ...] = setting((), "The same, with lower being better.", better="lower")
    higher: tuple[str, ...] = setting(
        (),
        "Metrics, higher being better, each with a folder of its own best, `best-<metric>`, beside "
        "that one.",
        better="higher",
    )
    lower: tuple[str, ...] = setting((), "The same, with lower being better.", better="lower")


@dataclasses.dataclass
class EvaluationSetConfig(base_config.Config):
    """A named data set that is evaluated in addition to `task.validation_data`."""

    name: str = setting("", "The name of the set and of its charts.", allowed=NAME)
    data: cfg.DataConfig = setting(cfg.DataConfig, "Given to the task's `build_inputs`.")
    interval: int = setting(
        0,
        "Evaluated at multiples of this many steps and at the end; 0: whenever validation is.",
        allowed=SIZE,
        resume=EVALUATIONS,
    )
    interval_epochs: float = setting(
        0.0, "The same in epochs of the training data; 0: not given.", resume=STEPS
    )
    share: float = setting(
        1.0, "The share of the examples that is evaluated, the first ones.", allowed=_SHARE
    )
    examples: int = setting(0, "The same as a number of examples; 0: all.", allowed=SIZE)
    steps: int = setting(0, "The same as a number of batches; 0: all.", allowed=SIZE)
    task: cfg.TaskConfig | None = setting(
        None,
        "The task that evaluates the set with the model of the run, on its own `validation_data`, "
        "as in Model Garden's multi-evaluation experiments. Give one to each set or to none. If "
        "the sets have tasks, `task.validation_data` is not evaluated. None: the task of the run.",
    )
    prefix: str = setting(
        "", "Put before the names of its metrics; empty: the set's name and a slash."
    )


@dataclasses.dataclass
class TestConfig(base_config.Config):
    """Data for a single test with the best weights when training has ended."""

    data: cfg.DataConfig | None = setting(
        None, "Given to the task's `build_inputs`; None: nothing is tested."
    )
    last: bool = setting(False, "Whether the last weights are tested, too.")
    at_end: bool = setting(
        True,
        "Whether a run tests when it has ended; if not, `--mode=eval --data=test` can. A study's "
        "trials do not: the study tests those of the configuration that it chooses.",
        resume=REPORTS,
        read="elsewhere",
    )


@dataclasses.dataclass
class EvaluatorConfig(base_config.Config):
    """An evaluation-only process: its name, its checkpoints and its schedule."""

    name: str = setting(
        "", "Names its own folder, `eval-<name>`; empty: the mode's name.", allowed=OPTIONAL_NAME
    )
    policy: str = setting(
        "latest",
        "`latest` evaluates the newest checkpoint; `every` evaluates all of them, and training "
        "keeps them until then.",
        allowed=one_of("latest", "every"),
    )
    min_seconds: float = setting(
        0.0, "Seconds between the starts of two evaluations while training goes on.", allowed=SIZE
    )
    from_step: int = setting(0, "Checkpoints before this step are left out.", allowed=SIZE)
    max_evaluations: int = setting(
        0,
        "It ends after this many evaluations, including those before a restart; 0: no limit.",
        allowed=SIZE,
    )
    max_failures: int = setting(
        3,
        "It gives up after this many evaluations in a row that raised an exception, or whose "
        "actions did; 0: never.",
        allowed=SIZE,
    )
    give_up: FunctionConfig | None = setting(
        None,
        "Called without arguments whenever training has shown no sign of life for "
        "`TrainerConfig.continuous_eval_timeout`; says whether to end, with exit code 0. None: it "
        "ends, with exit code 1.",
    )


@dataclasses.dataclass
class WeightMeanConfig(base_config.Config):
    """The average of the weights of several checkpoints (SWA), computed when the run has ended.

    The average is evaluated and kept in `mean/`. The checkpoints that it needs are kept until then.
    Checkpoints saved off schedule, for example after a signal, are not included. Off unless `last`
    or `from_step` is set.
    """

    last: int = setting(
        0, "The mean of this many last checkpoints; 0: of all from `from_step` on.", allowed=SIZE
    )
    from_step: int = setting(
        0,
        "Only checkpoints of this step or later; 0: all of the `last`.",
        allowed=SIZE,
        read="elsewhere",
    )
    every: int = setting(
        0,
        "Only checkpoints at multiples of this many steps; 0: all.",
        allowed=SIZE,
        read="elsewhere",
    )
    batches: int = setting(
        100,
        "From how many batches of the training data, the first ones, the statistics of batch "
        "normalization are computed anew.",
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
        "What is made: `saved_model`; `tflite` and `tflite_float16`, with weights in those "
        "precisions; `tflite_int8`, with weights and activations in integers where LiteRT has the "
        "op; `onnx`, which needs the extra of that name; `pretrained`, what other tasks may begin "
        "with, such as a BERT's encoder.",
        allowed=some_of(
            *("saved_model", "tflite", "tflite_float16", "tflite_int8", "onnx", "pretrained")
        ),
    )
    tolerance: float = setting(
        0.01,
        "A file is rejected if a metric differs from the checkpoint's by more, up or down; of a "
        "metric above 1, by more than this share of it.",
        allowed=SIZE,
    )
    metrics: tuple[str, ...] = setting(
        (), "The metrics that are compared; empty: all that are single numbers."
    )
    representative_examples: int = setting(
        100,
        "How many training examples `tflite_int8` takes the ranges of activations from: the first "
        "that training would go on with after the exported step.",
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
        "The step that ends an epoch: the `nearest`; or `up`, as in runs begun with earlier "
        "versions, which keep it: each length is rounded up, and intervals are multiples of it.",
        allowed=one_of("nearest", "up"),
    )

    examples: int = setting(
        0, "How many examples make an epoch; 0: as the data's configuration says.", allowed=SIZE
    )
    train: float = setting(
        0.0, "In place of `TrainerConfig.train_steps`.", stands_for="trainer.train_steps"
    )
    validation_interval: float = setting(
        0.0,
        "In place of `TrainerConfig.validation_interval`.",
        stands_for="trainer.validation_interval",
    )
    checkpoint_interval: float = setting(
        0.0,
        "In place of `TrainerConfig.checkpoint_interval`.",
        stands_for="trainer.checkpoint_interval",
    )
    summary_interval: float = setting(
        0.0, "In place of `TrainerConfig.summary_interval`.", stands_for="trainer.summary_interval"
    )
    warmup: float = setting(
        0.0,
        "In place of the chosen warm-up's `warmup_steps`.",
        stands_for="trainer.optimizer_config.warmup.warmup_steps",
    )
    decay: float = setting(
        0.0,
        "In place of the chosen schedule's `decay_steps` (or `total_decay_steps`); where neither "
        "is given, the schedule ends with the run.",
        stands_for=f"{_SCHEDULE}.decay_steps",
    )
    boundaries: tuple[float, ...] = setting(
        (),
        "In place of a stepwise schedule's `boundaries`. The rate changes in the step after a "
        "boundary, as TensorFlow has it (`<=`), not at the boundary, as others do (`>=`): runs of "
        "Model Garden have the same rates.",
        stands_for=f"{_SCHEDULE}.boundaries",
    )
    boundary_shares: tuple[float, ...] = setting(
        (),
        "The same as shares of the training's length, whether that is given in epochs or in steps.",
        stands_for=f"{_SCHEDULE}.boundaries",
    )
    stopping_from: float = setting(
        0.0,
        "In place of `EarlyStoppingConfig.from_step`.",
        stands_for="run.early_stopping.from_step",
    )
    best_from: float = setting(
        0.0, "In place of `RetentionConfig.from_step`.", stands_for="run.retention.from_step"
    )


@dataclasses.dataclass
class VariableGroupConfig(base_config.Config):
    """Variables, selected by name, to freeze or to give a learning rate or an initializer."""

    name: str = setting(
        "", "The group's name; its rate is logged as `learning_rate/<name>`.", allowed=NAME
    )
    pattern: str = setting(
        "",
        "A regular expression. The trainable variables whose names (`encoder/dense/bias`) contain "
        "a match are the group, without those of the groups before it.",
        allowed=PATTERN,
    )
    rate_scale: float = setting(
        1.0,
        "Multiplies the learning rate in force, and with it warm-up, decay and drops. 0 leaves the "
        "variables as they are.",
        allowed=SIZE,
    )
    trainable: bool = setting(
        True,
        "False freezes the variables: no gradient, no update, no slots. A layer whose trainable "
        "variables are all frozen is frozen as by Keras's `layer.trainable = False`, so a batch "
        "normalization uses its running statistics and leaves them as they are.",
    )
    initializer: str = setting(
        "",
        "A tf_keras initializer, such as `glorot_uniform`; empty: the model's own. An "
        "`init_checkpoint` overrides it.",
        allowed=INITIALIZER,
        read="elsewhere",
    )


@dataclasses.dataclass
class FindRateConfig(base_config.Config):
    """The learning-rate range test of `--mode=find_rate`.

    The learning rate rises from `lowest` to `highest`, by the same factor each step.
    """

    lowest: float = setting(1e-6, "The rate of the first step.", allowed=_RATE, resume=REPORTS)
    highest: float = setting(10.0, "The rate of the last step.", allowed=_RATE, resume=REPORTS)
    steps: int = setting(100, "How many steps.", allowed=number(at_least=10), resume=REPORTS)
    smoothing: float = setting(
        0.9,
        "The weight of the past in the moving average of the loss; 0: the loss itself.",
        allowed=number(at_least=0, below=1),
        resume=REPORTS,
    )
    divergence: float = setting(
        4.0,
        "The test ends when the average is this many times its lowest, or is not finite.",
        allowed=number(above=1),
        resume=REPORTS,
    )


@dataclasses.dataclass
class FindBatchConfig(base_config.Config):
    """The global batch sizes that `--mode=find_batch` tries. Each is twice the one before."""

    first: int = setting(
        0,
        "The first size; 0: `global_batch_size` of the training data.",
        allowed=SIZE,
        resume=REPORTS,
    )
    largest: int = setting(
        0,
        "No larger size is tried; 0: no limit but the number of examples, where that is known.",
        allowed=SIZE,
        resume=REPORTS,
    )
    memory_gb: float = setting(
        0.0,
        "Memory (GB of 10^9 bytes, without that of GPUs) at which a trial is ended, on Linux; "
        "0: no limit but the machine's.",
        allowed=SIZE,
        resume=REPORTS,
    )
    seconds: float = setting(
        1.0, "Each size is timed for this long at least.", allowed=number(above=0), resume=REPORTS
    )
    gain: float = setting(
        0.05, "A size counts as faster if it is so by this share.", allowed=SIZE, resume=REPORTS
    )
    patience: int = setting(
        2,
        "The search ends after this many sizes in a row that are no faster; 0: it goes on.",
        allowed=SIZE,
        resume=REPORTS,
    )


@dataclasses.dataclass
class StudyConfig(base_config.Config):
    """A sweep over seeds, folds and values, run as one study of an experiment."""

    seeds: tuple[int, ...] = setting(
        (),
        "Each configuration is trained with each of these seeds (`RunConfig.seed`); empty: with "
        "the experiment's own. `--seeds=5` stands for the experiment's own and the four after it.",
    )
    best: int = setting(
        0,
        "Once all configurations have been trained, this many of the best are trained with "
        "`seeds_of_best`, too, as for a hyper-deep ensemble; 0: none.",
        allowed=SIZE,
    )
    seeds_of_best: tuple[int, ...] = setting((), "The further seeds of the `best` configurations.")
    folds: int = setting(
        0,
        "Each is trained on this many folds of the training data; 0: on all of them.",
        allowed=number(at_least=2, also={0: "for none"}),
    )
    vary: tuple[str, ...] = setting(
        (),
        "What varies, each as `Name.parameter=VALUES`. VALUES are a list (`0.01,0.1` or "
        "`'adam','sgd'`), or `uniform(a, b)`, `log(a, b)`, `int(a, b)`. ` if "
        "Name.parameter=value` at the end: only where another one has that value.",
    )
    across: str = setting(
        "",
        "The parameter of `vary` that names the data set. Configurations are then compared over "
        "all data sets, by the interquartile mean, and nothing is tested.",
    )
    strategy: str = setting(
        "grid",
        "How values are chosen: all combinations of lists (`grid`), at `random`, evenly "
        "(`quasi_random`), or from the results so far (`tpe`, `cma_es`).",
        allowed=one_of("grid", "random", "quasi_random", "tpe", "cma_es"),
    )
    trials: int = setting(0, "How many configurations are tried; 0: all of a grid.", allowed=SIZE)
    seed: int = setting(0, "Seeds the choice of values.", allowed=number(at_least=0, below=2**32))
    lag: int = setting(
        4,
        "Configuration n is chosen from the results up to n - lag. More workers than this wait for "
        "each other; results do not depend on how many there are.",
        allowed=COUNT,
    )
    jobs: int = setting(
        0,
        "How many trials run side by side on this machine; 0: as many as it has room for.",
        allowed=SIZE,
    )
    stopping: str = setting(
        "",
        "Which trials pause early, at rungs, and go on only if they do well: `asha`, `hyperband`, "
        "`median`; empty: none. With `pbt` (population based training) all pause, and the worst go "
        "on from checkpoints of the best, with other values. Not with `tpe` and `cma_es`.",
        allowed=one_of("", "asha", "hyperband", "median", "pbt"),
    )
    first_rung: int = setting(
        0,
        "The step of the first rung, a multiple of `TrainerConfig.validation_interval`; 0: that "
        "interval.",
        allowed=SIZE,
    )
    factor: int = setting(
        3,
        "Each rung is this many times as far as the one before, and one of this many trials goes "
        "on from it. With `median`, rungs are evenly spaced, and the better half goes on. With "
        "`pbt`, too, and one of this many members is replaced.",
        allowed=number(at_least=2),
    )
    resample: float = setting(
        0.25,
        "With `pbt`, how often a value is drawn anew; else it becomes a fifth more or less, or its "
        "neighbour in a list.",
        allowed=number(at_least=0, at_most=1),
    )
    tries: int = setting(
        3,
        "How often a trial is started that fails unexpectedly (exit code 1). The same command, "
        "started again, counts anew.",
        allowed=COUNT,
    )
    failures: int = setting(
        5,
        "After this many unexpected failures in a row on one machine, it takes no more trials.",
        allowed=COUNT,
    )


@dataclasses.dataclass
class LaunchConfig(base_config.Config):
    """The resources and settings of a `--launch` job. Each attempt is one job."""

    name: str = setting("", "What the job is called; empty: as its folder.", allowed=OPTIONAL_NAME)
    nodes: int = setting(
        1, "How many machines: they share one run, or the trials of a study.", allowed=COUNT
    )
    cpus: int = setting(0, "CPUs per node. 0 uses the default of the scheduler.", allowed=SIZE)
    gpus: int = setting(0, "GPUs per node.", allowed=SIZE)
    memory_gb: float = setting(
        0.0,
        "Memory per node, in GB of 2^30 bytes. 0 uses the default of the scheduler.",
        allowed=SIZE,
    )
    time: str = setting(
        "",
        "How long a start may take, as `2:30:00` or `1-12:00:00`; empty: what is usual there.",
        allowed=TIME,
    )
    queue: str = setting("", "The queue that the job waits in.", allowed=OPTIONAL_NAME)
    grace_seconds: int = setting(
        120,
        "The job is told to save and end this long before its time, and is not killed sooner "
        "after it was told.",
        allowed=COUNT,
    )
    tries: int = setting(
        3,
        "The job is given up after this many starts in a row that were preempted before they had "
        "made a step.",
        allowed=COUNT,
    )
    options: tuple[str, ...] = setting((), "Further options of Slurm's sbatch: `--account=mine`.")
    image: str = setting("", "Kubernetes: the image with the runner and your code.")
    namespace: str = setting(
        "", "Kubernetes: the namespace; empty: kubectl's.", allowed=OPTIONAL_NAME
    )
    volumes: tuple[str, ...] = setting(
        (),
        "Kubernetes: claims of volumes, and where each is seen: `claim:/runs`.",
        allowed=VOLUMES,
    )
    secret_names: tuple[str, ...] = setting(
        (), "Kubernetes: Secrets of the cluster, whose entries become variables of the environment."
    )
    service_account: str = setting(
        "", "Kubernetes: whose rights the pods have, as to a bucket.", allowed=OPTIONAL_NAME
    )
    node_labels: tuple[str, ...] = setting(
        (), "Kubernetes: only nodes with these labels: `pool=gpu`.", allowed=LABELS
    )
    evaluator: bool = setting(
        False,
        "Kubernetes: whether an evaluator (`--mode=continuous_eval`) runs beside training, in the "
        "same pod.",
    )
    address: str = setting(
        "",
        "The Ray cluster, as `10.0.0.1:6379`; empty: that of RAY_ADDRESS, else this machine's, "
        "which is started if there is none.",
    )
    environment: tuple[str, ...] = setting(
        (),
        "Variables of the environment: `NAME=value`, or `NAME` for the value that it has where the "
        "command is given. Secrets do not belong here.",
        allowed=VARIABLES,
    )


@dataclasses.dataclass
class WorkersConfig(base_config.Config):
    """How `--workers` restarts the workers of a run."""

    rest_seconds: float = setting(
        60.0,
        "A worker that failed is left out for so many seconds, if `--workers` allows for fewer.",
        allowed=SIZE,
    )
    restarts_an_hour: int = setting(
        10, "After so many restarts within an hour, a failure ends the run.", allowed=SIZE
    )
    idle_starts: int = setting(
        2, "So many starts in a row that end without a step end the run.", allowed=COUNT
    )


@dataclasses.dataclass
class RunConfig(base_config.Config):
    """The settings that this runner adds to Model Garden's config classes."""

    name: str = setting(
        "",
        "The run's folder below `--runs_dir`, with placeholders: `{name}` is the gin file's or "
        "registered experiment's, `{model}` the type of the task's model, `{run.seed}` a value. "
        "Empty: `{name}`.",
        resume=NOTES,
        read="elsewhere",
    )
    seed: int = setting(
        0,
        "Seeds the weights, the order of training examples and everything else that is random.",
        allowed=number(at_least=0, below=2**32),
    )
    deterministic: bool = setting(
        True,
        "Whether every op gives the same bits every time, as an exact resume needs. TensorFlow "
        "then does without some faster kernels, mostly on GPUs.",
    )
    inputs: str = setting(
        "stream",
        "How a task's own `tf.data` pipeline over TFRecords is read in training. `stream`: as the "
        "task builds it. `indexed`: its records are found by index, in an order that depends on "
        "seed and step alone, so that a resume reaches any step at once. Decoding, parsing and "
        "batches stay. Pipelines that cannot be read so (several data sets, filters, `tf.data` "
        "service) are streamed, and the log says why.",
        allowed=one_of("stream", "indexed"),
    )
    max_bad_examples: int = setting(
        0,
        "How many damaged examples of indexed training data may be left out. In place of each, the "
        "next sound example of the data is trained on. One more ends the run.",
        allowed=SIZE,
    )
    async_checkpoints: bool = setting(
        True, "Whether checkpoints are written while training goes on.", resume=REPORTS
    )
    checkpoint_seconds: float = setting(
        0.0,
        "This long after a commit another is made, when the loop that is running ends, wherever "
        "the grid of `TrainerConfig.checkpoint_interval` is; 0: none. Such commits are there to "
        "resume from and to be evaluated: no rollback goes to one, and no bit of the training "
        "depends on them. (The decisions of an evaluator beside it are taken up at any commit, and "
        "recorded there.)",
        allowed=SIZE,
        resume=REPORTS,
    )
    evaluations_commit: bool = setting(
        True,
        "Whether each evaluation commits a checkpoint first. If not, one between two multiples of "
        "`TrainerConfig.checkpoint_interval` commits only if it is among the best; after a kill it "
        "is done again, with the steps before it.",
        resume=REPORTS,
    )
    logical_cpus: int = setting(
        1,
        "CPU devices that the `mirrored` strategy spreads over where there is no GPU.",
        allowed=COUNT,
        resume=DEVICES,
    )
    workers_timeout: float = setting(
        300.0,
        "How many seconds the workers of a run wait for each other when they start.",
        allowed=number(above=0),
        resume=DEVICES,
        read="elsewhere",
    )
    intra_op_threads: int = setting(
        0,
        "How many threads an op may compute with on CPUs; 0: TensorFlow chooses.",
        allowed=SIZE,
        resume=DEVICES,
    )
    inter_op_threads: int = setting(
        0,
        "How many ops may run side by side on CPUs; 0: TensorFlow chooses.",
        allowed=SIZE,
        resume=DEVICES,
    )
    peak_flops: float = setting(
        0.0,
        "The peak FLOP/s of one device, for the utilisation `mfu`; 0: as its maker states it, "
        "where that is known.",
        allowed=SIZE,
        resume=REPORTS,
    )
    training_rows: bool = setting(
        True, "Whether `train.jsonl` is written, from which reports draw curves.", resume=REPORTS
    )
    tensorboard: bool = setting(True, "Whether TensorBoard's events are written.", resume=REPORTS)
    tensorboard_kinds: tuple[str, ...] = setting(
        TENSORBOARD,
        "Which of them: points of `train`ing, `validation`, further `sets` and the `test`; the "
        "task's `pictures`; `hparams`, the row of that table; `system`, what the machine does.",
        allowed=some_of(*TENSORBOARD),
        resume=REPORTS,
    )
    summary_seconds: float = setting(
        0.0,
        "This long after the last point on TensorBoard's training charts another is added: the "
        "means since the last multiple of `TrainerConfig.summary_interval`; 0: none. train.jsonl "
        "has only the rows of the grid, which are the same in every run.",
        allowed=SIZE,
        resume=REPORTS,
    )
    system_seconds: float = setting(
        10.0,
        "How often processor, memory, disk, network and GPUs are sampled into `system.jsonl` and "
        "TensorBoard; 0: never.",
        allowed=SIZE,
        resume=REPORTS,
    )
    profile_every: int = setting(
        0,
        "Three steps up to each multiple of this are profiled, as by `--profile_steps`; 0: none. "
        "The newest five profiles are kept.",
        allowed=SIZE,
        resume=REPORTS,
    )
    rollback_rate: float = setting(
        1.0,
        "Each rollback of a diverged run multiplies the learning rate by this "
        "(`TrainerConfig.recovery_max_trials` limits the rollbacks).",
        allowed=_SHARE,
        resume=ROLLBACKS,
    )
    gradient_accumulation: int = setting(
        1,
        "Each replica trains on its batch in this many equal parts, one after the other, before "
        "the mean of their gradients is applied. A step is still one update.",
        allowed=COUNT,
    )
    log_gradient_norm: bool = setting(
        False,
        "Whether `gradient_norm` is among the training metrics: the mean of the global norms of "
        "the gradients that are applied, before clipping.",
    )
    actions: tuple[ActionConfig, ...] = setting(
        (),
        "What is done after loops and evaluations: `(@my_actions.Draw(),)`, or `ActionConfig`s "
        "that say when.",
        resume=REPORTS,
        read="elsewhere",
    )
    writers: tuple[FunctionConfig, ...] = setting(
        (),
        "Called beside TensorBoard with each training row and the results of each set of data: "
        "`writer(step, values, name)`, a mapping of names to numbers and `train`, `validation` or "
        "the set's name. If it has a method `close`, that is called at the end. After a resume, "
        "steps may come again: the later values count.",
        resume=REPORTS,
        read="elsewhere",
    )
    loggers: tuple[str, ...] = setting(
        (),
        "Where else the run is logged, each by a process of its own, for which training never "
        "waits: `mlflow` and `wandb`, which need the extras of those names, and `csv`, tables in "
        "`loggers/`.",
        allowed=some_of(*plugins.names("runner.run_directory.loggers", "to_"), or_none=True),
        resume=REPORTS,
        read="elsewhere",
    )
    mirror: str = setting(
        "",
        "Where the run's folder is copied to while it trains: a URL such as `s3://bucket/run`. "
        "Training does not wait for it, but the run ends only once all is there. Empty: nowhere.",
        resume=REPORTS,
        read="elsewhere",
    )
    mirror_timeout: float = setting(
        600.0,
        "How many seconds the end of a run may wait until a bucket has its last state; after that "
        "it fails and names what is missing there.",
        allowed=SIZE,
        resume=REPORTS,
        read="elsewhere",
    )
    stopping_rules: tuple[FunctionConfig, ...] = setting(
        (),
        "Asked after each evaluation: `rule(evaluations)`, all of them so far as pairs of step and "
        "metrics, returns the reason to stop or None. It must depend on them alone: a resume asks "
        "again.",
        resume=LENGTH,
        read="evaluation",
    )
    variable_groups: tuple[VariableGroupConfig, ...] = setting(
        (),
        "Variables that are frozen, or have a learning rate or an initializer of their own; the "
        "first match counts.",
    )
    limit_train: int = setting(
        0,
        "For trying: training repeats the first batches of the run, this many, the same each time; "
        "1 overfits one batch. They are the length of an epoch then. 0: no limit.",
        allowed=SIZE,
    )
    limit_evaluation: int = setting(
        0,
        "For trying: this many batches of each evaluated set count, the first ones; 0: no limit. "
        "Results and rows of history say so.",
        allowed=SIZE,
        read="evaluation",
    )
    notify: str = setting(
        "",
        "Who is told when the run ends or improves: the URL of a webhook, which gets JSON, `$NAME` "
        "for one in the environment, or a command for the shell, which gets the JSON as its input "
        "and `$RUNNER_TEXT`. Training does not wait. Empty: nobody.",
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
        "The run pauses at this step, saved and evaluated, but not tested; nothing else depends on "
        "it. The same command with a later one, or 0 for none, goes on.",
        allowed=SIZE,
        resume=LENGTH,
        read="elsewhere",
    )
    early_stopping: EarlyStoppingConfig = setting(
        EarlyStoppingConfig, "When a run ends early.", resume=LENGTH
    )
    plateau: PlateauConfig = setting(PlateauConfig, "When the learning rate drops.")
    retention: RetentionConfig = setting(
        RetentionConfig, "Which checkpoints are kept.", resume=KEPT, read="evaluation"
    )
    weight_mean: WeightMeanConfig = setting(
        WeightMeanConfig,
        "The mean of which checkpoints is taken at the end.",
        resume=KEPT,
        read="evaluation",
    )
    evaluation_sets: tuple[EvaluationSetConfig, ...] = setting(
        (), "What is evaluated beside the validation data.", resume=EVALUATIONS, read="evaluation"
    )
    test: TestConfig = setting(
        TestConfig,
        "What the best weights are tested on at the end.",
        resume=REPORTS,
        read="evaluation",
    )
    evaluator: EvaluatorConfig = setting(
        EvaluatorConfig, "What a process that only evaluates does.", resume=KEPT, read="elsewhere"
    )
    export: ExportConfig = setting(
        ExportConfig, "What an export makes.", resume=REPORTS, read="elsewhere"
    )
    find_rate: FindRateConfig = setting(
        FindRateConfig, "How `--mode=find_rate` tries learning rates.", read="elsewhere"
    )
    find_batch: FindBatchConfig = setting(
        FindBatchConfig, "How `--mode=find_batch` tries batches.", read="elsewhere"
    )
    epochs: EpochsConfig = setting(
        EpochsConfig, "Lengths in epochs.", resume=STEPS, read="elsewhere"
    )
    tags: tuple[str, ...] = setting(
        (), "Words to find this run by in `--mode=runs`.", resume=NOTES, read="elsewhere"
    )
    notes: str = setting(
        "",
        "What there is to say about this run, for `--mode=runs`.",
        resume=NOTES,
        read="elsewhere",
    )
    study: StudyConfig | None = setting(
        None, "What `--mode=study` varies; a single run has none.", resume=REPORTS, read="elsewhere"
    )
    launch: LaunchConfig = setting(
        LaunchConfig, "What a job of `--launch` is given.", resume=REPORTS, read="elsewhere"
    )
    workers: WorkersConfig = setting(
        WorkersConfig, "How `--workers` keeps workers going.", resume=REPORTS, read="elsewhere"
    )

    def draws(self, kind: str) -> bool:
        """Returns whether events of one kind of `TENSORBOARD` are written."""
        return self.tensorboard and kind in self.tensorboard_kinds
