"""Runs on mixtures of sources, and on several sources."""

import json

import numpy as np
import pytest
import toy
from wording import saying, says

import runner
from runner import inputs
from runner.errors import ConfigError
from runner.runs import replay
from runner.runs.call import Call

SIZE = 40


class Mixes(toy.ToyTask):
    """Reads a mixture of the directories in a folder, with the weights in a class attribute."""

    folder = None
    weights = None

    def build_inputs(self, params, input_context=None):
        sources = {name: inputs.source(self.folder / name) for name in self.weights}
        place = inputs.place if params.is_training else inputs.in_order
        return place(
            inputs.mixture(sources, self.weights),
            lambda row: (row["points"], row["labels"]),
            config=params,
            input_context=input_context,
        )


class Alone(Mixes):
    """Reads one of them."""

    def build_inputs(self, params, input_context=None):
        place = inputs.place if params.is_training else inputs.in_order
        return place(
            inputs.source(self.folder / "web"),
            lambda row: (row["points"], row["labels"]),
            config=params,
            input_context=input_context,
        )


def write(folder, name, points, labels):
    (folder / name).mkdir(parents=True)
    np.save(folder / name / "points.npy", points)
    np.save(folder / name / "labels.npy", labels)


@pytest.fixture
def make(tmp_path, monkeypatch):
    points, labels = toy.data(3 * SIZE)
    for number, name in enumerate(("web", "books", "code")):
        part = slice(number * SIZE, (number + 1) * SIZE)
        write(tmp_path / "data", name, points[part], labels[part])
    write(tmp_path / "data", "text", points, np.array(["a"] * 3 * SIZE))
    monkeypatch.setattr(Mixes, "folder", tmp_path / "data")

    def made(weights, steps=20, kind=Mixes):
        monkeypatch.setattr(Mixes, "weights", weights)
        monkeypatch.setattr(
            "official.core.task_factory.get_task", lambda params, **kw: kind(params)
        )
        return toy.experiment({"trainer": {"train_steps": steps}})

    return made


def stored(folder):
    """The name and the weight of each source."""
    sources = json.loads((folder / "inputs.json").read_text())["sources"]
    return {source["name"]: source["settings"].get("weight") for source in sources}


def attempts(folder):
    return json.loads((folder / "run.json").read_text())["starts"]


def test_other_sources_and_weights_are_rejected_or_recorded(tmp_path, make, capsys):
    folder = tmp_path / "run"
    runner.run(make({"web": 0.7, "books": 0.3}), folder, "train")
    assert stored(folder) == {"books": 0.3, "web": 0.7}
    before = (folder / "inputs.json").read_bytes()
    with pytest.raises(ConfigError, match=saying("'web' weight 0.7 0.6")) as error:
        runner.run(make({"web": 0.6, "code": 0.4}, 40), folder, "train")
    says(str(error.value), "'books' lack")
    says(str(error.value), "'code' new")
    assert error.value.exit_code == 2
    assert (folder / "inputs.json").read_bytes() == before
    weights = {"web": 0.5, "books": 0.3, "code": 0.2}
    runner.run(make(weights, 40), folder, "train", allow_config_change=True)
    assert stored(folder) == pytest.approx(weights)
    says(attempts(folder)[-1]["changed"], "'web' weight 0.7 0.5")
    says(attempts(folder)[-1]["changed"], "'code' new")
    says(capsys.readouterr().err, "'code' new")
    replay.replay(Call(None, folder), (35, 35))
    rows = (folder / "replay" / "35-35" / "steps.jsonl").read_text()
    examples = json.loads(rows)["examples"]
    assert len({example["mixed_as"] for example in examples} & weights.keys()) > 1
    assert all(f"/{example['mixed_as']}/" in example["path"] for example in examples)


def test_different_structures_are_rejected_before_anything_is_written(tmp_path, make):
    with pytest.raises(ConfigError, match=saying("'text' 'web' labels string")):
        runner.run(make({"web": 1, "text": 1}), tmp_path / "run", "train")
    assert not (tmp_path / "run").exists()


def test_a_run_of_an_earlier_version_resumes(tmp_path, make):
    folder = tmp_path / "run"
    runner.run(make({}, kind=Alone), folder, "train")
    (source,) = json.loads((folder / "inputs.json").read_text())["sources"]
    shards = {"source": source["source"], "shards": source["shards"]}
    (folder / "inputs.json").write_text(json.dumps(shards))
    with pytest.raises(ConfigError, match=saying("'books' new")):
        runner.run(make({"web": 0.7, "books": 0.3}, 30), folder, "train")
    runner.run(make({}, 30, kind=Alone), folder, "train")
    assert json.loads((folder / "inputs.json").read_text()) == {"sources": [source]}
