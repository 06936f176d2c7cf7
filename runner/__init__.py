"""An experiment runner for TensorFlow.

    import runner

    config = runner.load("digits.gin", ["TrainerConfig.train_steps = 500"])
    results = runner.run(config, "runs/digits", "train_and_eval")
    print(results["best"])

    run = runner.Run("runs/digits")
    print(run.state, run.best.metrics["accuracy"])

The first call loads TensorFlow, not the import. Reading a run does not load it.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner import errors
from runner.configuration import tasks_package

if TYPE_CHECKING:
    from runner.command.fit_result import FitResult
    from runner.config import Experiment
    from runner.model_garden import OrbitExperimentRunner, run_experiment
    from runner.multitask import run_experiment_with_multitask_eval
    from runner.run_directory.run import Run

__all__ = [
    "OrbitExperimentRunner",
    "Run",
    "errors",
    "fit",
    "load",
    "load_model",
    "run",
    "run_experiment",
    "run_experiment_with_multitask_eval",
    "study",
]

tasks_package.install()


def __getattr__(name: str) -> Any:
    """Loads `Run` and the names of Model Garden's `train_lib` modules when they are first used."""
    if name == "Run":
        from runner.run_directory.run import Run

        return Run
    if name in ("OrbitExperimentRunner", "run_experiment"):
        from runner import model_garden

        return getattr(model_garden, name)
    if name == "run_experiment_with_multitask_eval":
        from runner import multitask

        return multitask.run_experiment_with_multitask_eval
    raise AttributeError(f"module 'runner' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Lists the public names, for completion."""
    return __all__


def load(
    gin_files: str | Path | Sequence[str | Path] = (),
    gin_params: Sequence[str] = (),
    *,
    experiment: str | None = None,
    config_files: Sequence[str | Path] = (),
    overrides: Sequence[str] = (),
) -> "Experiment":
    """Loads an experiment and locks it.

    Later arguments override earlier ones.

    Args:
        gin_files: One file or several. The runner looks for each in the working directory first,
            then among its bundled experiments.
        gin_params: `Name.parameter = value`, applied after the files.
        experiment: The name of a registered experiment to start from.
        config_files: YAML or JSON files.
        overrides: In the form that the flag `--params_override` takes.

    Raises:
        runner.errors.ConfigError: if there are mistakes. The message lists them all with their
            locations.
    """
    from runner import config
    from runner.devices import process_state

    if isinstance(gin_files, str | Path):
        gin_files = [gin_files]
    with errors.in_python(), process_state.restored():
        return config.load(
            [str(file) for file in gin_files],
            list(gin_params),
            experiment=experiment,
            config_files=[str(file) for file in config_files],
            overrides=overrides,
        )


def load_model(model_dir: str | Path, checkpoint: str | int = "", *, model: Any = None) -> Any:
    """Returns the trained Keras model of a run, compiled, with a checkpoint's weights.

        model = runner.load_model("runs/mine")
        model.predict(x)

    Args:
        model_dir: The run's directory.
        checkpoint: `best`, `latest`, a step or a path. If empty, the best checkpoint, or the latest
            if the run keeps no best.
        model: A model of the same layers, or a function that builds one. Only a run of `fit` needs
            it whose model cannot be rebuilt in this process. A model that cannot be copied gets the
            weights itself.

    Returns:
        A model of tf_keras, or of Keras 3 if the run trained one.

    Raises:
        runner.errors.ConfigError: there is no such checkpoint.
    """
    from runner.run_directory.run import Run

    with errors.in_python():
        return Run(model_dir).load_model(checkpoint, model=model)


def run(
    config: "Experiment | None",
    model_dir: str | Path | None,
    mode: str,
    *,
    train_actions: Sequence[Callable[..., Any]] = (),
    eval_actions: Sequence[Callable[..., Any]] = (),
    **options: Any,
) -> dict[str, Any]:
    """Does what the command `runner --mode=...` does.

        runner.run(config, "runs/digits", "predict", checkpoint="best", output="digits.jsonl")
        runner.run(None, "runs", "runs", where="accuracy > 0.9", sort="-accuracy")

    Args:
        config: The experiment that `load` returned. Pass None to use the configuration of the run
            in `model_dir`, or for modes that read existing runs, which have their own.
        model_dir: The run's directory. A run that exists there is resumed. None for `find_rate`,
            `find_batch` and `compare`.
        mode: Any of `runner --help=modes`.
        train_actions: Called with the logs of each training loop, a mapping from names to tensors.
            An action that returns a string stops the run with that reason.
        eval_actions: Called in the same way with the results of each evaluation. They cannot stop
            `eval` before it has evaluated everything that was requested.
        options: The options of the mode, named like its flags. `runner --mode=predict --help` lists
            them. Each takes a Python value or the text that the flag takes. For a run of `fit`,
            `eval`, `predict`, `export` and `ensemble` also take data in memory as `train` and
            `validation`, in the form that `fit` takes, and `model`, as `load_model` takes it.

    Returns:
        The content of the command's last line: `status` (`done` or `stopped`), `step`, `metrics`
        (the newest), `best` (`step` and `metrics`, or None) and `model_dir`. For `export`:
        `checkpoint`, its `metrics`, and `exports`, one for each format. For `predict`: `output`,
        `examples`, `seconds` and `examples_per_second`. For `ensemble`: the content of
        ensemble.json.

    Raises:
        runner.errors.RunnerError: if the run cannot continue. The message gives the reason.
    """
    from runner.command import from_python

    if isinstance(config, str | Path):
        raise TypeError(f"runner.run takes what load returns: runner.load({str(config)!r})")
    actions = {"train_actions": tuple(train_actions), "eval_actions": tuple(eval_actions)}
    return from_python.run(config, model_dir, mode, options, **actions)


def fit(
    model: Any,
    train: Any = None,
    validation: Any = None,
    batch_size: int | None = None,
    epochs: float | None = None,
    *,
    model_dir: str | Path,
    loss: Any = None,
    metrics: Any = None,
    optimizer: Any = None,
    train_steps: int | None = None,
    x: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    class_weight: Mapping[int, float] | None = None,
    validation_data: Any = None,
    validation_split: float = 0.0,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: int = 1,
    steps_per_epoch: int | None = None,
    initial_epoch: int = 0,
    shuffle: bool = True,
    verbose: int | str = "auto",
    callbacks: Any = (),
    gin_params: Sequence[str] = (),
    restore_best: bool = False,
    **options: Any,
) -> "FitResult":
    """Trains a Keras model on data in memory, as a normal run in `model_dir`.

        model.compile("adam", "mse", metrics=["mae"])
        results = runner.fit(model, x, y, epochs=10, validation_split=0.2, model_dir="runs/mine")

    Repeat the call to resume the run. It rejects another model or other data, like any other
    changed configuration. Afterwards the model holds the weights of the last step.

    Args:
        model: A compiled model of tf_keras, or of Keras 3 with the TensorFlow backend, or a
            function that builds one.
        train: (x, y) or (x, y, sample_weight) of arrays, DataFrames, ragged or sparse tensors, or
            of dicts and tuples of them, [n, ...]. Or the path of an .npz with these names, (path,
            label column) of a CSV or Parquet file, a tf.data.Dataset of such batches, a PyDataset
            of Keras 3 or a Sequence of tf_keras, a generator of batches, or a function that returns
            any of these. Or x alone: then y follows as in Keras, by position or by name, or the
            model needs none.
        validation: Data in the same form, evaluated after each epoch, or ten times if the length is
            in steps. None: no evaluation. After x, this is y: an array, a tensor, a DataFrame, or a
            list or dict of them.
        batch_size: Defaults to 32, or to the batch size of the dataset.
        epochs: How many epochs to train. 1 if `train_steps` is not given either.
        model_dir: The run's directory. A run that exists there is resumed.
        loss: As for `compile`, a name or an object. The same applies to `metrics` and `optimizer`.
            The model is compiled with the given arguments and keeps the rest of its compiled
            settings.
        metrics: As for `compile`.
        optimizer: As for `compile`.
        train_steps: How many steps to train, instead of `epochs`.
        x: Features, [n, ...], or what `train` takes.
        y: Labels, [n, ...].
        sample_weight: The weight of each example, [n].
        class_weight: The weight of each class, by its number. Multiplies the weights of the
            training examples. Classes without an entry have the weight 1.
        validation_data: The same as `validation`.
        validation_split: The fraction of the examples, from the end of the arrays, that validate
            and are not trained on. Unused with validation data.
        validation_steps: How many batches an evaluation has. None: all.
        validation_batch_size: Defaults to `batch_size`.
        validation_freq: The number of epochs between evaluations.
        steps_per_epoch: The steps of an epoch. None: one pass over the data.
        initial_epoch: Only 0.
        shuffle: Whether to shuffle arrays every epoch. A tf.data.Dataset keeps its order.
        verbose: 0 shows no progress.
        callbacks: Callbacks of tf_keras or Keras 3. Those with an equivalent become settings of the
            run. The others are called during training. An `epoch` is that of `epochs`, or the part
            between two evaluations if the length is in steps.
        gin_params: As for `load`. They override what the other arguments imply.
        restore_best: Whether the model gets the weights of the best evaluation, instead of those of
            the last step.
        options: Options of `run`: `allow_config_change`, `allow_lost_history`, `dry_run`,
            `eval_actions`, `overwrite`, `profile_steps` and `train_actions`.

    Returns:
        The same results as `run`, with `history`, `best`, `model_dir` and `plot()`.

    Raises:
        runner.errors.RunnerError: if the run cannot continue. The message gives the reason.
    """
    from runner.command import fit_arguments

    fit_arguments.check(options, fit)
    keras = fit_arguments.OfKeras(
        x=x,
        y=y,
        sample_weight=sample_weight,
        class_weight=class_weight,
        validation_data=validation_data,
        validation_split=validation_split,
        validation_steps=validation_steps,
        validation_batch_size=validation_batch_size,
        validation_freq=validation_freq,
        steps_per_epoch=steps_per_epoch,
        initial_epoch=initial_epoch,
        shuffle=shuffle,
        verbose=verbose,
        callbacks=() if callbacks is None else callbacks,
    )
    keras.check()
    lengths = fit_arguments.Lengths.of(train_steps, epochs, batch_size, keras)
    data = fit_arguments.data(train, validation, keras)
    from runner.command import fitting  # loads TensorFlow
    from runner.devices import process_state

    with errors.in_python(), process_state.restored():
        return fitting.fit(
            model,
            data,
            model_dir,
            lengths=lengths,
            keras=keras,
            compiled={"loss": loss, "metrics": metrics, "optimizer": optimizer},
            gin_params=gin_params,
            options=options,
            restore_best=restore_best,
        )


def study(
    build_model: Callable[..., Any],
    train: Any = None,
    validation: Any = None,
    *,
    model_dir: str | Path,
    vary: Mapping[str, Any] | None = None,
    seeds: int | Sequence[int] | None = None,
    trials: int | None = None,
    jobs: int | str = 1,
    strategy: str | None = None,
    stopping: str | None = None,
    train_steps: int | None = None,
    epochs: float | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Trains a Keras model with many values of its hyperparameters and several seeds.

    For example::

        def build_model(width=64, rate=0.01):
            model = tf_keras.Sequential([...])
            model.compile(tf_keras.optimizers.Adam(rate), "mse")
            return model

        results = runner.study(
            build_model,
            (x, y),
            (x2, y2),
            model_dir="studies/mine",
            vary={"width": [32, 64], "rate": "log(1e-4, 0.1)"},
            trials=20,
            seeds=3,
            epochs=10,
        )
        print(results["best"]["parameters"])

    Each trial is a run as of `fit`. Repeat the call to continue the study, also after a kill. The
    directory is that of `--mode=study`: the commands `runner --mode=report`, `runs`, `compare` and
    `status` read it.

    Args:
        build_model: A function that returns a new compiled model of tf_keras or Keras 3. It may be
            defined anywhere, also in a notebook, and may be a lambda.
        train: As for `fit`.
        validation: As for `fit`. The lowest `validation_loss` decides, unless `gin_params` sets
            `TrainerConfig.best_checkpoint_eval_metric`.
        model_dir: The study's directory.
        vary: Values by name. A name is an argument of `build_model`, or a setting such as
            "AdamConfig.beta_1". The values are a list, or the text that `--vary` takes:
            "log(1e-4, 0.1)", "uniform(0, 1)" or "int(1, 8)".
        seeds: The number of seeds of each configuration, or a list of seeds.
        trials: The number of configurations. Ranges need it. Defaults to all combinations of lists.
        jobs: How many trials run at once, or `auto`. With 1, they run in this process. With more,
            each runs in a new process, which takes a few seconds to start and gets a copy of
            `build_model` and of the data, which must be arrays or a path.
        strategy: `grid`, `random`, `quasi_random`, `tpe` or `cma_es`. Defaults to `grid` for lists
            and to `tpe` for ranges.
        stopping: `asha`, `hyperband` or `median` stops bad trials early.
        train_steps: How many steps each trial trains. Pass this or `epochs`.
        epochs: How many epochs each trial trains.
        options: `batch_size`, `loss`, `metrics`, `optimizer`, `gin_params`, `train_actions` and
            `eval_actions`, as for `fit`, for all trials. With `dry_run`, the configurations are
            only checked.

    Returns:
        A dict with these keys:

        - `best`: the best configuration: its `parameters`, the mean of the deciding metric over
          seeds by the metric's name, its `interval` and its `trials`. None if none has finished.
        - `configurations`: all of them, the best first, each with `parameters`, `metrics` (means),
          `intervals` and `trials` (directories).
        - `findings`: comparisons in words.
        - `trials`: the number of trials in each state.
        - `status` and `model_dir`.

    Raises:
        runner.errors.ConfigError: an argument is not valid. No trial has started then.
        runner.errors.RunnerError: too many trials failed. Repeat the call to try them again.
    """
    from runner.command import fit_arguments

    shared = fit_arguments.of_study(options, study)
    from runner.command import studying  # loads TensorFlow
    from runner.devices import process_state

    with errors.in_python(), process_state.restored():
        fit = studying.Fit(
            build_model,
            train,
            validation,
            {"train_steps": train_steps, "epochs": epochs, "batch_size": shared.batch_size},
            shared.compiled,
            shared.gin_params,
            shared.options,
        )
        settings = {"seeds": seeds, "trials": trials, "jobs": jobs}
        settings |= {"strategy": strategy, "stopping": stopping}
        return studying.study(fit, Path(model_dir), vary or {}, settings)
