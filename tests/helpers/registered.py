"""What holds for an experiment registered with Model Garden, whenever the runner is imported."""

import copy
import dataclasses
import pickle

from official.core import config_definitions as cfg
from official.core import exp_factory
from official.modeling import optimization


def check(name: str, params: cfg.ExperimentConfig) -> None:
    """Fails unless `params` is Model Garden's own: equal to a new one, and free of the runner."""
    new = exp_factory.get_exp_config(name)
    optimizer = params.trainer.optimizer_config.optimizer
    assert params == new
    assert optimizer == copy.deepcopy(optimizer)
    assert repr(params) == repr(new)
    assert optimizer.replace(type="sgd").type == "sgd"
    assert params.replace(trainer={"train_steps": 3}).trainer.train_steps == 3
    new.override({"trainer": {"optimizer_config": {"optimizer": {"type": "lamb"}}}})
    assert isinstance(new.trainer.optimizer_config.optimizer.get(), optimization.LAMBConfig)
    pickled = pickle.dumps(params)
    assert b"runner" not in pickled
    assert pickle.loads(pickled) == params


def check_class() -> None:
    """Fails unless `OptimizerConfig` has only Model Garden's fields, and can be extended."""
    kind = optimization.OptimizerConfig
    assert {field.name for field in dataclasses.fields(kind)}.isdisjoint({"adadelta", "adamax"})

    @dataclasses.dataclass
    class Extended(kind):
        lion: optimization.AdamConfig = dataclasses.field(default_factory=optimization.AdamConfig)

    assert Extended({"type": "lion", "lion": {"beta_1": 0.5}}).get().beta_1 == 0.5
