"""What a user writes in gin files and parameters, and what comes of it."""

import dataclasses
import importlib
import json
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import gin
import pytest
import yaml
from official.core import config_definitions as cfg
from official.modeling.optimization.configs import optimization_config, optimizer_config
from wording import saying, says

import runner
from runner import config, run_config
from runner.errors import ConfigError

TASK = """
import dataclasses
from typing import List, Literal, Optional, Sequence, Tuple, Union

from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config, oneof


@dataclasses.dataclass
class Head(base_config.Config):
    units: int = 8
    name: str = "head"


@dataclasses.dataclass
class MLP(base_config.Config):
    sizes: List[int] = dataclasses.field(default_factory=lambda: [64])
    dropout: float = 0.0


@dataclasses.dataclass
class CNN(base_config.Config):
    kernel: Tuple[int, int] = (3, 3)


@dataclasses.dataclass
class Model(oneof.OneOfConfig):
    type: Optional[str] = "mlp"
    mlp: MLP = dataclasses.field(default_factory=MLP)
    cnn: CNN = dataclasses.field(default_factory=CNN)


@dataclasses.dataclass
class DataConfig(cfg.DataConfig):
    scale: Optional[float] = None
    drop_remainder: bool = False  # True by official's default, which is no user's mistake
    limit: int = None  # An annotation that its own default breaks.


@dataclasses.dataclass
class ShapesConfig(cfg.TaskConfig):
    model: Model = dataclasses.field(default_factory=Model)
    train_data: DataConfig = dataclasses.field(default_factory=DataConfig)
    validation_data: DataConfig = dataclasses.field(default_factory=DataConfig)
    heads: List[Head] = dataclasses.field(default_factory=list)
    names: Sequence[str] = ()
    order: Literal["up", "down"] = "up"
    levels: int = 2

    def __post_init__(self, *arguments):
        super().__post_init__(*arguments)
        if self.levels % 2:
            raise ValueError("levels must be even")


def wide(units: int = 64) -> Head:
    return Head(units=units)


@dataclasses.dataclass
class NeedsSize(cfg.TaskConfig):
    size: int = dataclasses.field(kw_only=True)


@dataclasses.dataclass
class Plain:
    x: int = 0


@dataclasses.dataclass
class HoldsPlain(cfg.TaskConfig):
    plain: Plain = dataclasses.field(default_factory=Plain)


@dataclasses.dataclass
class Broken(cfg.TaskConfig):
    def __post_init__(self, *arguments):
        super().__post_init__(*arguments)
        self.missing_method()
"""

EXPERIMENT = """\
from __gin__ import dynamic_registration
from official.core import config_definitions as cfg
from runner import config
import shapes
include 'base.gin'

config.Experiment.task = @shapes.ShapesConfig()
shapes.ShapesConfig:
  train_data = @train/shapes.DataConfig()
  validation_data = @validation/shapes.DataConfig()
  model = @shapes.Model()
shapes.Model:
  mlp = @shapes.MLP()
  cnn = @shapes.CNN()
shapes.DataConfig.global_batch_size = 32
cfg.TrainerConfig:
  train_steps = 100
OptimizerConfig.type = 'adam'
LrConfig.type = 'constant'
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a task and an experiment; the process is left as it was found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "shapes.py").write_text(TASK)
    (tmp_path / "exp.gin").write_text(EXPERIMENT)
    yield tmp_path
    gin.clear_config()


def loaded(folder: Path, *lines: str) -> config.Experiment:
    """The experiment with lines added to its file."""
    (folder / "exp.gin").write_text("\n".join([EXPERIMENT, *lines, ""]))
    return config.load(["exp.gin"])


def complaints(folder: Path, *lines: str, trains: bool = True, evaluates: bool = True) -> list[str]:
    """The lines of the message that loading and validating the extended experiment ends in."""
    with pytest.raises(ConfigError) as caught:
        config.validate(loaded(folder, *lines), trains=trains, evaluates=evaluates)
    assert "Traceback" not in str(caught.value)
    assert "configurable" not in str(caught.value)
    return str(caught.value).splitlines()


def place(folder: Path, line: str) -> str:
    """Where a line stands: `exp.gin:20`."""
    return f"exp.gin:{(folder / 'exp.gin').read_text().splitlines().index(line) + 1}"


# What is built.


def test_an_experiment_is_built_whole_with_exact_types(folder):
    experiment = loaded(folder, "OptimizationConfig.ema = @EMAConfig()")
    shapes = importlib.import_module("shapes")
    optimization = experiment.trainer.optimizer_config
    assert type(experiment) is config.Experiment
    assert type(experiment.run) is config.RunConfig
    assert type(experiment.runtime) is cfg.RuntimeConfig
    assert type(experiment.trainer) is cfg.TrainerConfig
    assert type(optimization) is optimization_config.OptimizationConfig
    assert type(optimization.optimizer.adam) is optimizer_config.AdamConfig
    assert type(optimization.ema) is optimizer_config.EMAConfig
    assert type(experiment.task) is shapes.ShapesConfig
    assert type(experiment.task.model.mlp) is shapes.MLP
    config.validate(experiment, trains=True, evaluates=True)


def standard_classes() -> list[type]:
    """The classes of official's standard sections, found from the dataclasses themselves."""
    found = [cfg.RuntimeConfig, cfg.TrainerConfig, optimization_config.OptimizationConfig]
    found += [
        field.default_factory
        for field in dataclasses.fields(run_config.RunConfig)
        if isinstance(field.default_factory, type)
    ]
    for group in ("OptimizerConfig", "LrConfig", "WarmupConfig"):
        choice = getattr(optimization_config, group)
        found.append(choice)
        found += [
            field.default_factory
            for field in dataclasses.fields(choice)
            if isinstance(field.default_factory, type)
        ]
    return found


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("section", standard_classes(), ids=lambda section: section.__name__)
def test_every_standard_section_can_be_set_from_the_command_line(section):
    fields = [f for f in dataclasses.fields(section) if f.default is not dataclasses.MISSING]
    name, value = fields[0].name, fields[0].default
    # What nothing builds would raise.
    config.load(["exp.gin"], [f"{section.__name__}.{name}={value!r}"], menus=True)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "name", ["TrainerConfig", "cfg.TrainerConfig", "config_definitions.TrainerConfig"]
)
def test_a_class_goes_by_its_bare_name_its_alias_or_its_module(name):
    assert config.load(["exp.gin"], [f"{name}.train_steps=7"]).trainer.train_steps == 7


def test_a_file_without_dynamic_registration_works_as_well(folder):
    (folder / "plain.gin").write_text(
        "import shapes\ninclude 'base.gin'\nExperiment.task = @ShapesConfig()\n"
        "TrainerConfig.train_steps = 5\n"
    )
    experiment = config.load(["plain.gin"])
    assert experiment.trainer.train_steps == 5
    assert type(experiment.task).__name__ == "ShapesConfig"


@pytest.mark.usefixtures("folder")
def test_of_two_classes_of_one_name_the_referenced_one_is_meant():
    experiment = config.load(["exp.gin"], ["DataConfig.scale=0.5"])
    assert experiment.task.train_data.scale == 0.5


def test_of_two_classes_of_one_name_neither_is_guessed_where_none_is_referenced(folder):
    (folder / "plain.gin").write_text(
        "import shapes\ninclude 'base.gin'\nExperiment.task = @ShapesConfig()\n"
        "DataConfig.scale = 1.0\n"
    )
    with pytest.raises(ConfigError, match=r"config_definitions.DataConfig or shapes.DataConfig"):
        config.load(["plain.gin"])


def test_scopes_tell_two_sections_of_one_class_apart(folder):
    data = loaded(folder, "validation/shapes.DataConfig.global_batch_size = 8").task
    assert (data.train_data.global_batch_size, data.validation_data.global_batch_size) == (32, 8)


def test_what_a_scoped_section_holds_is_built_in_its_scope(folder):
    task = "config.Experiment.task = @big/shapes.ShapesConfig()"
    experiment = loaded(folder, task, "big/shapes.MLP.dropout = 0.5")
    assert experiment.task.model.mlp.dropout == 0.5


def test_macros_and_references_within_lists_are_followed(folder):
    experiment = loaded(
        folder,
        "steps = 1e3",
        "the_heads = [@shapes.Head(), @small/shapes.Head(), @shapes.wide()]",
        "cfg.TrainerConfig.train_steps = %steps",
        "shapes.ShapesConfig.heads = %the_heads",
        "small/shapes.Head.units = 2",
        "shapes.wide.units = 16",
    )
    assert experiment.trainer.train_steps == 1000
    assert [head.units for head in experiment.task.heads] == [8, 2, 16]


# Order, isolation, locks.


def test_later_files_and_then_parameters_in_their_order_win(folder):
    (folder / "more.gin").write_text("TrainerConfig:\n  train_steps = 200\n  max_to_keep = 9\n")
    params = ["TrainerConfig.train_steps=300", "TrainerConfig.train_steps=400"]
    trainer = config.load(["exp.gin", "more.gin"], params).trainer
    assert (trainer.train_steps, trainer.max_to_keep) == (400, 9)
    assert config.load(["exp.gin", "more.gin"]).trainer.train_steps == 200


@pytest.mark.usefixtures("folder")
def test_two_loads_do_not_see_each_other():
    first = config.load(["exp.gin"], ["TrainerConfig.train_steps=7", "RunConfig.seed=3"])
    second = config.load(["exp.gin"])
    assert (first.trainer.train_steps, second.trainer.train_steps) == (7, 100)
    assert (first.run.seed, second.run.seed) == (3, 0)


def test_a_reference_of_a_file_can_be_replaced_and_leaves_what_it_would_build(folder):
    (folder / "sets.gin").write_text(
        "from __gin__ import dynamic_registration\nimport shapes\nfrom runner import run_config\n"
        "include 'exp.gin'\n"
        "RunConfig.evaluation_sets = (@part/run_config.EvaluationSetConfig(),)\n"
        "part/EvaluationSetConfig.name = 'part'\n"
        "part/EvaluationSetConfig.data = @part/shapes.DataConfig()\n"
        "part/shapes.DataConfig.scale = 2.0\n"
    )
    assert len(config.load(["sets.gin"]).run.evaluation_sets) == 1
    for others in ([], ["RunConfig.evaluation_sets=[]"]):
        params = [*others, "RunConfig.evaluation_sets=()"]
        assert not config.load(["sets.gin"], params).run.evaluation_sets
    with pytest.raises(ConfigError, match=r"part/EvaluationSetConfig\.examples"):
        config.load(["sets.gin"], [*params, "part/EvaluationSetConfig.examples=5"])


def test_names_known_to_an_earlier_load_are_not_known_to_the_next(folder):
    (folder / "nearby.py").write_text("class Thing:\n    def __init__(self, x=0): pass\n")
    with pytest.raises(ConfigError, match="nothing builds Thing"):
        config.load(["exp.gin"], ["import nearby", "Thing.x=1"])
    with pytest.raises(ConfigError, match="unknown name Thing"):
        config.load(["exp.gin"], ["Thing.x=1"])


@pytest.mark.usefixtures("folder")
def test_loading_goes_on_after_somebody_finalized_gin():
    gin.finalize()
    assert config.load(["exp.gin"]).trainer.train_steps == 100
    assert config.load(["exp.gin"]).trainer.train_steps == 100


@pytest.mark.usefixtures("folder")
def test_loads_in_threads_do_not_mix():
    steps = {}

    def load(number: int) -> None:
        experiment = config.load(["exp.gin"], [f"TrainerConfig.train_steps={number}"])
        steps[number] = experiment.trainer.train_steps

    threads = [threading.Thread(target=load, args=[number]) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert steps == {number: number for number in range(1, 9)}


def test_an_edited_module_can_be_loaded_again(folder):
    assert loaded(folder).task.levels == 2
    (folder / "shapes.py").write_text(TASK.replace("levels: int = 2", "levels: int = 4"))
    del sys.modules["shapes"]
    assert loaded(folder).task.levels == 4


@pytest.mark.parametrize("path", ["", "trainer", "trainer.optimizer_config.optimizer.adam", "run"])
def test_locked_means_children_too(folder, path):
    section = loaded(folder)
    for name in path.split(".") if path else []:
        section = getattr(section, name)
    field = dataclasses.fields(section)[0].name
    with pytest.raises(ValueError, match="locked"):
        setattr(section, field, getattr(section, field))


def test_locked_means_configs_in_lists_too(folder):
    head = loaded(folder, "shapes.ShapesConfig.heads = [@shapes.Head()]").task.heads[0]
    with pytest.raises(ValueError, match="locked"):
        head.units = 3


# Files.


def test_an_include_is_found_beside_the_file_that_includes_it(folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "common.gin").write_text("TrainerConfig.max_to_keep = 3\n")
    (folder / "sub" / "exp.gin").write_text(EXPERIMENT + "include 'common.gin'\n")
    assert config.load(["sub/exp.gin"]).trainer.max_to_keep == 3


def test_a_file_included_twice_does_not_undo_what_came_between(folder):
    (folder / "common.gin").write_text("include 'base.gin'\nTrainerConfig.max_to_keep = 3\n")
    lines = ["include 'common.gin'", "TrainerConfig.max_to_keep = 4", "include 'common.gin'"]
    assert loaded(folder, *lines).trainer.max_to_keep == 4


def test_files_that_include_each_other_are_refused(folder):
    (folder / "one.gin").write_text("include 'two.gin'\nRunConfig.seed = 1\n")
    (folder / "two.gin").write_text("include 'one.gin'\nTrainerConfig.max_to_keep = 2\n")
    (message,) = complaints(folder, "include 'one.gin'")
    assert "one.gin -> two.gin -> one.gin" in message


def test_the_working_folder_comes_before_the_package(folder):
    (folder / "base.gin").write_text("TrainerConfig.max_to_keep = 5\n")
    with pytest.raises(ConfigError, match="unknown name OptimizerConfig"):
        config.load(["exp.gin"])


def test_a_module_beside_the_gin_file_is_found_from_anywhere(folder, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    experiment = config.load([str(folder / "exp.gin")])
    assert importlib.import_module(type(experiment.task).__module__).__file__.startswith(
        str(folder)
    )


@pytest.mark.usefixtures("folder")
def test_a_module_that_hides_the_one_beside_the_file_is_named(tmp_path_factory):
    config.load(["exp.gin"])
    other = tmp_path_factory.mktemp("other")
    (other / "shapes.py").write_text(TASK)
    (other / "exp.gin").write_text(EXPERIMENT)
    with pytest.raises(ConfigError, match=rf"exp.gin:4: shapes is .*hides {other}/shapes.py"):
        config.load([str(other / "exp.gin")])


def test_a_package_that_hides_the_users_own_is_named(tmp_path):
    own = tmp_path / "json"
    own.mkdir()
    (own / "housing.py").write_text(TASK)
    (tmp_path / "mine.gin").write_text("from json import housing\ninclude 'digits.gin'\n")
    with pytest.raises(ConfigError) as error:
        config.load(["mine.gin"])
    says(str(error.value), f"mine.gin:1 json.housing {json.__file__} {own / 'housing.py'} rename")


def test_reading_gin_files_loads_no_tensorflow():
    code = (
        "import sys; from runner.configuration import gin_parser;"
        "list(gin_parser.read(['base.gin'], ['A.b=1']));"
        "sys.exit('tensorflow' in sys.modules)"
    )
    root = Path(config.__file__).parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


# Values.


@pytest.mark.parametrize(
    ("line", "path", "value"),
    [
        ("cfg.TrainerConfig.train_steps = 1e3", "trainer.train_steps", 1000),
        ("cfg.TrainerConfig.loss_upper_bound = 5", "trainer.loss_upper_bound", 5.0),
        (
            "cfg.TrainerConfig.continuous_eval_timeout = None",
            "trainer.continuous_eval_timeout",
            None,
        ),
        ("cfg.RuntimeConfig.loss_scale = 'dynamic'", "runtime.loss_scale", "dynamic"),
        ("cfg.RuntimeConfig.loss_scale = 128", "runtime.loss_scale", 128.0),
        ("cfg.RuntimeConfig.mixed_precision_dtype = None", "runtime.mixed_precision_dtype", None),
        ("shapes.MLP.sizes = (128, 1e2)", "task.model.mlp.sizes", [128, 100]),
        ("shapes.CNN.kernel = [5, 5]", "task.model.cnn.kernel", (5, 5)),
        ("shapes.ShapesConfig.names = ['a', 'b']", "task.names", ["a", "b"]),
        ("shapes.ShapesConfig.order = 'down'", "task.order", "down"),
        ("shapes.DataConfig.input_path = ['a=1', 'b']", "task.train_data.input_path", ["a=1", "b"]),
        ("shapes.DataConfig.limit = None", "task.train_data.limit", None),
        ("shapes.DataConfig.limit = 5", "task.train_data.limit", 5),
    ],
)
def test_a_value_is_taken_as_its_annotation_means_it(folder, line, path, value):
    found = loaded(folder, line)
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value
    assert type(found) is type(value)


def test_a_dict_may_stand_for_a_config(folder):
    model = loaded(folder, "shapes.Model.mlp = {'sizes': [3], 'dropout': 0.5}").task.model
    assert (model.mlp.sizes, model.mlp.dropout) == ([3], 0.5)


def test_an_inner_scope_may_set_again_what_an_outer_one_set_before(folder):
    outer = "shapes.DataConfig.scale = 2.0"
    both = [f"{scope}/shapes.DataConfig.scale = 0.5" for scope in ("train", "validation")]
    task = loaded(folder, outer, *both).task
    assert (task.train_data.scale, task.validation_data.scale) == (0.5, 0.5)
    task = loaded(folder, both[0], outer).task
    assert (task.train_data.scale, task.validation_data.scale) == (0.5, 2.0)


def test_yaml_loads_back_to_equal_values(folder):
    experiment = loaded(
        folder,
        "shapes.ShapesConfig.heads = [@shapes.Head()]",
        "shapes.Model.type = 'cnn'",
        "shapes.DataConfig.scale = 1e-07",
        "shapes.ShapesConfig.name = 'yes: no # maybe'",
    )
    text = config.as_yaml(experiment)
    values = experiment.as_dict()
    assert values["task"]["model"]["cnn"]["kernel"] == (3, 3)
    assert yaml.safe_load(text) == json.loads(json.dumps(values))  # with lists for tuples
    assert "!!" not in text


# What is wrong. Each row: lines added to the experiment, and what is said of one of them.

WRONG = {
    "unknown class": (["RuntimConfig.enable_xla = True"], "mean RuntimeConfig"),
    "unknown class of a block": (
        ["cfg.TrainerConfg:", "  train_steps = 1", "  max_to_keep = 2"],
        "official.core.config_definitions TrainerConfg mean TrainerConfig",
    ),
    "unknown reference": (
        ["config.Experiment.task = @shapes.ShapeConfig()"],
        "shapes ShapeConfig ShapesConfig",
    ),
    "unknown module of a name": (
        ["shape.MLP.dropout = 0.1"],
        "shape.MLP imports shapes",
    ),
    "unknown parameter": (
        ["cfg.TrainerConfig.train_stepz = 1"],
        "TrainerConfig parameter train_stepz mean train_steps",
    ),
    "unknown parameter of a function": (
        ["shapes.ShapesConfig.heads = [@shapes.wide()]", "shapes.wide.unit = 1"],
        "wide unit units",
    ),
    "official's own constructor arguments": (
        ["cfg.TrainerConfig.default_params = {'train_stepz': 1}"],
        "TrainerConfig parameter default_params",
    ),
    "unknown macro": (
        ["epochs = 3", "cfg.TrainerConfig.train_steps = %epoch"],
        "defines epochs",
    ),
    "a module for a class": (["shapes.ShapesConfig.model = @shapes.dataclasses()"], "not class"),
    "word for a number": (
        ["cfg.TrainerConfig.train_steps = 'many'"],
        "TrainerConfig.train_steps expected str many",
    ),
    "fraction for a count": (["cfg.TrainerConfig.train_steps = 1.5"], "float 1.5"),
    "bool for a number": (["cfg.TrainerConfig.max_to_keep = True"], "bool True"),
    "number for a bool": (["cfg.RuntimeConfig.enable_xla = 1"], "expected bool 1"),
    "None for a number": (["cfg.TrainerConfig.train_steps = None"], "expected int"),
    "list for a word": (["shapes.Model.type = ['mlp']"], "expected list"),
    "word for a list": (["shapes.MLP.sizes = '64'"], "expected list 64"),
    "wrong item of a list": (["shapes.MLP.sizes = [1, 'x']"], "expected str 'x'"),
    "wrong length": (["shapes.CNN.kernel = (3, 3, 3)"], "expected 2 values 3"),
    "not one of the words": (["shapes.ShapesConfig.order = 'left'"], "expected up down"),
    "wrong value through a macro": (
        ["steps = 'many'", "cfg.TrainerConfig.train_steps = %steps"],
        "expected str many",
    ),
    "wrong class of a reference": (
        ["shapes.ShapesConfig.model = @shapes.MLP()"],
        "expected Model @MLP",
    ),
    "a class of the same name": (
        ["shapes.ShapesConfig.train_data = @cfg.DataConfig()"],
        "expected shapes.DataConfig @DataConfig official.core.config_definitions",
    ),
    "wrong result of a function": (
        ["shapes.ShapesConfig.model = @shapes.wide()"],
        "expected Model @wide",
    ),
    "a class for its instance": (
        ["shapes.ShapesConfig.model = @shapes.Model"],
        "@Model itself builds",
    ),
    "unknown field of a dict": (
        ["shapes.Model.mlp = {'size': [3]}"],
        "MLP size sizes",
    ),
    "never built": (
        ["EMAConfig.average_decay = 0.9"],
        "nothing builds EMAConfig OptimizationConfig.ema @EMAConfig",
    ),
    "never built task": (
        ["shapes.NeedsSize.size = 3"],
        "nothing builds NeedsSize Experiment.task @NeedsSize",
    ),
    "never built set": (
        ["part/EvaluationSetConfig.examples = 3"],
        "RunConfig.evaluation_sets @part/EvaluationSetConfig",
    ),
    "scope never used": (
        ["trian/shapes.DataConfig.scale = 0.5"],
        "DataConfig trian",
    ),
    "later than what an inner scope sets": (
        [
            "train/shapes.DataConfig.scale = 0.5",
            "validation/shapes.DataConfig.scale = 0.5",
            "shapes.DataConfig.scale = 2.0",
        ],
        "DataConfig.scale scopes train/DataConfig.scale",
    ),
    "macro never used": (
        ["train_steps = 5"],
        "uses train_steps parameter TrainerConfig.train_steps",
    ),
    "misspelt macro": (
        ["cfg.TrainerConfig.train_steps = %steps", "steps = 5", "stesp = 6"],
        "nothing stesp mean steps",
    ),
    "rate as a macro": (
        ["learning_rate = 0.1"],
        "uses learning_rate learning",
    ),
    "rate in another section": (
        ["AdamConfig.learning_rate = 0.1"],
        "AdamConfig learning_rate schedule's LrConfig.type ConstantLrConfig.learning_rate",
    ),
    "parameter of another section": (
        ["RunConfig.train_steps = 5"],
        "RunConfig parameter train_steps mean TrainerConfig.train_steps",
    ),
    "class named as it is chosen": (
        ["AdamwConfig.weight_decay_rate = 0.1"],
        "unknown AdamwConfig AdamWeightDecayConfig",
    ),
    "macro of itself": (
        ["a = %b", "b = %a", "cfg.TrainerConfig.train_steps = %a"],
        "refers itself",
    ),
    "required and not given": (
        ["cfg.TrainerConfig.train_steps = %gin.REQUIRED"],
        "TrainerConfig.train_steps must",
    ),
    "refused by the constructor": (
        ["shapes.ShapesConfig.levels = 3"],
        "ShapesConfig levels",
    ),
    "unquoted string": (["LrConfig.type = cosine"], "quotes LrConfig.type cosine"),
    "unquoted string in a list": (
        ["shapes.ShapesConfig.names = [a]"],
        "quotes shapes.ShapesConfig.names",
    ),
    "unquoted path": (["shapes.DataConfig.input_path = /data/x.npz"], "string quotes"),
    "unquoted file": (["include base.gin"], "file's quotes"),
    "true": (["cfg.RuntimeConfig.enable_xla = true"], "write True true"),
    "null": (["cfg.RuntimeConfig.tpu = null"], "write null"),
    "no value": (["cfg.TrainerConfig.train_steps ="], "cfg.TrainerConfig.train_steps value"),
    "not a number": (["cfg.TrainerConfig.train_steps = 10k"], "expected Name.parameter value"),
    "no equals sign": (["cfg.TrainerConfig.train_steps 5"], "expected Name.parameter value"),
    "unclosed bracket": (["shapes.MLP.sizes = [1, 2"], "bracket closed"),
    "unknown include": (["include 'bas.gin'"], "mean base.gin"),
    "unknown module": (["import shapez"], "shapez shapes"),
    "module of the standard library's spelling": (
        ["import houses"],
        "houses neither",
    ),
    "unknown module of a package": (
        ["from official.core import base_taks"],
        "module official.core.base_taks mean base_task",
    ),
    "unknown package": (["from ofical.core import base_task"], "mean official"),
    "a class imported": (
        ["from shapes import ShapesConfig"],
        "shapes.ShapesConfig shapes",
    ),
    "interval": (["cfg.TrainerConfig.summary_interval = 0"], "must 1"),
    "summary interval": (["cfg.TrainerConfig.summary_interval = -1"], "must 1"),
    "checkpoint interval": (["cfg.TrainerConfig.checkpoint_interval = 0"], "must 1"),
    "validation interval": (["cfg.TrainerConfig.validation_interval = 0"], "must 1"),
    "retention": (["cfg.TrainerConfig.max_to_keep = -1"], "must 1 0"),
    "train steps": (["cfg.TrainerConfig.train_steps = 0"], "1 train"),
    "validation steps": (["cfg.TrainerConfig.validation_steps = 0"], "-1 data"),
    "timeout": (["cfg.TrainerConfig.continuous_eval_timeout = 0"], "above 0"),
    "batch size": (["train/shapes.DataConfig.global_batch_size = 0"], "must 1"),
    "an optimizer without code": (
        ["OptimizerConfig.type = 'slide'"],
        "no implementation",
    ),
    "a TPU that is not used": (
        ["RuntimeConfig.tpu = 'local'", "RuntimeConfig.distribution_strategy = 'off'"],
        "RuntimeConfig.distribution_strategy off tpu uses",
    ),
    "CPUs that are not used": (
        ["RunConfig.logical_cpus = 2", "RuntimeConfig.distribution_strategy = 'one_device'"],
        "effect RuntimeConfig.distribution_strategy one_device mirrored",
    ),
    "clipping twice": (
        [
            "OptimizerConfig.type = 'adam'",
            "AdamConfig.clipnorm = 1.0",
            "AdamConfig.global_clipnorm = 2.0",
        ],
        "clipnorm 1.0 global_clipnorm 2.0",
    ),
    "clipping beside a default": (
        [
            "OptimizerConfig.type = 'adamw_experimental'",
            "AdamWeightDecayExperimentalConfig.clipnorm = 2.0",
        ],
        "clipnorm 2.0 global_clipnorm 1.0",
    ),
    "too few rates": (
        [
            "LrConfig.type = 'stepwise'",
            "StepwiseLrConfig.boundaries = [1, 2]",
            "StepwiseLrConfig.values = [0.1, 0.2]",
        ],
        "values 0.1 0.2 3 1 2",
    ),
    "boundaries in disorder": (
        [
            "LrConfig.type = 'stepwise'",
            "StepwiseLrConfig.boundaries = [2, 1]",
            "StepwiseLrConfig.values = [0.1, 0.2, 0.3]",
        ],
        "boundaries 2 1 ascend",
    ),
    "logical CPUs": (["RunConfig.logical_cpus = 0"], "must 1"),
    "threads": (["RunConfig.intra_op_threads = -1"], "must 0"),
    "a peak": (["RunConfig.peak_flops = -1.0"], "must 0"),
    "rollback rate": (["RunConfig.rollback_rate = 2.0"], "above 0 1"),
    "a loop without a function": (
        ["cfg.TrainerConfig.train_tf_function = False"],
        "needs train_tf_while_loop False",
    ),
    "an evaluation loop without a function": (
        [
            "cfg.TrainerConfig.eval_tf_while_loop = True",
            "cfg.TrainerConfig.eval_tf_function = False",
        ],
        "needs eval_tf_while_loop False",
    ),
    "averages in float16": (
        [
            "OptimizationConfig.ema = @EMAConfig()",
            "RuntimeConfig.mixed_precision_dtype = 'float16'",
        ],
        "use bfloat16",
    ),
    "averages of a new optimizer": (
        ["OptimizationConfig.ema = @EMAConfig()", "OptimizerConfig.type = 'adam_experimental'"],
        "OptimizationConfig.ema wraps Keras's",
    ),
    "a dropped remainder": (
        ["validation/shapes.DataConfig.drop_remainder = True"],
        "validation evaluated",
    ),
    "metric comparison": (
        ["cfg.TrainerConfig.best_checkpoint_metric_comp = 'highr'"],
        "higher lower mean",
    ),
    "export without a metric": (
        ["cfg.TrainerConfig.best_checkpoint_export_subdir = 'best'"],
        "effect TrainerConfig.best_checkpoint_eval_metric",
    ),
    "unknown optimizer": (["OptimizerConfig.type = 'adm'"], "mean adam"),
    "unknown choice in the task": (
        ["shapes.Model.type = 'cn'"],
        "task.model.type cn cnn",
    ),
}


STOPPING = "EarlyStoppingConfig.higher = ('accuracy',)"
BEST = "TrainerConfig.best_checkpoint_eval_metric = 'a|b'"
PLATEAU = "PlateauConfig.lower = ('validation_loss',)"
SETS = [
    "from runner import run_config",
    "RunConfig.evaluation_sets = (@part/EvaluationSetConfig(), @noisy/EvaluationSetConfig())",
    "part/EvaluationSetConfig.name = 'part'",
    "noisy/EvaluationSetConfig.name = 'noisy'",
    "EvaluationSetConfig.data = @extra/shapes.DataConfig()",
    "extra/shapes.DataConfig.is_training = False",
]
TEST = ["TestConfig.data = @test/shapes.DataConfig()"]

# Of our own section, the same.
WRONG_RUN = {
    "patience": ([STOPPING, "EarlyStoppingConfig.patience = 0"], "must 1"),
    "minimum gain": ([STOPPING, "EarlyStoppingConfig.min_delta = -0.1"], "must 0"),
    "first step": ([STOPPING, "EarlyStoppingConfig.from_step = -1"], "must 0"),
    "patience of nothing": (
        ["EarlyStoppingConfig.patience = 3"],
        "effect EarlyStoppingConfig.higher lower",
    ),
    "start of nothing": (
        ["EpochsConfig.examples = 32", "EpochsConfig.stopping_from = 3"],
        "effect EarlyStoppingConfig.higher lower",
    ),
    "both directions": (
        [STOPPING, "EarlyStoppingConfig.lower = ('accuracy',)"],
        "accuracy according EarlyStoppingConfig",
    ),
    "both directions in two sections": (
        [STOPPING, "PlateauConfig.lower = ('accuracy',)"],
        "accuracy according EarlyStoppingConfig",
    ),
    "both directions of the best": (
        ["TrainerConfig.best_checkpoint_eval_metric = 'm|x'", "RetentionConfig.lower = ('m/x',)"],
        "m/x according TrainerConfig",
    ),
    "both directions of what else may decide": (
        [BEST, "RetentionConfig.or_higher = ('f1',)", "RetentionConfig.or_lower = ('f1',)"],
        "f1 according RetentionConfig",
    ),
    "the metric of the best once more": (
        [BEST, "RetentionConfig.or_higher = ('a|b',)"],
        "a/b TrainerConfig.best_checkpoint_eval_metric",
    ),
    "what else may decide, alone": (
        ["RetentionConfig.higher = ('a',)", "RetentionConfig.or_lower = ('f1',)"],
        "effect TrainerConfig.best_checkpoint_eval_metric",
    ),
    "nothing kept of the best alone": (
        [BEST, "RetentionConfig.best = 0"],
        "0 keeps nothing TrainerConfig.max_to_keep",
    ),
    "first step of the best": ([BEST, "RetentionConfig.from_step = -1"], "must 0"),
    "first step of no best": (
        ["RetentionConfig.from_step = 10"],
        "run.retention.from_step effect TrainerConfig.best_checkpoint_eval_metric RetentionConfig",
    ),
    "first epoch of no best": (
        ["EpochsConfig.examples = 32", "EpochsConfig.best_from = 3"],
        "run.epochs.best_from 3.0 effect TrainerConfig.best_checkpoint_eval_metric",
    ),
    "a metric twice": (["RetentionConfig.higher = ('a', 'b', 'a')"], "metric once"),
    "a metric without a name": (["RetentionConfig.lower = ('',)"], "metric once"),
    "source": (
        [STOPPING, "EarlyStoppingConfig.source = 'eval/x'"],
        "letters digits",
    ),
    "factor": ([PLATEAU, "PlateauConfig.factor = 1.0"], "above 0 below 1"),
    "factor 0": ([PLATEAU, "PlateauConfig.factor = 0.0"], "above 0 below 1"),
    "tolerance": ([PLATEAU, "PlateauConfig.tolerance = 0"], "must 1"),
    "cooldown": ([PLATEAU, "PlateauConfig.cooldown = -1"], "must 0"),
    "floor": ([PLATEAU, "PlateauConfig.floor = -0.1"], "must 0"),
    "floor of nothing": (
        ["PlateauConfig.floor = 0.1"],
        "effect PlateauConfig.higher lower",
    ),
    "every": (["RetentionConfig.every = -1"], "must 0"),
    "best": (["RetentionConfig.higher = ('a',)", "RetentionConfig.best = -1"], "must 0"),
    "best of nothing": (
        ["RetentionConfig.best = 2"],
        "effect TrainerConfig.best_checkpoint_eval_metric",
    ),
    "policy": (
        ["EvaluatorConfig.policy = 'evry'"],
        "latest every mean",
    ),
    "seconds": (["EvaluatorConfig.min_seconds = -1"], "must 0"),
    "first checkpoint": (["EvaluatorConfig.from_step = -1"], "must 0"),
    "evaluations": (["EvaluatorConfig.max_evaluations = -1"], "must 0"),
    "evaluator": (["EvaluatorConfig.name = '../x'"], "letters digits"),
    "examples of no epochs": (
        ["EpochsConfig.examples = 100"],
        "effect epochs",
    ),
    "share": ([*SETS, "part/EvaluationSetConfig.share = 0.0"], "above 0 1"),
    "too large a share": (
        [*SETS, "part/EvaluationSetConfig.share = 1.5"],
        "above 0 1",
    ),
    "examples of a set": ([*SETS, "part/EvaluationSetConfig.examples = -1"], "must 0"),
    "share and examples": (
        [*SETS, "part/EvaluationSetConfig.share = 0.5", "part/EvaluationSetConfig.examples = 3"],
        "combined share 0.5",
    ),
    "interval of a set": ([*SETS, "part/EvaluationSetConfig.interval = -1"], "must 0"),
    "name of a set": ([*SETS, "noisy/EvaluationSetConfig.name = 'a b'"], "must letters"),
    "no name of a set": ([*SETS, "noisy/EvaluationSetConfig.name = ''"], "must letters"),
    "name of the test": (
        [*SETS, "noisy/EvaluationSetConfig.name = 'test'"],
        "prefix test/",
    ),
    "one name of two sets": (
        [*SETS, "noisy/EvaluationSetConfig.name = 'part'"],
        "another set",
    ),
    "one prefix of two sets": (
        [*SETS, "noisy/EvaluationSetConfig.prefix = 'part/'"],
        "prefix part/",
    ),
    "batch of a set": (
        [
            *SETS,
            "noisy/EvaluationSetConfig.data = @two/shapes.DataConfig()",
            "two/shapes.DataConfig.global_batch_size = 0",
        ],
        "run.evaluation_sets[1].data.global_batch_size 0 1",
    ),
    "a set for training": (
        [
            *SETS,
            "noisy/EvaluationSetConfig.data = @two/shapes.DataConfig()",
            "two/shapes.DataConfig.is_training = True",
        ],
        "False data evaluated",
    ),
    "a dropped remainder of a test": (
        [*TEST, "test/shapes.DataConfig.drop_remainder = True"],
        "effect evaluated",
    ),
    "batch of a test": (
        [*TEST, "test/shapes.DataConfig.global_batch_size = 0"],
        "run.test.data.global_batch_size 0 1",
    ),
    "a test of nothing": (["TestConfig.last = True"], "effect TestConfig.data"),
    "a mean of nothing": (["WeightMeanConfig.every = 5"], "effect WeightMeanConfig.last"),
    "two seeds of the data": (
        ["RunConfig.data_seed = 6", "train/shapes.DataConfig.seed = 5"],
        "effect train_data.seed 5",
    ),
    "a decay above 1": (
        [
            "OptimizationConfig.ema = @optimizer_config.EMAConfig()",
            "optimizer_config.EMAConfig.average_decay = 2.0",
        ],
        "average_decay 2.0 1",
    ),
    "a section misspelt": (
        ["EarlyStopingConfig.patience = 3"],
        "mean EarlyStoppingConfig",
    ),
    "a field misspelt": (["EarlyStoppingConfig.patiense = 3"], "mean patience"),
    "a field of a set misspelt": (
        [*SETS, "part/EvaluationSetConfig.shar = 0.5"],
        "mean share",
    ),
    "one metric for several": (
        ["EarlyStoppingConfig.higher = 'accuracy'"],
        "EarlyStoppingConfig.higher expected tuple",
    ),
}


@pytest.mark.parametrize(
    ("lines", "said"), [*WRONG.values(), *WRONG_RUN.values()], ids=[*WRONG, *WRONG_RUN]
)
def test_a_mistake_is_named_with_its_place_and_what_was_meant(folder, lines, said):
    (message,) = complaints(folder, *lines)
    assert message.startswith(tuple(f"{place(folder, line)}: " for line in lines))
    says(message, said)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("param", "said"),
    [
        ("TrainerConfig.train_steps=many", "expected int"),
        ("RuntimeConfig.enable_xla=true", "write True true"),
        ("RuntimeConfig.tpu=none", "write None"),
        ("LrConfig.type=%cosine", "nothing defines"),
        ("LrConfig.type=@cosine", "unknown cosine"),
        ("LrConfig.type=1e3", "expected float 1000.0"),
        ("LrConfig.type=two words", "string quotes"),
        ("EarlyStoppingConfig.higher=accuracy", "expected tuple"),
        ("LrConfig.typ=cosine", "LrConfig typ type"),
        ("TrainerConfig.train_steps='many'", "expected str many"),
        ("TrainerConfig.steps_per_loop=-1", "must 1 0"),
        ("EMAConfig.average_decay=0.9", "OptimizationConfig.ema @EMAConfig"),
    ],
)
def test_a_mistake_on_the_command_line_is_named_by_its_flag(param, said):
    with pytest.raises(ConfigError) as caught:
        config.validate(config.load(["exp.gin"], [param]), trains=True, evaluates=True)
    flag = f"--gin.{param}"
    shown = flag if shlex.quote(flag) == flag else f'"{flag}"'
    assert str(caught.value).startswith(f"{shown}: ")
    says(str(caught.value), said)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("params", [["LrConfig.type=power"], ["LrConfig.type = %a", "a = power"]])
def test_a_word_on_the_command_line_is_a_string_where_only_that_is_allowed(params):
    made = config.load(["exp.gin"], [*params, "RuntimeConfig.tpu=gs://a/b-1"])
    assert made.trainer.optimizer_config.learning_rate.type == "power"
    assert made.runtime.tpu == "gs://a/b-1"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("word", ["12:00:00", "10.0.0.1:6379", "{name}-a", "a,b", "[0.1", "x=1"])
def test_any_word_on_the_command_line_may_be_a_string(word):
    paths = f"train/shapes.DataConfig.input_path={word}"
    made = config.load(["exp.gin"], [f"RunConfig.notes={word}", paths])
    assert (made.run.notes, made.task.train_data.input_path) == (word, word)


def test_all_mistakes_of_a_kind_are_named_at_once(folder):
    assert len(complaints(folder, "A.x = 1", "MLP.dropout = 'a'", "TrainerConfig.a = 1")) == 3
    assert (
        len(complaints(folder, "EMAConfig.name = 'a'", "steps = 1", "shapes.Head.units = 1")) == 3
    )
    lines = ["TrainerConfig.summary_interval = 0", "RunConfig.logical_cpus = 0"]
    lines += [PLATEAU, "PlateauConfig.factor = 2.0", "PlateauConfig.tolerance = 0"]
    assert len(complaints(folder, *lines, "EarlyStoppingConfig.patience = 3")) == 5


def test_a_missing_file_is_named_with_the_folders_searched_and_a_near_name(folder):
    with pytest.raises(ConfigError) as caught:
        config.load(["exq.gin"])
    package = Path(config.__file__).parent
    for where in (folder, package.parent / "experiments", package):
        assert str(where) in str(caught.value)
    assert "did you mean 'exp.gin'?" in str(caught.value)


def test_a_missing_base_is_named(folder):
    (folder / "bare.gin").write_text("import shapes\nshapes.MLP.dropout = 0.5\n")
    said = "Experiment.*include 'base.gin'$"
    with pytest.raises(ConfigError, match=f"^.*{said}"):
        config.load(["bare.gin"])
    (folder / "bare.gin").write_text("import shapes\nExperiment.task = @shapes.NeedsSize()\n")
    with pytest.raises(ConfigError, match=f"bare.gin:2: unknown.* Experiment.*\n.*{said}"):
        config.load(["bare.gin"])


@pytest.mark.parametrize(
    ("module", "text", "said"),
    [
        ("faulty", "import os\n\nimport no_such_thing\n", "faulty.py:3 ModuleNotFoundError"),
        ("faulty", "from os import no_such_name\n", "faulty.py:1 ImportError"),
        ("faulty", "x = 1\ny = x.z\n", "faulty.py:2 AttributeError"),
        ("faulty", "def f(:\n", "faulty.py:1 SyntaxError"),
        ("needy", "\nimport faulty\n", "faulty.py:2 ZeroDivisionError division"),
    ],
)
def test_a_broken_module_is_named_with_its_own_line(folder, module, text, said):
    (folder / "faulty.py").write_text("\n1 / 0\n")
    (folder / f"{module}.py").write_text(text)
    message = complaints(folder, f"import {module}")
    assert message[0].startswith(f"{place(folder, f'import {module}')}: {module} cannot be")
    says(message[0], f"{folder}/{said}")


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("NeedsSize", "NeedsSize.size must"),
        ("HoldsPlain", "HoldsPlain strings configs"),
        ("Broken", "Broken AttributeError"),
    ],
)
def test_a_task_that_cannot_be_built_is_named_where_it_is_referenced(folder, task, said):
    text = f"import shapes\ninclude 'base.gin'\nExperiment.task = @{task}()\n"
    (folder / "other.gin").write_text(text)
    with pytest.raises(ConfigError) as caught:
        config.load(["other.gin"])
    says(str(caught.value), f"other.gin:3 {said}")
    assert "configurable" not in str(caught.value)
    if task == "Broken":
        line = TASK.splitlines().index("        self.missing_method()") + 1
        assert f"{folder}/shapes.py:{line}" in str(caught.value)


# Our own section, through the experiment that ships.


def test_evaluation_sets_are_scoped_references():
    experiment = runner.load(
        "digits.gin",
        [
            SETS[1],
            "part/EvaluationSetConfig.name = 'part'",
            "part/EvaluationSetConfig.data = @part/image_data.ImageData()",
            "part/EvaluationSetConfig.share = 0.25",
            "part/ImageData.is_training = False",
            "part/ImageData.split = 'train'",
            "part/ImageData.global_batch_size = 128",
            "noisy/EvaluationSetConfig.name = 'noisy'",
            "noisy/EvaluationSetConfig.interval = 250",
            "noisy/EvaluationSetConfig.data = @validation/image_data.ImageData()",
        ],
    )
    config.validate(experiment, trains=True, evaluates=True)
    part, noisy = experiment.run.evaluation_sets
    assert (part.name, part.share, part.data.split) == ("part", 0.25, "train")
    assert part.data.global_batch_size == 128
    assert (noisy.name, noisy.interval, noisy.data.global_batch_size) == ("noisy", 250, 360)
    assert type(part.data) is type(experiment.task.train_data)
    with pytest.raises(ValueError, match="locked"):
        part.data.split = "all"


def test_what_a_replaced_list_held_is_forgotten():
    params = [
        SETS[1],
        SETS[2],
        SETS[3],
        "EvaluationSetConfig.data = @validation/image_data.ImageData()",
    ]
    experiment = runner.load("digits.gin", params, overrides=["run.evaluation_sets=[]"])
    origins = config.origins(experiment)
    assert "run.evaluation_sets" in origins
    assert not [path for path in origins if path.startswith("run.evaluation_sets[")]


def test_decisions_and_epochs_are_set_by_their_bare_names():
    experiment = runner.load(
        "digits.gin",
        [
            "EarlyStoppingConfig.higher=['accuracy']",
            "EarlyStoppingConfig.patience=3",
            "PlateauConfig.lower=['validation_loss']",
            "RetentionConfig.every=1000",
            "EvaluatorConfig.policy='every'",
            "TrainerConfig.train_steps=0",
            "EpochsConfig.train=10",
            "EpochsConfig.decay=10",
        ],
    )
    config.validate(experiment, trains=True, evaluates=True)
    assert experiment.run.early_stopping.higher == ("accuracy",)
    assert experiment.run.early_stopping.patience == 3
    assert experiment.trainer.train_steps == 225
    assert experiment.trainer.optimizer_config.learning_rate.cosine.decay_steps == 225


# What only some modes need.


@pytest.mark.usefixtures("folder")
def test_what_only_training_needs_is_not_asked_of_an_evaluation():
    experiment = config.load(
        ["exp.gin"],
        [
            "TrainerConfig.train_steps=0",
            "OptimizerConfig.type=None",
            "LrConfig.type=None",
            "train/DataConfig.global_batch_size=0",
        ],
    )
    config.validate(experiment, trains=False, evaluates=True)
    with pytest.raises(ConfigError) as caught:
        config.validate(experiment, trains=True, evaluates=True)
    assert len(str(caught.value).splitlines()) == 4
    says(str(caught.value), "adafactor adafactor_keras")


@pytest.mark.usefixtures("folder")
def test_only_the_data_that_a_mode_uses_needs_a_batch_size():
    experiment = config.load(["exp.gin"], ["validation/DataConfig.global_batch_size=0"])
    config.validate(experiment, trains=True, evaluates=False)
    with pytest.raises(ConfigError, match=r"task.validation_data.global_batch_size = 0"):
        config.validate(experiment, trains=True, evaluates=True)


def test_an_experiment_without_a_task_is_refused():
    with pytest.raises(ConfigError, match=saying("task set")):
        config.validate(config.Experiment(), trains=False, evaluates=False)


def test_a_default_out_of_range_is_named_with_the_parameter_that_sets_it():
    with pytest.raises(ConfigError, match=r"train_steps = 0; .*set TrainerConfig.train_steps"):
        config.validate(config.Experiment(), trains=True, evaluates=False)
