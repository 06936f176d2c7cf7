"""Model Garden's experiments are its own, whether it is imported before or after the runner."""

import subprocess
import sys
from pathlib import Path

import pytest
import registered
from official.core import exp_factory
from official.modeling.optimization.configs import optimization_config

from runner import config
from runner.configuration import registry

HELPERS = Path(registered.__file__).parent
REGISTRY = "from official.common import registry_imports"
PRETRAINING = "from official.nlp.configs import pretraining_experiments"  # makes one at import
RUNNER = "import runner; runner.run_experiment; runner.load('digits.gin')"
MAKE = f"""
import sys; sys.path.insert(0, {str(HELPERS)!r})
import registered
params = registered.exp_factory.get_exp_config('bert/pretraining')
registered.check('bert/pretraining', params)
"""
AGAIN = """
registered.check('bert/pretraining', params)
registered.check_class()
from runner import config
assert config.from_official(params).trainer.as_dict() == params.trainer.as_dict()
"""


REGISTRY_FIRST = "\n".join([REGISTRY, MAKE, RUNNER, AGAIN])
RUNNER_IN_THE_MIDDLE = "\n".join([PRETRAINING, MAKE, RUNNER, REGISTRY, AGAIN])
EACH = f"""
import os, sys
import tensorflow, tf_keras  # once, as it takes longest
child = os.fork()
exec({RUNNER_IN_THE_MIDDLE!r} if child else {REGISTRY_FIRST!r})
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_an_experiment_made_before_the_runner_is_imported_stays_as_it_was():
    run = subprocess.run([sys.executable, "-c", EACH], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-4000:]


@pytest.fixture(scope="module")
def names():
    """All experiments, registered after the runner was imported."""
    with pytest.raises(Exception, match="no such experiment"):
        registry.experiment("a name that no experiment has")  # imports Model Garden's
    return sorted(name for name in registry.names() if is_of_model_garden(name))


def is_of_model_garden(name):
    """Whether it is not an experiment that another test has registered in this process."""
    return type(exp_factory.get_exp_config(name).task).__module__.startswith("official.")


def test_every_registered_experiment_is_model_gardens_own(names):
    registered.check_class()
    for name in names:
        params = exp_factory.get_exp_config(name)
        if isinstance(params.trainer.optimizer_config, optimization_config.OptimizationConfig):
            registered.check(name, params)
        assert config.from_official(params).task == params.task, name
    assert len(names) >= 41
