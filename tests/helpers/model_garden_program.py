"""A program for Model Garden that trains on several workers, with only its import replaced."""

import json
import multiprocessing
import os
import signal
import sys

import toy
import warm  # noqa: F401, has what the workers need imported before they are forked
from official.common import distribute_utils
from several_workers import addresses

from runner import run_experiment

_FORKS = multiprocessing.get_context("forkserver")


def started(folder, log, overrides, *, strikes=False):
    """A process for each of two workers; with `strikes`, the second gets a SIGTERM in training."""
    hosts = addresses(2)
    log.mkdir(exist_ok=True)
    every = [
        _FORKS.Process(target=_run, args=(index, hosts, folder, log, overrides, strikes))
        for index in range(2)
    ]
    for each in every:
        each.start()
    return every


def _run(index, hosts, folder, log, overrides, strikes):
    errors = os.open(log / f"{index}.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(errors, 2)
    (log / f"{index}.pid").write_text(str(os.getpid()))
    task = {"type": "worker", "index": index}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": hosts}, "task": task})
    strategy = distribute_utils.get_distribution_strategy("multi_worker_mirrored")
    params = toy.experiment(overrides[min(index, len(overrides) - 1)])
    with strategy.scope():
        task = toy.ToyTask(params.task)

    def strike(_):
        nonlocal strikes
        if strikes:
            os.kill(int((log / "1.pid").read_text()), signal.SIGTERM)
            strikes = False

    try:
        model, logs = run_experiment(
            strategy,
            task,
            "train_and_eval",
            params,
            str(folder),
            run_post_eval=True,
            train_actions=[strike],
        )
    except KeyboardInterrupt as error:
        sys.exit(error.exit_code)
    weights = [value.tolist() for value in model.get_weights()]
    values = {name: float(value) for name, value in logs.items()}
    (log / f"{index}.json").write_text(json.dumps({"weights": weights, "logs": values}))
