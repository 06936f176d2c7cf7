"""An experiment runner for TensorFlow.

    import runner

    config = runner.load("digits.gin", ["TrainerConfig.train_steps = 500"])
    results = runner.run(config, "runs/digits", "train_and_eval")
    print(results["best"])

    run = runner.Run("runs/digits")
    print(run.state, run.best.metrics["accuracy"])

TensorFlow is loaded by the first call, not by the import; reading a run does not load it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner import errors
from runner.configuration import tasks_package

if TYPE_CHECKING:
    from runner.config import Experiment
    from runner.model_garden import OrbitExperimentRunner, run_experiment
    from runner.multitask import run_experiment_with_multitask_eval
    from runner.run_folder.run import Run

__all__ = [
    "OrbitExperimentRunner",
    "Run",
    "errors",
    "fit",
    "load",
    "run",
    "run_experiment",
    "run_experiment_with_multitask_eval",
]

tasks_package.install()


def __getattr__(name: str) -> Any:
    """`Run`, and the names of Model Garden's `train_lib` modules, which come with TensorFlow."""
    if name == "Run":
        from runner.run_folder.run import Run

        return Run
    if name in ("OrbitExperimentRunner", "run_experiment"):
        from runner import model_garden

        return getattr(model_garden, name)
    if name == "run_experiment_with_multitask_eval":
        from runner import multitask

        return multitask.run_experiment_with_multitask_eval
    raise AttributeError(f"module 'runner' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is public, for completion."""
    return __all__


def load(
    gin_files: str | Path | Sequence[str | Path] = (),
    gin_params: Sequence[str] = (),
    *,
    experiment: str | None = None,
    config_files: Sequence[str | Path] = (),
    overrides: Sequence[str] = (),
) -> "Experiment":
    """The experiment, locked; later arguments override earlier ones.

    Args:
        gin_files: One or several; each is looked for in the working folder first, then among the
            experiments that come with the runner.
        gin_params: `Name.parameter = value`, applied after the files.
        experiment: The name of a registered experiment to start from.
        config_files: YAML or JSON files.
        overrides: As the flag `--params_override` takes them.

    Raises:
        runner.errors.ConfigError: all mistakes, each with its place.
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
        config: What `load` returned; None for the configuration of the run in `model_dir`, and for
            modes that look at runs, which have theirs.
        model_dir: The run's folder; a run that exists there is resumed. None for `find_rate`,
            `find_batch` and `compare`.
        mode: Any of `runner --help=modes`.
        train_actions: Called with the logs of each training loop, names to tensors. One that
            returns a string stops the run with that reason.
        eval_actions: The same, with the results of each evaluation; but nothing stops `eval`
            before it has evaluated what it was asked to.
        options: Those of the mode, with the names of its flags: `runner --mode=predict --help`
            lists them. Each takes its own value or the text that the flag takes.

    Returns:
        What the command prints as its last line: `status` (`done` or `stopped`), `step`, `metrics`
        (the newest), `best` (`step` and `metrics`, or None) and `model_dir`. Of `export`:
        `checkpoint`, its `metrics`, and `exports`, one for each format. Of `predict`: `output`,
        `examples`, `seconds` and `examples_per_second`. Of `ensemble`: what ensemble.json holds.

    Raises:
        runner.errors.RunnerError: it cannot go on; the message says why.
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
    *,
    model_dir: str | Path,
    loss: Any = None,
    metrics: Any = None,
    optimizer: Any = None,
    train_steps: int | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    gin_params: Sequence[str] = (),
    **options: Any,
) -> dict[str, Any]:
    """Trains a Keras model on data, both at hand; the run is like any other in its folder.

        model.compile("adam", "mse", metrics=["mae"])
        results = runner.fit(model, (x, y), (x2, y2), model_dir="runs/mine", epochs=10)

    The same call again resumes the run; another model or other data are refused, as any changed
    configuration is. Afterwards the model holds the weights of the last step.

    Args:
        model: Of tf_keras or Keras 3, compiled; or a function that builds one, which is then left
            as it is.
        train: (x, y) or (x, y, sample_weight) of arrays, or of dicts and tuples of arrays, [n,
            ...]; the path of an .npz with these names; or a tf.data.Dataset of such batches.
        validation: The same, to evaluate on after each epoch, or ten times if the length is in
            steps; None: nothing is evaluated.
        model_dir: The run's folder; a run that exists there is resumed.
        loss: As for `compile`, a name or an object; so are the next two. The model is compiled with
            what is given, and keeps the rest of what it was compiled with.
        metrics: The same.
        optimizer: The same.
        train_steps: How many steps to train; give this or `epochs`.
        epochs: The same in epochs.
        batch_size: 32, or that of the dataset, unless given.
        gin_params: As for `load`; they override what the model was compiled with.
        options: Of `run`: `allow_config_change`, `allow_lost_history`, `dry_run`, `eval_actions`,
            `overwrite`, `profile_steps` and `train_actions`.

    Returns:
        What `run` returns.

    Raises:
        runner.errors.RunnerError: it cannot go on; the message says why.
    """
    from runner import fit_arguments

    fit_arguments.check(options, fit)
    from runner import fitting  # loads TensorFlow
    from runner.devices import process_state

    with errors.in_python(), process_state.restored():
        return fitting.fit(
            model,
            train,
            validation,
            model_dir,
            lengths={"train_steps": train_steps, "epochs": epochs, "batch_size": batch_size},
            compiled={"loss": loss, "metrics": metrics, "optimizer": optimizer},
            gin_params=gin_params,
            options=options,
        )
