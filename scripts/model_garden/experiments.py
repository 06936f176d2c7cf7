"""Runs Model Garden's registered experiments with its own trainer and with this runner.

Overrides reduce every experiment of official.vision and official.nlp to small images, few layers
and batches of two. Each experiment gets a few synthetic examples and runs for two steps of
`train_and_eval`, twice, in separate processes: by `official.core.train_lib.run_experiment`, and by
the command `runner` with the same overrides in a file. Both start from the same seed with the same
kind of random generator, and all examples are equal, so that the losses can be compared. This takes
about an hour on two cores. Runs that exist in the directory are not repeated.
"""

import fnmatch
import json
import math
from pathlib import Path
from typing import Any

import tf_keras
import yaml
from official.common import distribute_utils, registry_imports  # noqa: F401, registers
from official.core import config_definitions as cfg
from official.core import exp_factory, task_factory, train_lib
from official.modeling import hyperparams, performance
from official.vision.utils import summary_manager

from runner import main
from runner.configuration import registry
from scripts.model_garden.data import generate
from scripts.model_garden.forks import alone, forked
from scripts.model_garden.small import small

SEED = 0


def there(name: str, file: Path, folder: Path) -> dict[str, Any]:
    """Runs with Model Garden's own trainer."""
    tf_keras.backend.experimental.enable_tf_random_generator()  # as the runner does
    tf_keras.utils.set_random_seed(SEED)
    params = exp_factory.get_exp_config(name)
    params = hyperparams.override_params_dict(params, str(file), is_strict=True)
    params.validate()
    params.lock()
    if params.runtime.mixed_precision_dtype:
        performance.set_mixed_precision_policy(params.runtime.mixed_precision_dtype)
    strategy = distribute_utils.get_distribution_strategy(params.runtime.distribution_strategy)
    with strategy.scope():
        task = task_factory.get_task(params.task, logging_dir=str(folder))
    losses: list[float] = []
    train_lib.run_experiment(
        strategy,
        task,
        "train_and_eval",
        params,
        str(folder),
        train_actions=[lambda logs: losses.append(float(logs["training_loss"]))],
        eval_summary_manager=_images(params, folder),
    )
    return {"losses": losses}


def _images(params: cfg.ExperimentConfig, folder: Path) -> Any:
    """Returns the summary manager that Model Garden's vision command creates to draw images."""
    if not hasattr(params.task, "allow_image_summary"):
        return None
    return summary_manager.maybe_build_eval_summary_manager(params=params, model_dir=str(folder))


def here(name: str, file: Path, folder: Path) -> dict[str, Any]:
    """Runs with this runner's command."""
    flags = [f"--experiment={name}", f"--config_file={file}", f"--model_dir={folder}"]
    code = main.main(["--mode=train_and_eval", f"--gin.RunConfig.seed={SEED}", *flags])
    if code:
        raise SystemExit(code)
    rows = (folder / "train.jsonl").read_text().splitlines()
    return {"losses": [json.loads(row)["training_loss"] for row in rows]}


def same(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    """Whether the losses of the steps are equal, up to rounding."""
    if "error" in theirs or "error" in ours:
        return ""
    pairs = list(zip(theirs["losses"], ours["losses"], strict=True))
    near = [math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-5) for a, b in pairs]
    if all(near):
        return "both"
    return "the first" if near[0] else f"no: {pairs[0][0]:.5g}, {pairs[0][1]:.5g}"


def ran(result: dict[str, Any]) -> str:
    """Formats a cell of the table."""
    if "error" not in result:
        return "yes"
    return "no: " + result["error"].splitlines()[-1][:160].replace("|", "/")


def experiments(folder: Path, pattern: str) -> list[str]:
    """Runs the experiments that match `pattern`. Returns the lines of the table."""
    data = folder / "data"
    if not (data / "pieces.model").exists():
        alone(lambda: generate(data))
    lines = ["| experiment | ran there | ran here | same losses |", "|---|---|---|---|"]
    for name in sorted(registry.names()):
        if not fnmatch.fnmatch(name, pattern):
            continue
        plain = name.replace("/", "-")
        file = folder / f"{plain}.yaml"
        file.write_text(yaml.safe_dump(small(exp_factory.get_exp_config(name), data)))
        theirs = forked(there, name, file, folder / f"{plain}-there")
        ours = forked(here, name, file, folder / f"{plain}-here")
        row = (f"`{name}`", ran(theirs), ran(ours), same(theirs, ours))
        print(*row, theirs.get("seconds"), ours.get("seconds"), sep=" | ", flush=True)
        lines.append(f"| {' | '.join(row)} |")
    return lines
