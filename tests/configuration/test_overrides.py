import dataclasses

import pytest
from official.core import config_definitions as cfg
from official.modeling.hyperparams import base_config, oneof
from wording import says

from runner import run_config
from runner.configuration import overrides, yaml_files
from runner.errors import ConfigError


@dataclasses.dataclass
class Head(base_config.Config):
    name: str = "head"
    size: int = 1


@dataclasses.dataclass
class Choice(oneof.OneOfConfig):
    type: str | None = None
    small: Head = dataclasses.field(default_factory=Head)


@dataclasses.dataclass
class Root(base_config.Config):
    steps: int = 10
    rate: float = 0.1
    path: str = ""
    broken: int = None
    sizes: tuple[int, ...] = (1, 2)
    heads: list[Head] = dataclasses.field(
        default_factory=lambda: [Head(name="a"), Head(name="b", size=5)]
    )
    optional: Head | None = None
    choice: Choice = dataclasses.field(default_factory=Choice)
    free: base_config.Config = dataclasses.field(default_factory=base_config.Config)


def put(text, root=None):
    root = root or Root()
    return root, overrides.apply(root, yaml_files.read_override(text))


def test_numbers_are_what_the_field_says():
    root, _ = put("{steps: 1e3, rate: 1, sizes: [3, 4.0, 5]}")
    assert (root.steps, root.rate, root.sizes) == (1000, 1.0, (3, 4, 5))
    assert isinstance(root.steps, int)
    assert isinstance(root.rate, float)


def test_a_list_of_sections_is_replaced_as_a_whole():
    root, _ = put("{heads: [{name: c}, {size: 2}]}")  # of the same length, which official merges
    assert root.heads == [Head(name="c"), Head(size=2)]
    root, _ = put("{heads: []}")
    assert root.heads == []


def test_a_mapping_makes_a_section_that_was_not_there():
    root, origins = put("optional.size=3, choice.type=small, choice.small.name=x")
    assert root.optional == Head(size=3)
    assert root.choice.get() == Head(name="x")
    assert origins["optional.size"] == '--params_override "optional.size=3"'


@dataclasses.dataclass
class Data(cfg.DataConfig):
    subset: str = ""


@dataclasses.dataclass
class Task(cfg.TaskConfig):
    validation_data: Data = dataclasses.field(default_factory=Data)


@dataclasses.dataclass
class WithData(base_config.Config):
    task: Task = dataclasses.field(default_factory=Task)
    run: run_config.RunConfig = dataclasses.field(default_factory=run_config.RunConfig)


def test_further_data_are_of_the_class_of_the_tasks_own():
    root, _ = put(
        "{run: {test: {data: {subset: fog_3}}, evaluation_sets: [{name: a, data: {subset: b}}]}}",
        WithData(),
    )
    assert root.run.test.data == Data(subset="fog_3")
    assert root.run.evaluation_sets[0].data == Data(subset="b")
    root, _ = put("{run: {test: {data: {subset: rain_1, is_training: false}}}}", root)
    assert root.run.test.data == Data(subset="rain_1", is_training=False)


@dataclasses.dataclass
class PlainTrainData(cfg.TaskConfig):
    train_data: cfg.DataConfig = dataclasses.field(default_factory=cfg.DataConfig)
    validation_data: Data = dataclasses.field(default_factory=Data)


def test_data_of_the_task_keep_their_own_class():
    root, _ = put("{task: {train_data: {seed: 3}}}", WithData(task=PlainTrainData()))
    assert type(root.task.train_data) is cfg.DataConfig
    assert root.task.train_data.seed == 3


def test_a_free_section_takes_any_name():
    root, _ = put("{free: {a: 1, b: {c: [x]}}}")
    assert root.free.as_dict() == {"a": 1, "b": {"c": ["x"]}}


def test_a_default_that_breaks_its_annotation_may_be_written_down():
    assert put("{broken: null}")[0].broken is None


def test_all_mistakes_are_named_at_once_and_nothing_counts_twice():
    text = "steps=1.5, raet=2, heads=[{nam: x}], optional.size=big, choice=3, sizes=[1, x]"
    with pytest.raises(ConfigError) as caught:
        put(text)
    lines = str(caught.value).splitlines()
    assert len(lines) == 6
    says(lines, "expected float 1.5")
    says(lines, "Root raet rate")
    says(lines, "Head nam name")
    says(lines, "optional.size expected str big")
    assert all(line.startswith("--params_override") for line in lines)
