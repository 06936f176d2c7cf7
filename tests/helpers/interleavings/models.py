"""The parts of the runner whose processes share a directory, each with its properties."""

import importlib

from interleavings.explorer import Model


def _start(module, name):
    """Imports the module only if its model is run, as some load TensorFlow."""
    return lambda world: getattr(importlib.import_module(f"interleavings.{module}"), name)(world)


MODELS = {
    model.name: model
    for model in (
        Model("lock", "three writers on one machine", _start("locks", "on_one_machine")),
        Model(
            "lock, suspended",
            "two writers on two hosts, suspended",
            _start("locks", "suspended"),
            stalls=1,
        ),
        Model("lock of hosts", "three writers, no flock", _start("locks", "of_hosts")),
        Model("lock without links", "two writers, no links", _start("locks", "without_links")),
        Model("moved", "a writer, and its directory is moved", _start("locks", "moved")),
        Model(
            "takeover",
            "three hosts that train, one suspended",
            _start("takeovers", "of_three_hosts"),
            stalls=1,
        ),
        Model("lease", "three hosts, a bucket", _start("leases", "of_three_hosts"), stalls=1),
        Model(
            "evaluator",
            "training that keeps one, an evaluator",
            _start("evaluators", "alongside"),
            terms=1,
        ),
        Model("study", "two workers, three trials", _start("studies", "of_seeds")),
        Model("population", "two workers, three members", _start("studies", "of_population")),
        Model("mirror", "a run on two hosts in turn, a reader", _start("mirrors", "of_two_hosts")),
    )
}
